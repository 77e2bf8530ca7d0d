"""A graph as text, and the text as a graph: `parse(show(g)) == g`, and the same bytes on every run.

    in v0: f32[2,3]                                a user slot named "v0" without a range
    weight v1: f32[3,4] "w.layers.0.q"
    state v2: f32[8,4] "kv.0" -> v9                the value that the next step starts with
    slot v3: i32[] "pos" kind=pos range=(0, 64)
    constant v4: f32[2] "table" 0x0000803f00000040
    v5: f32[2,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
    v6: f32[2,1], v7: i32[2,1] = topk(v5) k=1
    v8: f32[2] = region(v5) anchor=none body={
      ...
    } updates=()
    validate v10
    out v6, v7

State pairs that are not in the order of the inputs stand in a line of their own, `states v2 -> v9`.
An attribute is an int, a float, True, False, None, a string (bare where it is a word), a tuple or
a graph in braces. Indentation, empty lines and `# comments` have no meaning, but the comment after
an eqn is its location where it ends in a line number.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import cast

from poot.errors import TypeRuleError, VerifyError
from poot.ir.build import make_eqn
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Eqn, Graph, Input, Slot, State, Storage, TensorType, Var, Weight
from poot.ir.tokens import Cursor, Token

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED_VALUES: dict[str, object] = {"True": True, "False": False, "None": None}
_NOT_BARE = frozenset((*_NAMED_VALUES, "inf", "nan"))
_VAR = re.compile(r"v(0|[1-9]\d{0,17})")
_LOC = re.compile(r".*:\d+")
_DEEPEST = 32


def show(graph: Graph, *, loc: bool = False) -> str:
    """The graph's text, each line ended. With loc, `# file:line` follows an eqn that has one.
    Raises VerifyError on what is no graph."""
    if not isinstance(cast("object", graph), Graph):  # it comes from the user
        raise VerifyError(f"show needs a Graph: got {type(graph).__name__}")
    if not isinstance(cast("object", loc), bool):
        raise VerifyError(f"show needs True or False for loc: got {type(loc).__name__}")
    return "".join(f"{line}\n" for line in _graph_lines(graph, "", loc))


def show_eqn(eqn: Eqn) -> str:
    """One eqn's text, in several lines where it holds a graph."""
    return _eqn(eqn, "", False)


def show_value(value: object) -> str:
    """An attribute's text. Raises VerifyError for what has none."""
    return _value(value, "", False)


def _graph_lines(graph: Graph, indent: str, loc: bool) -> list[str]:
    held = [i.var for i in graph.inputs if isinstance(i.storage, State)]
    after = dict(graph.states)
    in_order = tuple((v, after[v]) for v in held if v in after) == graph.states
    lines = [_input(i, after.get(i.var) if in_order else None) for i in graph.inputs]
    lines += [_eqn(e, indent, loc) for e in graph.eqns]
    if not in_order:
        lines.append("states " + ", ".join(f"{a} -> {b}" for a, b in graph.states))
    if graph.validations:
        lines.append("validate " + ", ".join(map(str, graph.validations)))
    lines.append(" ".join(("out", ", ".join(map(str, graph.outputs)))).rstrip())
    return [indent + line for line in lines]


def _input(i: Input, after: Var | None) -> str:
    typed = f"{i.var}: {i.var.type}"
    match i.storage:
        case Slot("user", None) if i.name == str(i.var):
            return f"in {typed}"
        case Slot(kind, limits):
            ranged = "" if limits is None else f" range={limits}"
            return f"slot {typed} {json.dumps(i.name)} kind={show_value(kind)}{ranged}"
        case Const(data):
            return f"constant {typed} {json.dumps(i.name)} 0x{data.hex()}"
        case Weight():
            return f"weight {typed} {json.dumps(i.name)}"
        case State():
            arrow = "" if after is None else f" -> {after}"
            return f"state {typed} {json.dumps(i.name)}{arrow}"


def _eqn(eqn: Eqn, indent: str, loc: bool) -> str:
    outs = ", ".join(f"{v}: {v.type}" for v in eqn.outs)
    ins = ", ".join(map(str, eqn.ins))
    attrs = "".join(f" {key}={_value(value, indent, loc)}" for key, value in eqn.attrs)
    at = f"  # {eqn.loc}" if loc and eqn.loc else ""
    return f"{outs} = {eqn.op}({ins}){attrs}{at}"


