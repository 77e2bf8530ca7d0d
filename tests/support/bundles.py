"""A small program with all that a bundle holds, and its bundle, whole or changed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

import poot
from poot import ops
from poot.api import Program
from poot.bundle.archive import pack_archive, unpack_archive
from poot.bundle.read import Bundle, read_bundle
from poot.bundle.write import MANIFEST, bundle_members
from poot.ir.graph import Graph
from poot.slots import ForwardSlotMap

CAP, WIDTH, POOL = 8, 16, 32
TABLE = np.linspace(-1, 1, CAP, dtype=np.float32).reshape(CAP, 1)


def step(w, kv, pool, x, pos, at, write, read):
    """A cache, a pool under a write map, a Const, a guard behind a State write, attention."""
    row = ops.linear(x, w["a"])
    kv = ops.dynamic_update_slice(kv, row, pos, axis=0)
    kv = ops.dynamic_update_slice(kv, row * 2, ops.checked(at, 0, CAP), axis=0)
    pool = ops.scatter_update(pool, row, write)
    seen = ops.gather(pool, read.reshape((CAP,)), axis=0)
    heads = (kv * TABLE).reshape((1, 1, CAP, WIDTH))
    out = ops.attention_prefill(heads, heads, seen.reshape((1, 1, CAP, WIDTH)), scale=0.25)
    last = (out.reshape((CAP, WIDTH)) @ w["b"].astype("f32")) + w["c"]
    return {"out": last, "next": ops.minimum(pos + 1, CAP - 1)}, (kv, pool)


def graph() -> Graph:
    weights = {
        "a": poot.weight((WIDTH, WIDTH)),
        "b": poot.weight((WIDTH, 3), "bf16"),
        "c": poot.weight((3,)),
    }

    def whole(w, states, x, pos, at, write, read):
        return step(w, states[0], states[1], x, pos, at, write, read)

    return poot.trace(
        whole,
        (
            weights,
            (poot.state((CAP, WIDTH)), poot.state((POOL, WIDTH))),
            poot.slot((1, WIDTH), "f32"),
            poot.slot((), "i32", kind="pos", range=(0, CAP)),
            poot.slot((), "i32"),
            poot.slot((1,), "i32", kind="write_map", range=(0, POOL)),
            poot.slot((1, CAP), "i32", kind="slot_map", range=(0, POOL)),
        ),
    )


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "w.a": rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32),
        "w.b": rng.normal(0, 0.3, (WIDTH, 3)).astype(ml_dtypes.bfloat16),
        "w.c": rng.normal(0, 0.3, (3,)).astype(np.float32),
    }


def slots(n: int) -> dict[str, object]:
    """What step number n is given: all is right."""
    rng = np.random.default_rng(n)
    return {
        "x": rng.normal(0, 1, (1, WIDTH)).astype(np.float32),
        "pos": n % CAP,
        "at": (3 * n) % CAP,
        "write": ForwardSlotMap(np.array([(5 * n) % POOL]), POOL),
        "read": rng.integers(0, POOL, (1, CAP)),
    }


@functools.cache
def program() -> Program:
    """The program for any processor of the level x86-64-v3."""
    return poot.compile(graph(), "cpu-avx2")


@functools.cache
def members() -> Mapping[str, bytes]:
    return bundle_members(program())


def whole() -> bytes:
    """The bundle's bytes."""
    return pack_archive(members())


Json = dict[str, object]


def manifest_of(data: bytes) -> Json:
    return json.loads(bytes(unpack_archive(data, "a bundle")[MANIFEST]))


def changed(change: Callable[[Json], object]) -> bytes:
    """The bundle with its manifest changed in place by `change`, all else right."""
    head = json.loads(members()[MANIFEST])
    change(head)
    return pack_archive({**members(), MANIFEST: json.dumps(head).encode()})


def resealed(files: Mapping[str, bytes]) -> bytes:
    """The bundle with files replaced, and their sizes and digests in the manifest too."""
    head = json.loads(members()[MANIFEST])
    for row in head["files"]:
        if row["name"] in files:
            data = files[row["name"]]
            row |= {"nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return pack_archive({**members(), **files, MANIFEST: json.dumps(head).encode()})


def read(data: bytes) -> Bundle:
    return read_bundle(data, "x.poot")
