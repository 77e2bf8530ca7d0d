"""How well blocks fit a row becomes one `block_scores` eqn: products, relu, the sum over heads.

before   p = matmul(cast(q), cast(transpose(keys)))       after   s = block_scores(q, keys) scale=c
         s = mul(reduce(max(p, 0)) axis=1 kind=sum, c)
Needs canonical form. Leaves a chain that is read elsewhere, or of widths that no kernel takes, as
it is.
"""

from __future__ import annotations

from poot.ir.attrs import ints_attr, str_attr
from poot.ir.graph import Eqn, Var
from poot.limits import DeviceLimits
from poot.passes.attention.views import reshaped
from poot.passes.engine import Scope
from poot.passes.facts import number_of
from poot.passes.selection.pattern import unshaped

# Widths of an index key: whole 64-byte pieces of 16 bits, in registers.
WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256)


def may_score(limits: DeviceLimits) -> bool:
    """Whether a kernel scores blocks on the device's matrix units."""
    return limits.target == "ptx" and limits.has_matrix_units and limits.subgroup == 32


def fuse_scores(eqn: Eqn, scope: Scope) -> Var | None:
    """The sum over heads, with a scale of 1."""
    x = eqn.ins[0]
    is_sum = str_attr(eqn, "kind") == "sum" and ints_attr(eqn, "axis") == (1,)
    if not is_sum or x.type.dtype != "f32" or len(x.type.shape) != 4:
        return None
    batch, heads, rows, blocks = x.type.shape
    if eqn.out.type.shape != (batch, 1, rows, blocks):
        return None
    share, weights = _weighed(scope, x)
    product = _relu_of(scope, share)
    if product is None:
        return None
    found = _factors(scope, product, (batch, heads, rows, blocks))
    if found is None:
        return None
    operands = (*found, *weights)
    out = scope.emit("block_scores", *operands, scale=1.0)
    scope.did(f"block_scores q {found[0].type} keys {found[1].type}", eqn.loc)
    return out


def scale_scores(eqn: Eqn, scope: Scope) -> Var | None:
    """A number times scores that no one else reads."""
    for scores, by in (eqn.ins, eqn.ins[::-1]):
        made, number = scope.producer(scores), number_of(scope, by)
        if made is None or made.op != "block_scores" or number is None:
            continue
        if made.attr("scale") == 1.0 and scope.uses(scores) == 1:
            return scope.emit("block_scores", *made.ins, scale=float(number))
    return None


def _weighed(scope: Scope, x: Var) -> tuple[Var, tuple[Var, ...]]:
    """(the shares of heads, their weights [B,H,Lq] if there are any)."""
    made = scope.producer(x)
    if made is None or made.op != "mul" or scope.uses(x) != 1:
        return x, ()
    lead = x.type.shape[:3]
    for share, weights in (made.ins, made.ins[::-1]):
        if weights.type.shape == (*lead, 1) and share.type == x.type:
            own = unshaped(scope, narrow(scope, weights))
            return share, (own if own.type.shape == lead else reshaped(scope, own, lead),)
    return x, ()


def _relu_of(scope: Scope, share: Var) -> Var | None:
    made = scope.producer(share)
    if made is None or made.op != "max" or scope.uses(share) != 1:
        return None
    for product, zero in (made.ins, made.ins[::-1]):
        if number_of(scope, zero) == 0.0:
            return product
    return None


def narrow(scope: Scope, x: Var) -> Var:
    """x before it was cast to f32 from a narrower float, reshapes set aside."""
    made = scope.producer(unshaped(scope, x))
    is_wider = made is not None and made.op == "cast" and x.type.dtype == "f32"
    if made is None or not is_wider or made.ins[0].type.dtype not in ("f16", "bf16"):
        return x
    return reshaped(scope, made.ins[0], x.type.shape)


def _factors(scope: Scope, x: Var, shape: tuple[int, ...]) -> tuple[Var, Var] | None:
    """(q [B,H,Lq,d], keys [B,N,d]) of 16 bits that are multiplied in f32."""
    batch, heads, rows, blocks = shape
    product = unshaped(scope, x)
    made = scope.producer(product)
    if made is None or made.op != "matmul" or not _is_read_once(scope, x, product):
        return None
    if product.type.shape != (batch, heads * rows, blocks) or x.type.shape != shape:
        return None
    left, right = narrow(scope, made.ins[0]), narrow(scope, made.ins[1])
    turned = scope.producer(right)
    if turned is None or turned.op != "transpose" or ints_attr(turned, "perm") != (0, 2, 1):
        return None
    keys = narrow(scope, turned.ins[0])
    width = keys.type.shape[2]
    fits = keys.type.dtype in ("f16", "bf16") and left.type.dtype == keys.type.dtype
    if not fits or width not in WIDTHS or left.type.shape[0] != batch:
        return None
    lead = (batch, heads, rows, width)
    own = unshaped(scope, left)
    return own if own.type.shape == lead else reshaped(scope, left, lead), keys


def _is_read_once(scope: Scope, x: Var, product: Var) -> bool:
    """Whether nothing else reads the product or a reshape of it on the way."""
    while x != product:
        made = scope.producer(x)
        if scope.uses(x) != 1 or made is None:
            return False
        x = made.ins[0]
    return scope.uses(product) == 1
