"""Moves: reshapes, transposes and broadcasts merged; those that move nothing gone.

before   b = transpose(a) p  c = transpose(b) q       after   c = transpose(a) p[q]
before   b = reshape(a)      c = reshape(b)           after   c = reshape(a)
before   b = transpose(a) of axes of extent 1 alone   after   b = reshape(a)
before   r = reduce(a) keepdim=False                  after   s = reduce(a) keepdim=True
                                                              r = reshape(s)
before   p = matmul(reshape(a: [B,H,m,k]), b: [BH,k,n])    after   r = matmul(a, reshape(b))
         r = reshape(p) [B,H,m,n]
"""

from __future__ import annotations

from poot.ir.attrs import bool_attr, ints_attr, str_attr
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope, rule


@rule("reshape", "broadcast")
def same_shape(eqn: Eqn, scope: Scope) -> Var | None:
    """A reshape or broadcast to the operand's shape is the operand."""
    return eqn.ins[0] if eqn.ins[0].type == eqn.out.type else None


@rule("reshape", "broadcast", "transpose")
def merge(eqn: Eqn, scope: Scope) -> Var | None:
    """A move of a move of its kind is one move."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op != eqn.op:
        return None
    if eqn.op != "transpose":
        return scope.emit(eqn.op, inner.ins[0], shape=eqn.out.type.shape)
    p, q = ints_attr(inner, "perm"), ints_attr(eqn, "perm")
    return scope.emit("transpose", inner.ins[0], perm=tuple(p[i] for i in q))


@rule("transpose")
def moves_no_element(eqn: Eqn, scope: Scope) -> Var | None:
    """A transpose that leaves every element where it lies is a reshape."""
    shape, perm = eqn.ins[0].type.shape, ints_attr(eqn, "perm")
    wide = [p for p in perm if shape[p] != 1]
    if wide != sorted(wide):
        return None
    if shape == eqn.out.type.shape:
        return eqn.ins[0]
    return scope.emit("reshape", eqn.ins[0], shape=eqn.out.type.shape)


@rule("broadcast")
def repeats_nothing(eqn: Eqn, scope: Scope) -> Var | None:
    """A broadcast that repeats no element is a reshape."""
    x, out = eqn.ins[0].type, eqn.out.type
    if x.elems != out.elems:
        return None
    return scope.emit("reshape", eqn.ins[0], shape=out.shape)


@rule("reduce")
def keep_axes(eqn: Eqn, scope: Scope) -> Var | None:
    """A reduction keeps its axes, with extent 1; a reshape takes them out. Over no axis it is its
    operand."""
    axes = ints_attr(eqn, "axis")
    if not axes:
        return eqn.ins[0]
    if bool_attr(eqn, "keepdim"):
        return None
    kept = scope.emit("reduce", eqn.ins[0], kind=str_attr(eqn, "kind"), axis=axes, keepdim=True)
    return scope.emit("reshape", kept, shape=eqn.out.type.shape)


@rule("reshape")
def batches_apart(eqn: Eqn, scope: Scope) -> Var | None:
    """Two batch axes that were made one for a matmul, and are two after it, are two there too."""
    product = scope.producer(eqn.ins[0])
    if product is None or product.op != "matmul" or len(eqn.out.type.shape) != 4:
        return None
    left = scope.producer(product.ins[0])
    pair, matrix = eqn.out.type.shape[:2], product.ins[0].type.shape[1:]
    if left is None or left.op != "reshape" or left.ins[0].type.shape != (*pair, *matrix):
        return None
    shapes = [v.type.shape for v in (*product.ins, product.out)]
    if any(len(s) != 3 or s[0] != shapes[-1][0] for s in shapes):
        return None
    if eqn.out.type.shape[2:] != shapes[-1][1:] or not scope.is_read_once(eqn.ins[0]):
        return None
    right = scope.emit("reshape", product.ins[1], shape=(*pair, *shapes[1][1:]))
    return scope.emit("matmul", left.ins[0], right)


MOVES = (same_shape, merge, moves_no_element, repeats_nothing, keep_axes, batches_apart)
