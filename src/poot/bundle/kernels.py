"""A kernel's signature out of a manifest: what a launch of it takes."""

from __future__ import annotations

from poot.bundle.fields import Fields
from poot.codegen.kir.nodes import ELEMENT_BYTES, Blob, Imm, Kernel, Param, Shared

_DTYPES = tuple(ELEMENT_BYTES)
_MOST_ALIGN = 4096
_MOST_LANES = 1024
_SWIZZLES = ("32B", "64B", "128B")


def parse_kernel(f: Fields) -> Kernel:
    """A kernel without its body. Raises FormatError."""
    kernel = Kernel(
        f.text("name", 200),
        tuple(map(_param, f.objects("params"))),
        tuple(Imm(p.text("name"), p.choice("dtype", ("i32", "u32", "f32"))) for p in
              f.objects("imms")),
        tuple(map(_blob, f.objects("blobs"))),
        tuple(map(_shared, f.objects("shared"))),
        f.integer("threads", 1, _MOST_LANES),
        None if f.is_null("subgroup") else f.integer("subgroup", 1, _MOST_LANES),
        (),
        None if f.is_null("residents") else f.integer("residents", 1, _MOST_LANES),
    )  # fmt: skip
    f.need(kernel.name.isidentifier() and kernel.name.isascii(), "name needs a plain name")
    nbytes = f.integer("shared_nbytes")
    f.need(
        nbytes == kernel.shared_nbytes,
        f"shared_nbytes is {nbytes}, and its arrays take {kernel.shared_nbytes}",
    )
    return kernel


def _param(f: Fields) -> Param:
    return Param(
        f.text("name"),
        f.choice("dtype", _DTYPES),
        f.integer("elems"),
        f.choice("access", ("r", "w", "rw")),
        f.integer("align", 1, _MOST_ALIGN),
    )


def _blob(f: Fields) -> Blob:
    return Blob(
        f.text("name"),
        f.integer("nbytes", 1, 4096),
        f.integer("align", 1, _MOST_ALIGN),
        f.choice("dtype", _DTYPES),
        f.integers("box", 1, 1 << 16),
        None if f.is_null("swizzle") else f.choice("swizzle", _SWIZZLES),
    )


def _shared(f: Fields) -> Shared:
    return Shared(
        f.text("name"),
        f.choice("dtype", (*_DTYPES, "mbar")),
        f.integer("elems", 0, 1 << 40),
        f.integer("align", 1, _MOST_ALIGN),
    )
