"""Hard cases of what is handed over: arrays of any strides and any library, at a step, at a bind
and as State, on every target. What comes out is bit for bit what contiguous copies give."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import poot
from poot import ops
from poot.errors import BindError
from poot.ops import Array
from poot.session import Session
from tests.support.attention import qkv, reference
from tests.support.everywhere import SLOW, compile_on, fused_count, on
from tests.support.tol import assert_within

SHAPE = (2, 3, 5, 8)
AXES = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


def attention(q: Array, k: Array, v: Array) -> object:
    return ops.attention_masked(q, k, v, mask=None, scale=8**-0.5)


def session_of(target: str, spec: Callable[..., object] = poot.slot, **held: object) -> Session:
    """A session of one fused attention over q, k and v of `SHAPE`; `held` are its weights."""
    specs = [spec(SHAPE, "f32") for _ in "qkv"]
    program = compile_on(target, poot.trace(attention, tuple(specs)))
    assert fused_count(program, "attention") == 1, program.explain()
    return program.bind(held)


def strided(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The array in other memory: every order of its axes, steps of two, backwards, unaligned."""
    for axes in AXES:
        order = (*axes, 3)
        moved = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        yield f"axes {axes}", moved
    yield "Fortran order", np.asfortranarray(x)
    for axis in range(4):
        backward = np.ascontiguousarray(np.flip(x, axis))
        yield f"axis {axis} backwards", np.flip(backward, axis)
        wide = np.full([n * 2 if a == axis else n for a, n in enumerate(x.shape)], np.nan, x.dtype)
        every_second = tuple(slice(None, None, 2 if a == axis else 1) for a in range(4))
        wide[every_second] = x
        yield f"every second of axis {axis}", wide[every_second]
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    yield "one byte off", odd
    locked = x.copy()
    locked.flags.writeable = False
    yield "read-only", locked


@on(but="emulated")
def test_case_50_arrays_of_any_strides_equal_their_copies_at_a_step(target: str):
    q, k, v = qkv(2, 3, 3, 5, 5, 8, 8)
    session = session_of(target)
    want = np.asarray(session.step(q=q, k=k, v=v))
    assert_within(want, reference(q, k, v, 8**-0.5)[0].astype(np.float32), "attention")
    forms = [dict(strided(x)) for x in (q, k, v)]
    for name in forms[0]:
        session.step(q=np.zeros_like(q), k=np.zeros_like(k), v=np.zeros_like(v))
        given = {n: form[name] for n, form in zip("qkv", forms, strict=True)}
        np.testing.assert_array_equal(session.step(**given), want, err_msg=name)
    packed = np.concatenate([x.transpose(0, 2, 1, 3).reshape(2, 5, 24) for x in (q, k, v)], 2)
    parts = [packed[..., n * 24 : n * 24 + 24].reshape(2, 5, 3, 8) for n in range(3)]
    assert all(np.shares_memory(p, packed) for p in parts)
    q, k, v = (p.transpose(0, 2, 1, 3) for p in parts)
    session.step(q=np.zeros(SHAPE, np.float32))
    np.testing.assert_array_equal(session.step(q=q, k=k, v=v), want, err_msg="one buffer")
    session.close()


@on(but="emulated")
def test_case_50_arrays_of_any_strides_equal_their_copies_at_a_bind_and_as_state(target: str):
    q, k, v = qkv(2, 3, 3, 5, 5, 8, 8)
    want = np.asarray(session_of(target, poot.weight, q=q, k=k, v=v).step())
    forms = [dict(strided(x)) for x in (q, k, v)]
    for name in ("axes (2, 0, 1)", "axis 3 backwards", "every second of axis 2", "one byte off"):
        given = {n: form[name] for n, form in zip("qkv", forms, strict=True)}
        session = session_of(target, poot.weight, **given)
        np.testing.assert_array_equal(session.step(), want, err_msg=name)
        session.close()

    def kept(q: Array, k: Array, v: Array) -> object:
        return attention(q, k, v), (k, v)

    specs = (poot.slot(SHAPE, "f32"), poot.state(SHAPE), poot.state(SHAPE))
    session = compile_on(target, poot.trace(kept, specs)).bind()
    for name, moved in forms[1].items():
        session.state["k"], session.state["v"] = moved, forms[2][name]
        np.testing.assert_array_equal(session.step(q=forms[0][name]), want, err_msg=name)
    session.close()


