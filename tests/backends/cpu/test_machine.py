"""This machine as numbers, and others from what their files say."""

from __future__ import annotations

import os
from pathlib import Path

from poot.backends.cpu.machine import (
    arch,
    cache_sizes,
    cores,
    description,
    lacking,
    limits,
    mappings,
    memory_nbytes,
    threads,
    vector_lanes,
)

AVX512 = dict.fromkeys(("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2"), True)


def test_the_widest_vector_with_masks_or_blends_counts():
    assert vector_lanes(AVX512) == 16
    assert vector_lanes(AVX512 | {"avx512vl": False}) == 8
    assert vector_lanes({"avx2": True}) == 8
    assert vector_lanes({"neon": True}) == 4


def test_arch_says_what_is_there_and_what_is_not():
    assert arch("znver4", {"avx2": True, "avx512f": False, "sgx": True}) == (
        "znver4,+avx2,-avx512f"
    )


def test_a_processor_without_avx2_is_refused_by_what_it_lacks():
    assert lacking({"avx2": True, "fma": True, "f16c": True}) == ""
    assert "avx2, f16c" in lacking({"avx2": False, "fma": True, "f16c": False})
    assert lacking({"neon": True}) == ""


def test_caches_are_read_by_level_and_guessed_where_the_system_is_silent(tmp_path: Path):
    rows = (("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2M"))
    for n, (kind, level, size) in enumerate(rows):
        (tmp_path / f"index{n}").mkdir()
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (tmp_path / f"index{n}" / name).write_text(text + "\n")
    assert cache_sizes(tmp_path) == (48 << 10, 2 << 20, 8 << 20)
    assert cache_sizes(tmp_path / "none") == (32 << 10, 512 << 10, 8 << 20)


def test_a_control_groups_quota_bounds_the_cores(tmp_path: Path):
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    assert cores(quota) == min(2, cores(tmp_path / "none"))
    quota.write_text("50000 100000\n")
    assert cores(quota) == 1
    quota.write_text("max 100000\n")
    assert cores(quota) == cores(tmp_path / "none")


def test_cores_are_those_the_process_may_use(tmp_path: Path):
    has_mask = hasattr(os, "sched_getaffinity")
    want = len(os.sched_getaffinity(0)) if has_mask else os.cpu_count()
    assert cores(tmp_path / "none") == want


def test_threads_follow_the_knob(monkeypatch):
    monkeypatch.setenv("POOT_THREADS", "3")
    assert threads() == 3
    assert limits().cores == 3
    monkeypatch.delenv("POOT_THREADS")
    assert threads() == cores()


def test_files_that_are_not_there_leave_a_name_and_a_size(tmp_path: Path):
    assert description(tmp_path / "none") or description()
    assert memory_nbytes(tmp_path / "none") > 0
    (tmp_path / "mem").write_text("MemFree: 1 kB\nMemTotal: 2048 kB\n")
    assert memory_nbytes(tmp_path / "mem") == 2 << 20
    (tmp_path / "cpu").write_text("vendor: x\nmodel name : A Processor\n")
    assert description(tmp_path / "cpu") == "A Processor"


def test_mappings_are_counted_where_they_are_limited(tmp_path: Path):
    held, most = tmp_path / "maps", tmp_path / "most"
    held.write_text("1000-2000 r--p\n2000-3000 rw-p\n")
    assert mappings(held, most) is None
    most.write_text("65530\n")
    assert mappings(held, most) == (2, 65530)
