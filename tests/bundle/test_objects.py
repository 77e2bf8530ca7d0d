"""Object files of strangers are looked at before LLVM's linker, which ends the process on some."""

from __future__ import annotations

import random
import struct

import pytest

from poot.bundle.objects import check_object
from poot.errors import FormatError
from tests.support.bundles import manifest_of, members, read, resealed, whole

pytestmark = pytest.mark.quick
ROWS = [(members()[k["file"]], k["symbol"], k["file"]) for k in manifest_of(whole())["kernels"]]
# The one with the most constants.
DATA, SYMBOL, NAME = max(ROWS, key=lambda row: len(row[0]))
FIELDS = {"name": (0, "I"), "type": (4, "I"), "flags": (8, "Q"), "address": (16, "Q"),
          "offset": (24, "Q"), "nbytes": (32, "Q"), "link": (40, "I"), "info": (44, "I"),
          "align": (48, "Q"), "each": (56, "Q")}  # fmt: skip
TYPES = {1: "code", 2: "symbols", 3: "strings", 4: "relocations"}


def sections() -> dict[str, int]:
    """Where the header of the first section of each type lies."""
    at, count = struct.unpack_from("<Q", DATA, 40)[0], struct.unpack_from("<H", DATA, 60)[0]
    found: dict[str, int] = {}
    for n in range(count):
        kind = struct.unpack_from("<I", DATA, at + 64 * n + 4)[0]
        found.setdefault(TYPES.get(kind, "none"), at + 64 * n)
    return found


def with_field(section: str, field: str, value: int) -> bytes:
    offset, letter = FIELDS[field]
    made = bytearray(DATA)
    struct.pack_into(f"<{letter}", made, sections()[section] + offset, value)
    return bytes(made)


def test_what_the_compiler_writes_passes():
    for data, symbol, _ in ROWS:
        check_object(data, symbol, "x")


@pytest.mark.parametrize("data", [b"", DATA[:63], DATA[:500], b"\x7fELF" + bytes(200)])
def test_a_file_cut_short_is_refused(data):
    with pytest.raises(FormatError, match="x: is no object file of a kernel"):
        check_object(data, SYMBOL, "x")


@pytest.mark.parametrize(
    "section, field, value",
    [
        (section, field, value)
        for section in ("none", "code", "symbols", "strings", "relocations")
        for field, value in (
            ("type", 99), ("type", 8), ("flags", 0x403), ("flags", 1), ("address", 64),
            ("offset", 1 << 40), ("nbytes", 1 << 62), ("align", 3), ("align", 1 << 20),
            ("name", 1 << 20), ("each", 1000),
        )
    ]
    + [("code", "align", 0), ("strings", "align", 0), ("symbols", "align", 0),
       ("symbols", "each", 8), ("symbols", "link", 99), ("symbols", "info", 0),
       ("relocations", "link", 1), ("relocations", "info", 99), ("relocations", "nbytes", 25),
       ("code", "flags", 4), ("code", "flags", 0)],
)  # fmt: skip
def test_a_header_that_says_what_no_compiler_says_is_refused(section, field, value):
    with pytest.raises(FormatError):
        check_object(with_field(section, field, value), SYMBOL, "x")


@pytest.mark.parametrize("at, value", [(0, 0), (4, 1), (8, 3), (16, 2), (18, 3), (24, 1), (58, 32),
                                       (60, 0), (62, 99)])  # fmt: skip
def test_a_head_that_is_another_is_refused(at, value):
    made = bytearray(DATA)
    made[at] = value
    with pytest.raises(FormatError):
        check_object(bytes(made), SYMBOL, "x")


def test_another_function_and_a_relocation_out_of_its_section_are_refused():
    with pytest.raises(FormatError, match="its function isn't k_other"):
        check_object(DATA, "k_other", "x")
    at = struct.unpack_from("<Q", DATA, sections()["relocations"] + 24)[0]
    for n, letter, value in ((0, "Q", 1 << 40), (8, "I", 9), (12, "I", 10**6), (16, "q", 1 << 40)):
        made = bytearray(DATA)
        struct.pack_into(f"<{letter}", made, at + n, value)
        with pytest.raises(FormatError, match=r"relocation|addend"):
            check_object(bytes(made), SYMBOL, "x")


def test_a_bundle_with_such_a_file_is_refused_when_it_is_read():
    with pytest.raises(FormatError, match=r"kernels\[\d+\]: .*\.o: is no object file of a kernel"):
        read(resealed({NAME: with_field("code", "flags", 3)}))


def test_any_bytes_are_refused_or_pass():
    rng = random.Random(3)
    for _ in range(2000):
        made = bytearray(DATA)
        for _ in range(rng.randint(1, 4)):
            made[rng.randrange(len(made))] = rng.randrange(256)
        try:
            check_object(bytes(made), SYMBOL, "x")
        except FormatError:
            continue