def _value(value: object, indent: str, loc: bool) -> str:
    match value:
        case None | bool() | int():
            return str(value)
        case float():
            return repr(value)
        case str():
            bare = _WORD.fullmatch(value) and value not in _NOT_BARE
            return value if bare else json.dumps(value)
        case Graph():
            lines = _graph_lines(value, indent + "  ", loc)
            return "\n".join(("{", *lines, indent + "}"))
        case tuple():
            items = cast("tuple[object, ...]", value)  # a bare tuple() pattern leaves it unknown
            inside = ", ".join(_value(v, indent, loc) for v in items)
            return f"({inside},)" if len(items) == 1 else f"({inside})"
        case _:
            raise VerifyError(f"an attribute needs a value that has a text: {value!r}")


def parse(text: str) -> Graph:
    """The graph of a text. Runs every typing rule and compares with the types written.

    Raises ParseError with the line's number, what was expected, what stood there, and the line."""
    parser = _Parser(Cursor(text))
    graph = parser.graph(0)
    if parser.cursor.here.kind != "end":
        parser.cursor.fail("nothing after `out`")
    return graph


def parse_value(text: str) -> object:
    """The attribute that `show_value` wrote. Raises ParseError."""
    parser = _Parser(Cursor(text))
    value = parser.value(0)
    parser.cursor.take("end", "nothing more")
    return value


