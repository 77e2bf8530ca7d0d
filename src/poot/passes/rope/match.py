"""Rotary position embedding becomes one `rope` eqn.

before   concat(a * c - b * s, b * c + a * s)   a, b the halves of x     after   rope(x, c, s)
         the same of even and odd elements, put back in turn             rope(x, c, s) interleaved
         x * cos + concat(-b, a) * sin          cos = (c, c), sin = (s, s)
         any of these beside the rest of x      (partial width)
Needs canonical form. Leaves a rotation whose parts can't be proved to be that as it is. Exact in
f32; 16-bit rotations get f32 intermediates. A rotation the other way takes -s.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.errors import TypeRuleError
from poot.ir.attrs import bool_attr, int_attr, ints_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.rules.elementwise import broadcast_shapes
from poot.limits import DeviceLimits
from poot.passes.engine import Outcome, Scope, rewrite, rule
from poot.passes.rope.halves import half_of
from poot.passes.rope.pieces import Piece, Term, piece_of, terms

HALVES, PAIRS = "halves", "pairs"


@dataclass(frozen=True, slots=True)
class Turn:
    """Two pieces of x turned into (a c - b s, b c + a s); the other way where `is_back`."""

    a: Piece
    b: Piece
    cos: Var
    sin: Var
    is_back: bool

    @property
    def layout(self) -> str | None:
        """Halves where a and b are neighbours, pairs where their elements take turns."""
        if self.a.x != self.b.x or self.a.count != self.b.count:
            return None
        steps, gap = (self.a.step, self.b.step), self.b.start - self.a.start
        if steps == (1, 1) and gap == self.a.count:
            return HALVES
        return PAIRS if steps == (2, 2) and gap == 1 else None

    def lies_in(self, layout: str) -> bool:
        """Whether that is the layout; of a single pair it is either."""
        return self.layout == layout or (self.layout is not None and self.a.count == 1)


def fuse_rope(graph: Graph, limits: DeviceLimits) -> Outcome:
    """The graph with every rotation that is proved to be one as one eqn; the device does not
    matter."""
    return rewrite(graph, (halves_joined, pairs_joined, by_rotated_copy, with_the_rest))


def find_turn(scope: Scope, first: Var, second: Var) -> Turn | None:
    """first = a c - b s and second = b c + a s, the factors in any order."""
    one, two = terms(scope, first), terms(scope, second)
    if len(one) != 2 or len(two) != 2 or any(len(t.factors) != 2 for t in (*one, *two)):
        return None
    for with_cos, with_sin in (one, one[::-1]):
        for a, cos in _ways(scope, with_cos):
            for b, sin in _ways(scope, with_sin):
                if with_cos.sign != 1:
                    continue
                turn = Turn(a, b, cos, sin, with_sin.sign == 1)
                if turn.layout is not None and _completes(scope, turn, two):
                    return turn
    return None


def _ways(scope: Scope, term: Term) -> list[tuple[Piece, Var]]:
    """(a piece, the other factor), for each factor that is a piece."""
    x, y = term.factors
    found = [(piece_of(scope, p), other) for p, other in ((x, y), (y, x))]
    return [(p, other) for p, other in found if p is not None]


def _completes(scope: Scope, turn: Turn, second: tuple[Term, ...]) -> bool:
    """Whether the second sum is b c + a s (b c - a s on the way back)."""
    sign = -1 if turn.is_back else 1
    for with_cos, with_sin in (second, second[::-1]):
        is_cos = (turn.b, turn.cos) in _ways(scope, with_cos) and with_cos.sign == 1
        if is_cos and (turn.a, turn.sin) in _ways(scope, with_sin) and with_sin.sign == sign:
            return True
    return False


def _turned(scope: Scope, turn: Turn, width: int) -> Var:
    """The rope eqn over `width` elements of x from the first piece on. Raises TypeRuleError."""
    x = _part(scope, turn.a.x, turn.a.start, width)
    cos, sin = (_angles(scope, t, turn.a.count) for t in (turn.cos, turn.sin))
    if turn.is_back:
        sin = scope.emit("neg", sin)
    if cos.type != sin.type:
        shape = broadcast_shapes(cos.type.shape, sin.type.shape)
        cos, sin = (
            t if t.type.shape == shape else scope.emit("broadcast", t, shape=shape)
            for t in (cos, sin)
        )
    return scope.emit("rope", x, cos, sin, interleaved=turn.layout == PAIRS)


def _angles(scope: Scope, t: Var, count: int) -> Var:
    """cos or sin as [..., count], a trailing axis of extent 1 taken off."""
    shape = t.type.shape
    if len(shape) >= 2 and shape[-1] == 1 and shape[-2] == count:
        return scope.emit("reshape", t, shape=shape[:-1])
    if shape and shape[-1] == count:
        return t
    raise TypeRuleError(f"rope needs {count} angles: {t.type}")


def _part(scope: Scope, x: Var, start: int, width: int) -> Var:
    """Elements start .. start + width of the last axis; x itself where that is all."""
    shape = x.type.shape
    if (start, width) == (0, shape[-1]):
        return x
    rank = len(shape)
    return scope.emit(
        "slice",
        x,
        start=(*(0,) * (rank - 1), start),
        stop=(*shape[:-1], start + width),
        step=(1,) * rank,
    )


@rule("concat")
def halves_joined(eqn: Eqn, scope: Scope) -> Var | None:
    """Two neighbours in a concat that are the halves of a rotation; the rest of x after them goes
    in."""
    axis, ins = int_attr(eqn, "axis"), eqn.ins
    if axis != len(eqn.out.type.shape) - 1:
        return None
    for n in range(len(ins) - 1):
        if not all(scope.is_read_once(v) for v in ins[n : n + 2]):
            continue
        turn = find_turn(scope, *ins[n : n + 2])
        if turn is None or not turn.lies_in(HALVES):
            continue
        width, after = 2 * turn.a.count, ins[n + 2 :]
        if after and piece_of(scope, after[0]) == _rest(turn, after[0]):
            width, after = width + after[0].type.shape[-1], after[1:]
        got = _emitted(scope, turn, width, (*ins[n].type.shape[:-1], width))
        if got is not None:
            parts = (*ins[:n], got, *after)
            return parts[0] if len(parts) == 1 else scope.emit("concat", *parts, axis=axis)
    return None


def _rest(turn: Turn, v: Var) -> Piece:
    """What v is if it is the part of x after the turned one."""
    return Piece(turn.a.x, turn.a.start + 2 * turn.a.count, 1, v.type.shape[-1])


def _emitted(scope: Scope, turn: Turn, width: int, shape: tuple[int, ...]) -> Var | None:
    """The rope eqn, if it types and has that shape; else the reason is noted."""
    try:
        got = _turned(scope, turn, width)
    except TypeRuleError as e:
        scope.decline(f"not fused: {e.message}")
        return None
    if got.type.shape != shape:
        scope.decline(f"not fused: the angles stretch x {turn.a.x.type} to {shape}")
        return None
    scope.did(f"rope {turn.layout} {2 * turn.a.count} of {got.type}")
    return got


@rule("reshape")
def pairs_joined(eqn: Eqn, scope: Scope) -> Var | None:
    """Turned pairs, stacked along a last axis of 2 and flattened."""
    pair = _stacked(scope, eqn)
    turn = find_turn(scope, *pair) if pair is not None else None
    if turn is None or not turn.lies_in(PAIRS):
        return None
    return _emitted(scope, turn, 2 * turn.a.count, eqn.out.type.shape)


def _stacked(scope: Scope, eqn: Eqn) -> tuple[Var, Var] | None:
    """(a, b), each [..., n] or [..., n, 1], where eqn flattens their stack along a last axis."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op != "concat" or len(inner.ins) != 2:
        return None
    *lead, n, two = inner.out.type.shape if len(inner.out.type.shape) >= 2 else (0, 0, 0)
    if two != 2 or int_attr(inner, "axis") != len(inner.out.type.shape) - 1:
        return None
    if eqn.out.type.shape != (*lead, 2 * n):
        return None
    a, b = (_unstacked(scope, v) for v in inner.ins)
    return a, b


