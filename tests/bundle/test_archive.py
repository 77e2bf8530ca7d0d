"""The zip of a bundle: read by any zip tool, and reads nothing but itself."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.bundle.archive import is_member_name, pack_archive, unpack_archive
from poot.errors import FormatError

pytestmark = pytest.mark.quick
MEMBERS = {"manifest.json": b"{}", "kernels/0.k.o": b"\x7fELF" * 5, "consts/consts.bin": b""}


def refusal(data: bytes) -> str:
    with pytest.raises(FormatError) as e:
        unpack_archive(data, "x.poot")
    assert e.value.message.startswith("x.poot: ")
    return e.value.message


def zipped(*rows: tuple[str, bytes], kind: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as z:
        for name, data in rows:
            z.writestr(zipfile.ZipInfo(name), data, compress_type=kind)
        z.comment = comment
    return out.getvalue()


def test_what_is_packed_is_unpacked_and_read_by_other_tools():
    data = pack_archive(MEMBERS)
    assert {n: bytes(m) for n, m in unpack_archive(data, "x").items()} == MEMBERS
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        assert {n: z.read(n) for n in z.namelist()} == MEMBERS
    assert pack_archive(MEMBERS) == data


def test_no_members_are_an_archive():
    assert unpack_archive(pack_archive({}), "x") == {}


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/b.o", "kernels/../x", "kernels/", "", "a\\b", ".x", "kernels//x",
     "é.o", "kernels/a/b", "C:x", "x" * 121, "a\n"],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name):
    assert not is_member_name(name)
    assert "no name of a member" in refusal(zipped((name, b"x"))) or not name


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_stands_twice_is_refused():
    assert "twice" in refusal(zipped(("a", b"1"), ("a", b"2")))


def test_compressed_members_are_refused_unread():
    bomb = zipped(("manifest.json", b"\0" * (1 << 24)), kind=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 16
    assert "compressed" in refusal(bomb)


def test_a_comment_and_bytes_before_or_after_are_refused():
    plain = pack_archive(MEMBERS)
    assert "comment" in refusal(zipped(("a", b"x"), comment=b"hi"))
    assert refusal(b"x" + plain)
    assert refusal(plain + b"x")
    assert "directory" in refusal(plain[:-1] + b"\1") or refusal(plain[:-1] + b"\1")


def test_a_changed_byte_of_a_member_is_found():
    data = bytearray(pack_archive(MEMBERS))
    data[data.index(b"\x7fELF") + 2] ^= 1
    assert "damaged" in refusal(bytes(data))


@pytest.mark.parametrize("length", [0, 1, 21, 22, 60])
def test_a_file_cut_short_is_refused(length):
    assert refusal(pack_archive(MEMBERS)[:length])


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed_but_for_dates_and_marks(at, flip):
    plain = pack_archive(MEMBERS)
    data = bytearray(plain)
    data[at % len(data)] ^= flip
    try:
        got = unpack_archive(bytes(data), "x")
    except FormatError:
        return
    assert {n: bytes(m) for n, m in got.items()} == MEMBERS


@given(st.binary(max_size=300))
def test_random_bytes_are_no_archive(data):
    with pytest.raises(FormatError):
        unpack_archive(data, "x")
