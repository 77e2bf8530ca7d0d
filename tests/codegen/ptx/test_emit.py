"""Whole modules: the entry's shape, refusals by number, and the fixed list of requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.ptx.emit import emit_ptx
from poot.errors import BindingLimit, CapabilityError
from tests.support.launch import request_of
from tests.support.ptx_agree import AMPERE, H200, agree, ptx_of
from tests.support.ptxas import assemble
from tests.support.requests import CASES, attention_text


def small(threads: int = 32, subgroup: int | None = None) -> KernelBuilder:
    k = KernelBuilder("small", threads, subgroup)
    k.store(k.param("y", "i32", threads, "w"), k.lane(), k.lane())
    return k


def test_an_entry_takes_buffers_then_immediates_then_blobs():
    k = small()
    k.blob("map", "bf16", (64,))
    k.store("y", 0, k.imm("n"))
    k.param("z", "f32", 4, "r")
    text = ptx_of(k.kernel())
    head = text[text.index(".entry") : text.index("{")]
    order = [
        "small(",
        ".u64 param_y",
        ".u64 param_z",
        ".b32 param_n",
        "b8 param_map[128]",
        ".maxntid 32",
    ]
    places = [head.index(word) for word in order]
    assert places == sorted(places)


@pytest.mark.parametrize("limits", [H200, AMPERE], ids=lambda d: d.arch)
def test_a_module_names_its_target_and_ends_in_a_zero(limits):
    binary, text = emit_ptx(small().kernel(), limits)
    assert text.startswith(f".version 8.0\n.target {limits.arch}\n")
    assert binary == text.encode() + b"\0"
    assert emit(small().kernel(), limits).binary == binary


def test_the_same_kernel_is_the_same_bytes():
    assert emit_ptx(small().kernel(), H200) == emit_ptx(small().kernel(), H200)


def test_immediates_and_grids_arrive():
    k = KernelBuilder("where", 32)
    y = k.param("y", "i32", 32 * 12, "w")
    flat = (k.group_id(2) * k.num_groups(1) + k.group_id(1)) * k.num_groups(0) + k.group_id(0)
    k.store(y, flat * 32 + k.lane(), flat * k.imm("n") + k.cast(k.imm("f", "f32"), "i32"))
    out = agree(k.kernel(), {}, (3, 2, 2), (10, 4.0))["y"]
    np.testing.assert_array_equal(out.reshape(12, 32)[:, 0], np.arange(12) * 10 + 4)


def test_numbers_over_the_devices_are_refused():
    k = small(2048)
    with pytest.raises(CapabilityError, match="kernel small asks 2048 lanes: h200 has 1024"):
        ptx_of(k.kernel())
    k = small()
    k.shared("s", "f32", 60000)
    with pytest.raises(CapabilityError, match="asks 240000 bytes of workgroup memory"):
        ptx_of(k.kernel())
    k = small()
    for n in range(520):
        k.param(f"p{n}", "f32", 1, "r")
    with pytest.raises(BindingLimit, match="kernel small takes 4168 bytes of parameters"):
        ptx_of(k.kernel())
    with pytest.raises(CapabilityError, match="ptx has whole warps of 32"):
        ptx_of(small(64, 64).kernel())
    with pytest.raises(CapabilityError, match="ptx needs an architecture of sm_80"):
        ptx_of(small().kernel(), replace(H200, arch="sm_75"))


@pytest.mark.parametrize("name", CASES)
def test_every_request_assembles_without_a_spill(name):
    for limits in (H200, AMPERE):
        request = CASES[name].request(limits)
        for call in lower(request, limits).calls:
            report = assemble(emit_ptx(call.kernel, limits)[1], limits.arch)
            assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())


# Query rows, keys, more operands by width, what is taken from the device's limits; the schedule on
# sm_90a in bf16, and the schedules that others may get.
FORMS: dict[str, tuple[int, int, dict, dict, str, set[str]]] = {
    "decode": (1, 4096, {}, {}, "grouped", {"grouped", "grouped_split"}),
    "counted": (1, 4096, {}, {"counts_residents": False}, "grouped_split", {"grouped_split"}),
    "shared": (1, 4096, {"k_shared": 16}, {}, "shared_key", {"shared_key"}),
    "prefill": (256, 256, {}, {}, "tiled", {"streaming", "subgroup_tiles"}),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("form", FORMS)
def test_attention_of_every_schedule_and_width_assembles_without_a_spill(form, width, dtype):
    rows, keys, attrs, taken, name, others = FORMS[form]
    shape = {"heads": (8, 2), "rows": rows, "keys": keys, "widths": (width, width)}
    extra = tuple((n, f"{dtype}[2,1,{keys},{last}]") for n, last in attrs.items())
    text = attention_text(dtype, extra=extra, **shape)
    for arch in (H200, AMPERE):
        limits = replace(arch, **taken)
        request = request_of(text, "attention", limits=limits)
        is_first = arch is H200 and dtype == "bf16"
        assert request.schedule.name in ({name} if is_first else others)
        for call in lower(request, limits).calls:
            report = assemble(emit_ptx(call.kernel, limits)[1], limits.arch)
            assert (report.spills, report.stack_nbytes) == (0, 0)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_a_gemv_of_every_width_assembles_without_a_spill(width, dtype):
    text = f"""in v0: {dtype}[1,{width}]
              in v1: {dtype}[{width},512]
              v2: {dtype}[1,512] = matmul(v0, v1)
              out v2"""
    for limits in (H200, AMPERE):
        request = request_of(text, "matmul", limits=limits)
        assert request.schedule.name == "gemv"
        for call in lower(request, limits).calls:
            report = assemble(emit_ptx(call.kernel, limits)[1], limits.arch)
            assert (report.spills, report.stack_nbytes) == (0, 0)