def _unstacked(scope: Scope, v: Var) -> Var:
    """v before a reshape that only gave it a last axis of extent 1."""
    eqn = scope.producer(v)
    if eqn is None or eqn.op != "reshape" or v.type.shape != (*eqn.ins[0].type.shape, 1):
        return v
    return eqn.ins[0]


@rule("add", "sub")
def by_rotated_copy(eqn: Eqn, scope: Scope) -> Var | None:
    """x * cos + (-b, a) * sin, where cos and sin hold each angle twice."""
    sides = [scope.producer(v) for v in eqn.ins]
    if any(s is None or s.op != "mul" for s in sides):
        return None
    for copy_side in (1, 0):
        plain, turned = sides[1 - copy_side], sides[copy_side]
        if plain is None or turned is None or (eqn.op == "sub" and copy_side == 0):
            continue
        for rotated, sin in (turned.ins, turned.ins[::-1]):
            found = _rotated_copy(scope, rotated)
            if found is None or found[0] not in plain.ins:
                continue
            x, interleaved, sign = found
            cos = plain.ins[1] if plain.ins[0] == x else plain.ins[0]
            sign = -sign if eqn.op == "sub" else sign
            return _from_copy(scope, eqn, (x, cos, sin), interleaved, sign < 0)
    return None


