"""What regions know of each op: whether it can be pulled, what that costs, what an operand bears.

A pullable op is one that a kernel can evaluate for one element at a load. Costs count about one for
an add; they weigh computing a value again in each reader against storing it once.
"""

from __future__ import annotations

from poot.ir.attrs import strs_attr
from poot.ir.graph import Eqn, TensorType
from poot.ir.rules.elementwise import BINARY, BITWISE, COMPARE, SHIFT, UNARY_FLOAT

_OTHERS = ("not", "select", "cast", "bitcast", "index_guard")
ELEMENTWISE = frozenset((*UNARY_FLOAT, *BINARY, *COMPARE, *BITWISE, *SHIFT, *_OTHERS))
UPDATES = frozenset(("dynamic_update_slice", "scatter_update"))

_SLOW = ("exp", "log", "sin", "cos", "tanh", "erf")
_COSTS: dict[str, int] = {
    **dict.fromkeys((*ELEMENTWISE, "concat", "dynamic_slice"), 1),
    **dict.fromkeys(_SLOW, 8),
    **dict.fromkeys(("div", "recip", "sqrt", "rsqrt", "rem"), 4),
    **dict.fromkeys(("cast", "bitcast", "reshape", "transpose", "broadcast", "slice"), 0),
    **dict.fromkeys(("const", "iota"), 0),
    "gather": 2,
    "dynamic_update_slice": 3,
    "rope": 4,
}

NO_ROOM = -1  # the operand has to lie in memory as it is
OWN_ROOM = 64  # what may stand in a chain before a value that is stored
MASK_ROOM = 64  # a mask is pulled whatever it takes: it may be Lq * Lk elements
FEW_ROWS = 8  # rows of a matmul up to which its left operand's prologue runs about once

# Cost that may stand before each operand of attention. q is read once for each key, k and v once
# for each query row: moves, casts and the selects of a guard.
_ATTENTION_ROOM = {
    "q": 2,
    "k": 4,
    "v": 4,
    "k_shared": 4,
    "ids": 0,
    "mask": MASK_ROOM,
    "bias": MASK_ROOM,
}


def is_pullable(eqn: Eqn) -> bool:
    return eqn.op in _COSTS


def cost(eqn: Eqn) -> int:
    """What evaluating one element of a pullable eqn takes, its operands left out."""
    return _COSTS[eqn.op]


def reads_apart(eqn: Eqn) -> int:
    """At how many unlike indices one element reads an operand; 0 where at its own."""
    if eqn.op in ELEMENTWISE:
        return 0
    return 2 if eqn.op == "rope" else 1


def operand_rooms(eqn: Eqn) -> tuple[int, ...]:
    """For each operand of an eqn that can't be pulled, the cost that may stand before it."""
    match eqn.op:
        case "matmul":
            few = rows_of(eqn.out.type) <= FEW_ROWS
            return (32 if few else 4, 32)
        case "attention":
            return tuple(_ATTENTION_ROOM.get(n, 8) for n in strs_attr(eqn, "operands"))
        case "reduce":
            return (OWN_ROOM,)
        case "topk" | "argmax":
            return (16,)
        case "block_scores":
            return (NO_ROOM, NO_ROOM, 16)[: len(eqn.ins)]
        case "block_topk":
            return (8, 16)
        case "selected_attention":
            return tuple(_ATTENTION_ROOM.get(n, 8) for n in strs_attr(eqn, "operands"))
        case "scatter_update" | "dynamic_update_slice":
            return (NO_ROOM, *(OWN_ROOM,) * (len(eqn.ins) - 1))
        case _:
            return (NO_ROOM,) * len(eqn.ins)


def is_mask(eqn: Eqn, operand: int) -> bool:
    """Whether that operand of an attention eqn is its mask or bias."""
    return eqn.op == "attention" and strs_attr(eqn, "operands")[operand] in ("mask", "bias")


def rows_of(matmul: TensorType) -> int:
    """Batches times rows of a matmul's result."""
    return matmul.elems // max(matmul.shape[-1], 1)