class _Scope:
    """What one graph's text has said so far."""

    def __init__(self) -> None:
        self.vars: dict[int, Var] = {}
        self.lines: dict[int, int] = {}
        self.names: set[str] = set()
        self.inputs: list[Input] = []
        self.eqns: list[Eqn] = []
        self.states: list[tuple[Var, Token]] = []
        self.validations: list[Var] = []


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def graph(self, depth: int) -> Graph:
        """Statements up to and with `out`."""
        cursor, scope = self.cursor, _Scope()
        if depth > _DEEPEST:
            cursor.broken(f"a graph more than {_DEEPEST} deep", cursor.here.line)
        cursor.skip_lines()
        while True:
            word = cursor.take("word", "a statement")
            if word.text == "out":
                outputs = self._vars(scope)
                cursor.end_line()
                break
            self._statement(word, scope, depth)
        states = tuple((a, self._bound(b, scope)) for a, b in scope.states)
        return Graph(
            tuple(scope.inputs), tuple(scope.eqns), outputs, states, tuple(scope.validations)
        )

    def _statement(self, word: Token, scope: _Scope, depth: int) -> None:
        cursor = self.cursor
        match word.text:
            case "in" | "weight" | "state" | "slot" | "constant":
                self._input(word, scope)
                cursor.end_line()
            case "states":
                self._states(scope)
                cursor.end_line()
            case "validate":
                scope.validations += self._vars(scope)
                cursor.end_line()
            case _ if _VAR.fullmatch(word.text):
                eqn = self._eqn(word, scope, depth)
                comment = cursor.end_line()
                scope.eqns.append(replace(eqn, loc=comment) if _LOC.fullmatch(comment) else eqn)
            case _:
                cursor.fail("in, weight, state, slot, constant, v<n>, validate or out", word)

    def _id(self, token: Token) -> int:
        found = _VAR.fullmatch(token.text)
        if token.kind != "word" or found is None:
            self.cursor.fail("a value v<n>", token)
        return int(found.group(1))

    def _bound(self, token: Token, scope: _Scope) -> Var:
        var = scope.vars.get(self._id(token))
        if var is None:
            self.cursor.broken(f"expected a value bound above, found {token.text}", token.line)
        return var

    def _bind(self, token: Token, type: TensorType, scope: _Scope) -> Var:
        id = self._id(token)
        if id in scope.vars:
            before = scope.lines[id]
            self.cursor.broken(f"{token.text} is bound already, in line {before}", token.line)
        scope.vars[id] = Var(id, type)
        scope.lines[id] = token.line
        return scope.vars[id]

    def _vars(self, scope: _Scope) -> tuple[Var, ...]:
        """Values with commas between, or none."""
        cursor, found = self.cursor, list[Var]()
        while cursor.here.kind == "word":
            found.append(self._bound(cursor.next(), scope))
            if not cursor.has_mark(","):
                break
        return tuple(found)

    def _type(self) -> TensorType:
        cursor = self.cursor
        dtype = cursor.take("word", "a dtype")
        if dtype.text not in DTYPES:
            cursor.fail(f"a dtype ({', '.join(DTYPES)})", dtype)
        cursor.mark("[")
        shape: list[int] = []
        while not cursor.has_mark("]"):
            if shape:
                cursor.mark(",")
            extent = cursor.take("int", "an extent")
            if extent.text.startswith("-"):
                cursor.fail("an extent of 0 or more", extent)
            shape.append(int(extent.text))
        return TensorType(dtype.text, tuple(shape))

    def _input(self, word: Token, scope: _Scope) -> None:
        cursor = self.cursor
        token = cursor.take("word", "a value v<n>")
        cursor.mark(":")
        var = self._bind(token, self._type(), scope)
        name = str(var) if word.text == "in" else self._string(cursor.take("string", "a name"))
        if name in scope.names:
            cursor.broken(f"there is an input {name!r} already", word.line)
        scope.names.add(name)
        storage: Storage
        match word.text:
            case "in":
                storage = Slot()
            case "weight":
                storage = Weight()
            case "state":
                storage = State()
                if cursor.has_mark("->"):
                    scope.states.append((var, cursor.next()))
            case "constant":
                storage = Const(self._data(var.type))
            case _:
                storage = self._slot()
        scope.inputs.append(Input(var, name, storage))

    def _slot(self) -> Slot:
        cursor = self.cursor
        kind, limits = "user", None
        while cursor.here.kind == "word":
            key = cursor.next()
            cursor.mark("=")
            value = self.value(0)
            match key.text, value:
                case "kind", str():
                    kind = value
                case "range", (int(lo), int(hi)):
                    limits = (lo, hi)
                case _:
                    cursor.fail("kind=<word> or range=(<lo>, <hi>)", key)
        return Slot(kind, limits)

    def _data(self, type: TensorType) -> bytes:
        token = self.cursor.take("hex", "the bytes as 0x<hex>")
        nbytes = type.elems * DTYPES[type.dtype].numpy.itemsize
        if len(token.text) - 2 != 2 * nbytes:
            self.cursor.broken(f"expected {nbytes} bytes for {type}", token.line)
        return bytes.fromhex(token.text[2:])

    def _states(self, scope: _Scope) -> None:
        cursor = self.cursor
        while cursor.here.kind == "word":
            before = self._bound(cursor.next(), scope)
            cursor.mark("->")
            scope.states.append((before, cursor.next()))
            if not cursor.has_mark(","):
                break

    def _eqn(self, first: Token, scope: _Scope, depth: int) -> Eqn:
        cursor = self.cursor
        outs: list[tuple[Token, TensorType]] = []
        token = first
        while True:
            cursor.mark(":")
            outs.append((token, self._type()))
            if not cursor.has_mark(","):
                break
            token = cursor.take("word", "a value v<n>")
        cursor.mark("=")
        op = cursor.take("word", "an op")
        cursor.mark("(")
        ins = self._vars(scope)
        cursor.mark(")")
        attrs: dict[str, object] = {}
        while cursor.here.kind == "word":
            key = cursor.next()
            cursor.mark("=")
            if key.text in attrs:
                cursor.fail("each attribute once", key)
            attrs[key.text] = self.value(depth)
        return self._typed(op, ins, attrs, outs, scope)

    def _typed(
        self,
        op: Token,
        ins: tuple[Var, ...],
        attrs: dict[str, object],
        outs: list[tuple[Token, TensorType]],
        scope: _Scope,
    ) -> Eqn:
        try:
            eqn = make_eqn(op.text, ins, 0, attrs)
        except TypeRuleError as e:
            self.cursor.broken(e.message, op.line)
        if len(eqn.outs) != len(outs):
            self.cursor.broken(f"{op.text} has {len(eqn.outs)} outs, not {len(outs)}", op.line)
        for (token, written), ruled in zip(outs, eqn.outs, strict=True):
            if written != ruled.type:
                what = f"{token.text} is {ruled.type} by the rule of {op.text}, not {written}"
                self.cursor.broken(what, token.line)
        return replace(eqn, outs=tuple(self._bind(t, type, scope) for t, type in outs))

    def _string(self, token: Token) -> str:
        try:
            found = json.loads(token.text)
        except json.JSONDecodeError:
            self.cursor.fail("a string with JSON's escapes", token)
        assert isinstance(found, str)
        return found

    def value(self, depth: int) -> object:
        cursor = self.cursor
        token = cursor.next()
        match token.kind, token.text:
            case "int", text:
                return int(text)
            case "float", text:
                value = float(text)
                return math.nan if math.isnan(value) else value
            case "word", text:
                return _NAMED_VALUES.get(text, text)
            case "string", _:
                return self._string(token)
            case "mark", "(":
                return self._tuple(depth + 1)
            case "mark", "{":
                graph = self.graph(depth + 1)
                cursor.mark("}")
                return graph
            case _:
                cursor.fail("a value", token)

    def _tuple(self, depth: int) -> tuple[object, ...]:
        cursor, found = self.cursor, list[object]()
        if depth > _DEEPEST:
            cursor.broken(f"a tuple more than {_DEEPEST} deep", cursor.here.line)
        cursor.skip_lines()
        while not cursor.has_mark(")"):
            if found:
                cursor.mark(",")
                cursor.skip_lines()
                if cursor.has_mark(")"):
                    break
            found.append(self.value(depth))
            cursor.skip_lines()
        return tuple(found)