def _from_copy(
    scope: Scope, eqn: Eqn, operands: tuple[Var, Var, Var], interleaved: bool, is_back: bool
) -> Var | None:
    x, cos, sin = operands
    half_cos, half_sin = (half_of(scope, t, interleaved) for t in (cos, sin))
    if half_cos is None or half_sin is None:
        name = "cos" if half_cos is None else "sin"
        scope.decline(f"not fused: the two halves of {name} can't be proved equal")
        return None
    half = x.type.shape[-1] // 2
    step, gap = (2, 1) if interleaved else (1, half)
    a, b = Piece(x, 0, step, half), Piece(x, gap, step, half)
    return _emitted(scope, Turn(a, b, half_cos, half_sin, is_back), 2 * half, eqn.out.type.shape)


def _rotated_copy(scope: Scope, v: Var) -> tuple[Var, bool, int] | None:
    """(x, interleaved, sign) where v is (-b, a) of x's pieces; sign -1 for (b, -a)."""
    eqn = scope.producer(v)
    if eqn is None:
        return None
    interleaved = eqn.op == "reshape"
    pair = _stacked(scope, eqn) if interleaved else _two_halves(eqn)
    if pair is None:
        return None
    one, two = (terms(scope, p) for p in pair)
    if len(one) != 1 or len(two) != 1 or len(one[0].factors) != 1 or len(two[0].factors) != 1:
        return None
    b, a = piece_of(scope, one[0].factors[0]), piece_of(scope, two[0].factors[0])
    if a is None or b is None or one[0].sign == two[0].sign:
        return None
    turn = Turn(a, b, v, v, False)
    if not turn.lies_in(PAIRS if interleaved else HALVES) or a.start != 0:
        return None
    whole = a.x.type.shape[-1] == 2 * a.count and a.x.type == v.type
    return (a.x, interleaved, two[0].sign) if whole else None


def _two_halves(eqn: Eqn) -> tuple[Var, Var] | None:
    if eqn.op != "concat" or len(eqn.ins) != 2:
        return None
    if int_attr(eqn, "axis") != len(eqn.out.type.shape) - 1:
        return None
    return eqn.ins[0], eqn.ins[1]


@rule("concat")
def with_the_rest(eqn: Eqn, scope: Scope) -> Var | None:
    """A turned first part of x beside the rest of x is x turned in part."""
    axis, ins = int_attr(eqn, "axis"), eqn.ins
    if axis != len(eqn.out.type.shape) - 1:
        return None
    for n in range(len(ins) - 1):
        turned = scope.producer(ins[n])
        if turned is None or turned.op != "rope" or not scope.is_read_once(ins[n]):
            continue
        x, cos, sin = turned.ins
        part, rest = _slice_of(scope, x), _slice_of(scope, ins[n + 1])
        if part is None or rest is None or part[0] != rest[0] or part[2] != rest[1]:
            continue
        whole = _part(scope, part[0], part[1], rest[2] - part[1])
        got = scope.emit("rope", whole, cos, sin, interleaved=bool_attr(turned, "interleaved"))
        parts = (*ins[:n], got, *ins[n + 2 :])
        return parts[0] if len(parts) == 1 else scope.emit("concat", *parts, axis=axis)
    return None


def _slice_of(scope: Scope, v: Var) -> tuple[Var, int, int] | None:
    """(x, start, stop) where v is that part of x's last axis, and of no other."""
    eqn = scope.producer(v)
    if eqn is None or eqn.op != "slice":
        return None
    x = eqn.ins[0]
    cut = x.type.shape[:-1] != v.type.shape[:-1] or ints_attr(eqn, "step")[-1] != 1
    return None if cut else (x, ints_attr(eqn, "start")[-1], ints_attr(eqn, "stop")[-1])
