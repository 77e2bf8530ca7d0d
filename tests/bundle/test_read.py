"""Bundles of strangers: a typed error, whatever the bytes."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.bundle.archive import pack_archive
from poot.bundle.write import EXPLAIN, MANIFEST
from poot.errors import FormatError
from tests.support.bundles import changed, members, program, read, whole

pytestmark = pytest.mark.quick


def refused(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read(data)


def test_a_bundle_holds_what_was_compiled():
    got, made = read(whole()), program()
    assert [c.binary for c in got.codes] == [c.binary for c in made.codes]
    assert (got.key, got.target) == (made.key, "cpu-avx2")
    assert got.digest == hashlib.sha256(whole()).hexdigest()
    assert got.explained == made.explain()


def test_another_version_names_both_sides_and_who_made_it():
    refused(changed(lambda m: m.update(version=2)), "version 2, made by poot .*reads version 1")
    refused(changed(lambda m: m.update(format="zip")), "format 'poot bundle': 'zip'")


def test_files_are_those_that_the_manifest_lists():
    name = next(n for n in members() if n.endswith(".o"))
    other = dict(members()) | {name: b"\x7fELF" + b"\0" * 60}
    refused(pack_archive(other), "bytes, not")
    same = bytearray(members()[name])
    same[100] ^= 1
    refused(pack_archive(dict(members()) | {name: bytes(same)}), "its digest differs")
    refused(pack_archive(dict(members()) | {"kernels/99.x.o": b""}), "listed nowhere")
    fewer = {n: d for n, d in members().items() if n != name}
    refused(pack_archive(fewer), "no member")
    refused(pack_archive({EXPLAIN: b""}), "needs a manifest.json")


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda m: m["kernels"][0].update(file="consts/consts.bin"), "no kernel for llvm"),
        (lambda m: m["kernels"][0].update(file="kernels/9.o"), "no kernel for llvm"),
        (lambda m: m["kernels"][0].update(key="../" * 21 + "x"), "64 hexadecimal"),
        (lambda m: m["files"].append(m["files"][0]), "stands twice"),
        (lambda m: m["files"][0].update(name="../../etc/passwd"), "no member"),
        (lambda m: m.pop("residents"), "needs residents"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(change, why):
    refused(changed(change), why)


def test_an_explanation_may_be_missing():
    fewer = {n: d for n, d in members().items() if n != EXPLAIN}
    assert read(pack_archive(fewer)).explained == ""


def test_huge_numbers_take_no_memory():
    def grow(m):
        for r in m["residents"]:
            r["shape"] = [1 << 40, 1 << 20]
        for k in m["kernels"]:
            k["shared_nbytes"] = 1 << 40

    data = changed(grow)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.text(max_size=12),
    st.sampled_from([0, 1, -1, 4, 63, 64, 65, 1 << 31, 1 << 32, 1 << 62, [], {}, "leaf", "f32"]),
    st.lists(st.integers(-2, 1 << 40), max_size=4),
)  # fmt: skip


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a JSON value."""
    found = [path]
    if isinstance(value, dict):
        for key, child in cast("dict[str, object]", value).items():
            found += places(child, (*path, key))
    elif isinstance(value, list):
        for n, child in enumerate(cast("list[object]", value)):
            found += places(child, (*path, n))
    return found


HEAD = json.loads(members()[MANIFEST])
PLACES = places(HEAD)[1:]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(PLACES) - 1), ODD), min_size=1, max_size=3))
def test_a_manifest_changed_anywhere_is_read_or_refused(edits):
    head = json.loads(members()[MANIFEST])
    for which, value in edits:
        at: object = head
        *path, last = PLACES[which]
        for key in path:
            at = at[key] if isinstance(at, (dict, list)) and _has(at, key) else None
        if isinstance(at, (dict, list)) and _has(at, last):
            at[last] = value
    with suppress(FormatError):
        read(pack_archive({**members(), MANIFEST: json.dumps(head).encode()}))


def _has(at: dict | list, key: str | int) -> bool:
    if isinstance(at, dict):
        return key in at
    return isinstance(key, int) and key < len(at)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_file_changed_anywhere_is_read_or_refused(at, patch, is_cut):
    data = bytearray(whole())
    at %= len(data)
    if is_cut:
        del data[at : at + 1 + len(patch) * 100]
    else:
        data[at : at + len(patch)] = patch
    with suppress(FormatError):
        read(bytes(data))