@on(but="emulated")
def test_case_50_tensors_come_over_dlpack_with_their_strides(target: str):
    """84 x 3 x 3 x 64 permuted (fewer where Python runs it), backwards, expanded."""
    batch = 2 if target in SLOW else 84
    drawn = torch.randn((batch, 3, 3, 64), generator=torch.Generator().manual_seed(0))
    q, k, v = drawn.permute(0, 2, 1, 3), drawn.flip(2).permute(0, 2, 1, 3), drawn * 2
    spec = poot.slot(tuple(q.shape), "f32")
    program = compile_on(target, poot.trace(attention, (spec, spec, spec)))
    session = program.bind()
    copies = {n: x.contiguous().numpy() for n, x in zip("qkv", (q, k, v), strict=True)}
    want = session.step(**copies)
    session.step(q=np.zeros(q.shape, np.float32))
    np.testing.assert_array_equal(session.step(q=q, k=k, v=v), want)
    row = drawn[:, :1]
    one = row.transpose(1, 2)
    wide = {"q": q, "k": row.expand(batch, 3, 3, 64), "v": one.expand(batch, 3, 3, 64)}
    want = session.step(**{n: x.contiguous().numpy() for n, x in wide.items()})
    session.step(k=np.zeros(q.shape, np.float32))
    np.testing.assert_array_equal(session.step(**wide), want)
    session.close()


@on("cpu", "vulkan", "oracle")
def test_case_50_what_cannot_be_read_as_it_is_is_refused_and_the_session_goes_on(target: str):
    q, k, v = qkv(2, 3, 3, 5, 5, 8, 8)
    session = session_of(target) if target != "oracle" else _by_oracle()
    want = session.step(q=q, k=k, v=v)
    refused = {
        "other byte order": q.astype(q.dtype.newbyteorder()),
        "f64": q.astype(np.float64),
        "a tensor of f64": torch.from_numpy(q).double(),
        "a tensor that wants a gradient": torch.from_numpy(q).requires_grad_(),
        "a tensor numpy has no dtype for": torch.from_numpy(q).bfloat16(),
        "another shape": q.transpose(0, 2, 1, 3),
        "objects": q.astype(object),
        "words": "q",
    }
    for what, given in refused.items():
        with pytest.raises(BindError, match="q"):
            session.step(q=given)
        np.testing.assert_array_equal(session.step(), want, err_msg=what)
    flat = array.array("f", q.reshape(-1).tolist())
    shaped = memoryview(flat).cast("B").cast("f", SHAPE)
    np.testing.assert_array_equal(session.step(q=shaped), want)
    np.testing.assert_array_equal(session.step(q=q.tolist()), want)
    session.close()


def _by_oracle() -> Session:
    specs = tuple(poot.slot(SHAPE, "f32") for _ in "qkv")
    return poot.compile(poot.trace(attention, specs), target="oracle").bind()


@on(but="emulated")
def test_case_44_the_stride_of_an_axis_of_one_element_means_nothing(target: str):
    """q [1,1,2,1], k and v [1,1,1,1] with last strides 1, 7 and 0: a Slot at a step each."""

    def single(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=1.0)

    specs = tuple(poot.slot((1, 1, rows, 1), "f32") for rows in (2, 1, 1))
    session = compile_on(target, poot.trace(single, specs)).bind()
    for score in (0.0, 1e4, -1e30):
        for stride in (1, 7, 0):
            held = torch.tensor([1.0, 1.0, score, 2.5 + stride])
            q = held.as_strided((1, 1, 2, 1), (2, 2, 1, stride))
            k = held.as_strided((1, 1, 1, 1), (stride, 3, stride, stride), 2)
            v = held.as_strided((1, 1, 1, 1), (stride, stride, 5, stride), 3)
            for given in ((q, k, v), tuple(odd_strides(x.numpy(), stride) for x in (q, k, v))):
                got = session.step(**dict(zip("qkv", given, strict=True)))
                np.testing.assert_array_equal(got, np.full((1, 1, 2, 1), 2.5 + stride, np.float32))
    session.close()


def odd_strides(x: np.ndarray, stride: int) -> np.ndarray:
    strides = (*x.strides[:3], 4 * stride)
    return np.lib.stride_tricks.as_strided(x, x.shape, strides)
