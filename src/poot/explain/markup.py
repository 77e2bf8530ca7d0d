"""HTML and SVG as text: tags with escaped attributes, and numbers for people."""

from __future__ import annotations

from html import escape

VOID = frozenset(("rect", "line", "path", "circle"))
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def text(value: object) -> str:
    """A value's text with nothing in it that HTML would read as its own."""
    return escape(str(value), quote=True)


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element. What is inside stands as it is (make it by `tag` or `text`); attributes are
    escaped, their `_` is a `-`, a trailing one is dropped (class_), and None leaves one out."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not inside:
        return f"<{name}{named}/>"
    return f"<{name}{named}>{''.join(inside)}</{name}>"


def table(head: tuple[str, ...], rows: list[str], **attributes: object) -> str:
    """A table of ready rows below a head of plain words."""
    top = tag("thead", tag("tr", *(tag("th", text(h)) for h in head)))
    return tag("table", top, tag("tbody", *rows), **attributes)


def row(*cells: str, **attributes: object) -> str:
    """A table's row of cells made by `tag` or `text`."""
    return tag("tr", *(tag("td", cell) for cell in cells), **attributes)


def size(nbytes: int) -> str:
    """Bytes in the unit that leaves a number below 1024."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{nbytes} {_UNITS[0]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
