"""The kernel IR's op table: one row an instruction, with its operands, its effect and its meaning.

Every emitter and the simulator has a row for each of these, or a row that refuses with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KirOp:
    """One instruction. `args` and `dsts` are operand counts (None: varies). `effect` is "pure",
    "load", "store", "atomic", "sync", "async" or "id". `portable` ops are spelled by every emitter.
    """

    name: str
    args: int | None
    dsts: int
    attrs: tuple[str, ...]
    effect: str
    portable: bool
    doc: str


KIR_OPS: dict[str, KirOp] = {}


def _row(
    name: str,
    args: int | None,
    dsts: int,
    doc: str,
    *,
    attrs: str = "",
    effect: str = "pure",
    portable: bool = True,
) -> None:
    assert name not in KIR_OPS, name
    KIR_OPS[name] = KirOp(name, args, dsts, tuple(sorted(attrs.split())), effect, portable, doc)


# Registers
_row("set", 1, 1, "dst (mutable) = a.")
_row("undef", 0, 1, "Declares a mutable register whose value is not yet meant to be read.")

# Arithmetic: scalars, vectors or frags of one type; element by element; integers wrap.
_row("add", 2, 1, "a + b.")
_row("sub", 2, 1, "a - b.")
_row("mul", 2, 1, "a * b; integers keep the low word.")
_row("mulhi", 2, 1, "The high word of the u32 product.")
_row(
    "div",
    2,
    1,
    "a / b. Floats: within 2.5 ulp. Integers truncate; b must not be 0, nor least / -1.",
)
_row("rem", 2, 1, "a - b * trunc(a / b) on i32, u32, i64; b as in div.")
_row("fma", 3, 1, "a * b + c, rounded once or twice. Floats.")
_row("neg", 1, 1, "-a.")
_row("abs", 1, 1, "|a|, floats and i32.")
_row("min", 2, 1, "The smaller. Floats: which is given when one is NaN is not said; see `nanmin`.")
_row("max", 2, 1, "The larger. Floats: which is given when one is NaN is not said; see `nanmax`.")
_row("nanmin", 2, 1, "The smaller float; NaN if either is.")
_row("nanmax", 2, 1, "The larger float; NaN if either is.")
_row("floor", 1, 1, "The largest whole float not above a.")
_row("rint", 1, 1, "The nearest whole float, ties to even.")
_row("sqrt", 1, 1, "Square root, within 2.5 ulp.")
_row("rsqrt", 1, 1, "1 / sqrt(a), within 2 ulp.")
_row("rcp", 1, 1, "1 / a, within 2.5 ulp.")
_row(
    "exp2",
    1,
    1,
    "2 to the a, relative error at most 2^-21; -inf gives 0, +inf gives +inf, NaN gives NaN; "
    "may flush subnormals.",
)
_row(
    "log2",
    1,
    1,
    "Base-2 logarithm, absolute error at most 2^-21 near 1, else relative; 0 gives -inf.",
)
_row(
    "isnan",
    1,
    1,
    "bool: a is NaN, tested on the bits, so that no fast-math assumption removes it.",
)

# Bits and booleans
_row("and", 2, 1, "Bitwise and; logical on bool.")
_row("or", 2, 1, "Bitwise or; logical on bool.")
_row("xor", 2, 1, "Bitwise exclusive or; logical on bool.")
_row("not", 1, 1, "Bitwise complement; logical on bool.")
_row("shl", 2, 1, "a << b, 0 <= b < 32 (64 for i64).")
_row("shr", 2, 1, "a >> b: arithmetic on signed, logical on unsigned.")
_row("eq", 2, 1, "bool: a == b, false with NaN.")
_row("ne", 2, 1, "bool: a != b, true with NaN.")
_row("lt", 2, 1, "bool: a < b, false with NaN.")
_row("le", 2, 1, "bool: a <= b, false with NaN.")
_row("gt", 2, 1, "bool: a > b, false with NaN.")
_row("ge", 2, 1, "bool: a >= b, false with NaN.")
_row("select", 3, 1, "b where a (bool) is true, else c.")

# Conversions
_row(
    "cast",
    1,
    1,
    "a in dst's dtype. Float to float rounds to nearest even; int to float rounds; float to "
    "int needs a value in range (the generator clamps first); int to int wraps; bool to "
    "number 0 or 1.",
)
_row("bitcast", 1, 1, "The same bits; sizes are equal (u32 and two f16 in a vector among them).")
_row("vec", None, 1, "A vector of the scalars, in order.")
_row("extract", 1, 1, "Element `at` of a vector or register `at` of a frag.", attrs="at")
_row("insert", 2, 1, "a with element `at` replaced by b; vectors and frags.", attrs="at")

# Where am I
_row("lane", 0, 1, "i32: this lane's index in the workgroup, 0 .. threads-1.", effect="id")
_row(
    "group_id",
    0,
    1,
    "i32: the workgroup's index on grid axis 0, 1 or 2.",
    attrs="axis",
    effect="id",
)
_row("num_groups", 0, 1, "i32: the grid's extent on an axis.", attrs="axis", effect="id")
_row("subgroup_id", 0, 1, "i32: which subgroup of the workgroup, uniform in it.", effect="id")
_row("subgroup_lane", 0, 1, "i32: this lane's index in its subgroup.", effect="id")
_row("imm", 0, 1, "The launch immediate `name`.", attrs="name", effect="id")

# Memory
_row(
    "load",
    1,
    1,
    "dst.type elements of `mem` from index a on (a a multiple of dst's lanes). `cache`: None, "
    "'stream' (read once: evict first), 'early' (as stream, and begun where it stands, before a "
    "grid_wait behind it), 'const' (nothing writes it in this launch) or "
    "'relaxed' (gpu scope).",
    attrs="mem cache",
    effect="load",
)
_row(
    "prefetch",
    1,
    0,
    "A hint: what lies about element a of `mem`, which is inside it, will be read soon. Changes "
    "nothing; a target may do nothing, or take the first lane's index alone.",
    attrs="mem",
    effect="load",
)
_row(
    "store",
    2,
    0,
    "Writes b to `mem` at index a; cache as in load.",
    attrs="mem cache",
    effect="store",
)
_row(
    "atomic",
    2,
    1,
    "dst = old value of mem[a]; mem[a] = kind(old, b); kind add, max, min, and, or, exchange; "
    "i32 or u32; relaxed, gpu scope on buffers, workgroup scope on workgroup arrays.",
    attrs="mem kind",
    effect="atomic",
)
_row(
    "barrier",
    0,
    0,
    "All lanes of `scope` meet, and workgroup memory written before is seen after. scope: "
    "'group', 'subgroup', 'role', or ('named', id, threads) which only some targets have. "
    "Control is uniform within the scope.",
    attrs="scope",
    effect="sync",
)
_row(
    "fence",
    0,
    0,
    "Orders this lane's writes for readers at `scope`: 'group', 'device', 'async' (before the "
    "copy engine or the matrix unit reads workgroup memory).",
    attrs="scope",
    effect="sync",
)

# Subgroup ops: control is uniform in the subgroup
_row("shuffle", 2, 1, "a of lane b of the subgroup.", effect="sync")
_row("shuffle_xor", 1, 1, "a of lane (own ^ mask).", attrs="mask", effect="sync")
_row(
    "subgroup_reduce",
    1,
    1,
    "a folded over each run of `width` lanes (a power of two), the result in all of them; "
    "kind add, max, min. Floats reassociate.",
    attrs="kind width",
    effect="sync",
)
_row("subgroup_broadcast", 1, 1, "a of lane `lane`.", attrs="lane", effect="sync")
_row("vote_any", 1, 1, "bool: a is true in some lane of the subgroup.", effect="sync")
_row("vote_all", 1, 1, "bool: a is true in every lane of the subgroup.", effect="sync")
_row(
    "agree",
    1,
    1,
    "a, a scalar of which the generator says that every lane of the workgroup holds the same: "
    "what depends on it is uniform.",
)
_row("ballot", 1, 1, "u32: bit i is a of lane i; subgroups of at most 32 lanes.", effect="sync")

# Target-only: asynchronous copies, barriers with phases, matrix units. Strides and indices count
# elements.

_row(
    "cp_async",
    None,
    0,
    "Copies `nbytes` (4, 8 or 16) from mem[b] to workgroup array dst[a] behind the lane's "
    "back; part of the lane's next async_commit. `bypass` skips L1. With a third operand "
    "(bool) a lane where it is false writes zeros and reads nothing.",
    attrs="dst mem nbytes bypass",
    effect="async",
    portable=False,
)
_row(
    "async_commit",
    0,
    1,
    "token[copy]: closes the lane's group of copies issued since the last, which may be empty.",
    effect="async",
    portable=False,
)
_row(
    "wait",
    1,
    0,
    "Waits until at most the latest `pending` groups of the token's kind are open; the token "
    "is of one of that kind made before. copy: then the lane itself sees what landed, other "
    "lanes after a barrier. wgmma: accumulators can be touched and operands written. bulk: "
    "the workgroup memory that was read can be written.",
    attrs="pending",
    effect="sync",
    portable=False,
)
_row(
    "mbar_init",
    1,
    0,
    "mem[a] expects `count` arrivals a phase; its first phase has parity 0. One lane, once.",
    attrs="mem count",
    effect="sync",
    portable=False,
)
_row(
    "mbar_arrive",
    1,
    0,
    "One arrival on mem[a] by each active lane; with `expect` bytes added to the phase first. "
    "Releases what the lane wrote.",
    attrs="mem expect",
    effect="sync",
    portable=False,
)
_row(
    "mbar_wait",
    2,
    0,
    "Waits until the phase of parity b (i32, 0 or 1) on mem[a] is complete; a fresh barrier's "
    "phase of parity 1 counts as complete.",
    attrs="mem",
    effect="sync",
    portable=False,
)
_row(
    "barrier_sync",
    1,
    0,
    "Named barrier a (1 .. 15): waits until `threads` lanes have synced or arrived on it.",
    attrs="threads",
    effect="sync",
    portable=False,
)
_row(
    "barrier_arrive",
    1,
    0,
    "Counts this subgroup's lanes on named barrier a and goes on.",
    attrs="threads",
    effect="sync",
    portable=False,
)
_row(
    "tma_load",
    None,
    0,
    "The box of tensor map `blob` at coordinates args[2:] (i32, innermost first; elements "
    "outside the tensor are zero), to dst[args[0]] on; its bytes count on mbar mem[args[1]]. "
    "Each active lane copies a box.",
    attrs="blob dst mem",
    effect="async",
    portable=False,
)
_row(
    "tma_store",
    None,
    1,
    "token[bulk]: the box of `blob` at coordinates args[1:] from mem[args[0]] on; elements "
    "outside the tensor are dropped.",
    attrs="blob mem",
    effect="async",
    portable=False,
)
_row(
    "unpack",
    1,
    1,
    "f16 vector of four: the bytes of word a, the lowest first, as numbers of `dtype` (i8 or "
    "f8e4m3); exact, NaN gives NaN.",
    attrs="dtype",
    portable=False,
)
_row("frag_fill", 1, 1, "A frag with the scalar in every element.", portable=False)
_row(
    "frag_pack",
    None,
    1,
    "A frag whose elements in this lane are the scalars, in register order.",
    portable=False,
)
_row(
    "frag_coord",
    0,
    1,
    "An i32 frag: each element's own row (`axis` 0) or column (1).",
    attrs="axis",
    effect="id",
    portable=False,
)
_row(
    "frag_load",
    2,
    1,
    "A frag from mem, element (r, c) at a + r * b + c (`trans`: a + c * b + r). `swizzle`: "
    "None, or a row of frags.SWIZZLES. Elements of 16 bits may lie in u32 words, the first in "
    "the low half; indices count elements, and a line of a tile begins a word.",
    attrs="mem trans swizzle",
    effect="load",
    portable=False,
)
_row(
    "frag_store",
    3,
    0,
    "Writes frag c to mem, element (r, c) at a + r * b + c; trans and swizzle as in frag_load.",
    attrs="mem trans swizzle",
    effect="store",
    portable=False,
)
_row(
    "frag_cast",
    1,
    1,
    "A frag in dst's role and dtype where the lane maps agree up to register order (acc to "
    "a): nothing moves.",
    portable=False,
)
_row(
    "frag_move",
    1,
    1,
    "The same matrix in dst's lane map (mma acc to b, 16-bit), by 8x8 transposes between lanes.",
    effect="sync",
    portable=False,
)
_row(
    "frag_slice",
    1,
    1,
    "The columns from `at` on, as many as dst has, of a frag: some of its registers, nothing "
    "moves.",
    attrs="at",
    portable=False,
)
_row(
    "frag_reduce",
    1,
    1,
    "This lane's part of a reduction (`kind` add, max, min): over the columns it holds of "
    "each row (`axis` 1), or over the rows of each column (0). A vector, one element for each "
    "row or column the lane holds, ascending; other lanes hold the rest.",
    attrs="axis kind",
    portable=False,
)
_row(
    "frag_apply",
    2,
    1,
    "Element (r, c) = a[r, c] `kind` b[r] (`axis` 1; kind add, sub, mul) or b[c] (0); b as "
    "frag_reduce gives it.",
    attrs="axis kind",
    portable=False,
)
_row(
    "mma",
    3,
    1,
    "dst = a x b + c over frags, in c's dtype; within a subgroup.",
    effect="sync",
    portable=False,
)
_row(
    "wgmma",
    2,
    1,
    "dst (a mutable acc frag) += a x b over `k`, asynchronously, by a warpgroup; `zero`: dst "
    "= a x b. a is a frag or a tile of array `a` [m, k] from index args[0] on, b a tile of "
    "array `b` [n, k] (`trans_b`: [k, n]) from index args[1] on. A tile lies in panels of 64 "
    "columns, `stride_a`, `stride_b` apart, each row 64 long, swizzle 128B. 16-bit. Part of "
    "the next wgmma_commit.",
    attrs="a b k zero trans_b stride_a stride_b",
    effect="async",
    portable=False,
)
_row(
    "wgmma_commit",
    0,
    1,
    "token[wgmma]: closes the warpgroup's group of products issued since the last.",
    effect="async",
    portable=False,
)
_row(
    "elect",
    0,
    1,
    "bool: true in one lane of the subgroup, the same each time.",
    effect="id",
    portable=False,
)
_row(
    "grid_wait",
    0,
    0,
    "Waits until the launch before has finished (programmatic dependent launch).",
    effect="sync",
    portable=False,
)
_row("grid_trigger", 0, 0, "Lets the next launch begin.", effect="sync", portable=False)
