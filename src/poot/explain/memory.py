"""The arena over an entry point's steps: which value holds which bytes from when to when."""

from __future__ import annotations

from dataclasses import dataclass

from poot.explain.markup import size, tag, text
from poot.planner.plan import EntryPlan, Place, Step
from poot.program import MemoryReport

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1080, 300, 84, 24
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes [offset, offset + nbytes) of the arena, from the step that writes them to the last that
    reads them."""

    name: str
    kind: str
    offset: int
    nbytes: int
    first: int
    last: int
    op: str
    loc: str


def _places(step: Step) -> list[tuple[Place, str]]:
    made = [(p, kind_of(step)) for p in step.outs]
    return [*made, *((p, "scratch") for p in step.scratch)]


def kind_of(step: Step) -> str:
    """A step's colour: by what its request is built round."""
    anchor = step.request.anchor
    if anchor == "attention":
        return "attention"
    return "product" if anchor == "matmul" else "other"


def held(entry: EntryPlan) -> list[Held]:
    """Every value of the arena with its life, in order of birth."""
    alive: dict[tuple[str, int], Held] = {}
    done: list[Held] = []
    for n, step in enumerate(entry.steps):
        for place in step.ins:
            got = alive.get((place.name, place.offset))
            if got is not None:
                alive[place.name, place.offset] = _until(got, n)
        for place, kind in _places(step):
            if place.space != "arena":
                continue
            key = (place.name, place.offset)
            before = alive.get(key)
            if before is not None and kind != "scratch":
                alive[key] = _until(before, n)
                continue
            if before is not None:
                done.append(before)
            alive[key] = Held(place.name, kind, place.offset, place.nbytes, n, n, step.op, step.loc)
    return sorted([*done, *alive.values()], key=lambda h: (h.first, h.offset))


def _until(value: Held, step: int) -> Held:
    return Held(
        value.name, value.kind, value.offset, value.nbytes, value.first, step, value.op, value.loc
    )


def arena(entry: EntryPlan, nbytes: int) -> str:
    """The memory map: steps to the right, bytes upward, one box a value."""
    values = held(entry)
    if not values:
        return tag("p", "This entry point keeps nothing in the arena.")
    top = max(v.offset + v.nbytes for v in values)
    words = f"{size(top)} used of the {size(nbytes)} that all entry points share"
    wide = (_WIDTH - _LEFT) / len(entry.steps)
    scale = (_HEIGHT - _BOTTOM - 10) / top
    floor = _HEIGHT - _BOTTOM
    drawn: list[str] = []
    for tick in range(_TICKS + 1):
        at = top * tick // _TICKS
        y = f"{floor - at * scale:.1f}"
        drawn.append(tag("line", x1=_LEFT, x2=_WIDTH, y1=y, y2=y, class_="grid"))
        drawn.append(tag("text", text(size(at)), x=_LEFT - 6, y=y, text_anchor="end"))
    for value in values:
        steps = f"steps {value.first} to {value.last}" if value.last > value.first else (
            f"step {value.first}"
        )  # fmt: skip
        what = f"{value.name}: {size(value.nbytes)} at {value.offset}, {steps}, {value.op}"
        title = tag("title", text(f"{what}  {value.loc}".rstrip()))
        tall = max(0.75, value.nbytes * scale)
        drawn.append(
            tag(
                "rect",
                title,
                x=f"{_LEFT + value.first * wide:.2f}",
                width=f"{max(0.5, (value.last - value.first + 1) * wide - 0.3):.2f}",
                y=f"{floor - value.offset * scale - tall:.2f}",
                height=f"{tall:.2f}",
                class_=f"held {value.kind}",
            )
        )
    for tick in range(_TICKS + 1):
        step = (len(entry.steps) - 1) * tick // _TICKS
        x = f"{_LEFT + (step + 0.5) * wide:.1f}"
        side = ("start", *["middle"] * (_TICKS - 1), "end")[tick]
        drawn.append(tag("text", text(f"step {step}"), x=x, y=_HEIGHT - 6, text_anchor=side))
    picture = tag(
        "svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", width="100%", class_="arena", role="img"
    )
    keys = "".join(
        tag("span", tag("i", class_=kind), text(kind), class_="key")
        for kind in ("attention", "product", "other", "scratch")
    )
    return tag("p", text(words)) + tag("figure", picture, tag("figcaption", keys))


def spaces(memory: MemoryReport) -> str:
    """What a session takes, space by space, as one bar and a list."""
    whole = max(1, memory.nbytes)
    boxes = "".join(
        tag("i", title=f"{name}: {size(n)}", class_=f"c{k}", style=f"width:{100 * n / whole:.3f}%")
        for k, (name, n) in enumerate(memory.spaces)
        if n
    )
    keys = "".join(
        tag("span", tag("i", class_=f"c{k}"), text(f"{name} {size(n)}"), class_="key")
        for k, (name, n) in enumerate(memory.spaces)
    )
    verdict = "fits" if memory.fits else "does not fit"
    words = f"{size(memory.nbytes)} in all; {verdict} in {size(memory.budget)}"
    return tag("p", text(words)) + tag("div", boxes, class_="bar") + tag("p", keys)
