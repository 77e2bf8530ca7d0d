"""The instructions that are no plain function of their operands: moves, memory, lanes, matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.support.ptx_machine import FOLDS, SIZES, WARP, Action, Index, Run
from tests.support.ptx_rows import ROWS, source_bits
from tests.support.ptx_text import Instruction, Module, operands_of

Maker = Callable[[Instruction, Module], Action]


def _inner(operand: str) -> tuple[str, ...]:
    return operands_of(operand.strip("{}"))


def _plain(i: Instruction) -> Action:
    row, kind = ROWS[i.op], source_bits(i.op)
    dst, *sources = i.operands
    kinds = [kind] * len(sources)
    if i.op.startswith(("shl", "shr")):
        kinds[1] = "b32"

    def run(r: Run, idx: Index) -> None:
        args = [r.read(s, idx, k) for s, k in zip(sources, kinds, strict=True)]
        r.write(dst, idx, row(*args))

    return run


def _mov(i: Instruction, module: Module) -> Action:
    dst, source = i.operands
    kind = {"u32": "b32", "u64": "b64"}.get(i.op.split(".")[1], i.op.split(".")[1])
    if dst.startswith("{"):
        low, high = _inner(dst)

        def unpack(r: Run, idx: Index) -> None:
            word = r.read(source, idx, kind)
            half = word.dtype.itemsize * 4
            r.write(low, idx, word & word.dtype.type((1 << half) - 1))
            r.write(high, idx, word >> word.dtype.type(half))

        return unpack
    if source.startswith("{"):
        low, high = _inner(source)
        part, whole = ("b16", np.uint32) if kind == "b32" else ("b32", np.uint64)

        def pack(r: Run, idx: Index) -> None:
            a, b = (r.read(x, idx, part).astype(whole) for x in (low, high))
            r.write(dst, idx, a | b << whole(16 if part == "b16" else 32))

        return pack

    def move(r: Run, idx: Index) -> None:
        r.write(dst, idx, r.read(source, idx, kind))

    return move


def _copy(i: Instruction, module: Module) -> Action:
    dst, source = i.operands

    def run(r: Run, idx: Index) -> None:
        r.write(dst, idx, r.read(source, idx, "b64"))

    return run


def _mad_wide(i: Instruction, module: Module) -> Action:
    dst, a, b, c = i.operands
    view, wide = (np.int32, np.int64) if i.op.endswith("s32") else (np.uint32, np.uint64)

    def run(r: Run, idx: Index) -> None:
        x, y = (r.read(o, idx, "b32").view(view).astype(wide) for o in (a, b))
        r.write(dst, idx, (x * y).view(np.uint64) + r.read(c, idx, "b64"))

    return run


def _selp(i: Instruction, module: Module) -> Action:
    dst, a, b, p = i.operands
    kind = {"f32": "b32"}.get(i.op.split(".")[1], i.op.split(".")[1])

    def run(r: Run, idx: Index) -> None:
        chosen = np.where(r.read(p, idx, "pred"), r.read(a, idx, kind), r.read(b, idx, kind))
        r.write(dst, idx, chosen)

    return run


def _load_param(i: Instruction, module: Module) -> Action:
    dst, source = i.operands

    def run(r: Run, idx: Index) -> None:
        r.write(dst, idx, np.full(idx.size, r.params[source.strip("[]")], np.uint64))

    return run


def _vector(op: str) -> tuple[int, str]:
    """(elements, element type) of a load or store."""
    parts = op.split(".")
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4")), 1)
    return count, parts[-1]


def _load(i: Instruction, module: Module) -> Action:
    if ".param." in i.op:
        return _load_param(i, module)
    dst, address = i.operands
    (count, kind), shared = _vector(i.op), ".shared" in i.op
    size, names = SIZES[kind], _inner(dst) if dst.startswith("{") else (dst,)

    def run(r: Run, idx: Index) -> None:
        at = r.place(address, idx, size * count, shared) * count
        memory = r.view(size, shared)
        for n, name in enumerate(names):
            got = memory[at + n]
            if kind == "s8":
                got = got.view(np.int8).astype(np.int32).view(np.uint32)
            r.write(name, idx, got)

    return run


def _store(i: Instruction, module: Module) -> Action:
    address, source = i.operands
    (count, kind), shared = _vector(i.op), ".shared" in i.op
    size, names = SIZES[kind], _inner(source) if source.startswith("{") else (source,)

    def run(r: Run, idx: Index) -> None:
        at = r.place(address, idx, size * count, shared) * count
        memory = r.view(size, shared)
        for n, name in enumerate(names):
            word = r.read(name, idx, {1: "b32", 2: "b16", 4: "b32", 8: "b64"}[size])
            memory[at + n] = word.astype(memory.dtype)

    return run


def _atom(i: Instruction, module: Module) -> Action:
    dst, address, source = i.operands
    parts, shared = i.op.split("."), ".shared" in i.op
    fold, view = FOLDS[parts[4]], np.int32 if parts[5] == "s32" else np.uint32

    def run(r: Run, idx: Index) -> None:
        at, memory = r.place(address, idx, 4, shared), r.view(4, shared).view(view)
        given, old = r.read(source, idx, "b32").view(view), np.zeros(idx.size, view)
        for n, where in enumerate(at):
            old[n] = memory[where]
            memory[where] = fold(old[n], given[n])
        r.write(dst, idx, old.view(np.uint32))

    return run


# Lanes of a warp


def _whole(r: Run, idx: Index) -> None:
    assert idx.size % WARP == 0, "a torn warp"
    assert (idx[::WARP] % WARP == 0).all(), "a torn warp"
    assert (np.diff(idx.reshape(-1, WARP), axis=1) == 1).all(), "a torn warp"


def _shfl(i: Instruction, module: Module) -> Action:
    dst, source, which, _, _ = i.operands
    is_xor = ".bfly." in i.op

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        rows = r.read(source, idx, "b32").reshape(-1, WARP)
        other = r.read(which, idx, "b32").reshape(-1, WARP).astype(np.int64)
        at = (np.arange(WARP) ^ other) if is_xor else other & 31
        r.write(dst, idx, np.take_along_axis(rows, at, axis=1).reshape(-1))

    return run


def _vote(i: Instruction, module: Module) -> Action:
    dst, source, _ = i.operands
    kind = i.op.split(".")[2]

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        rows = r.read(source, idx, "pred").reshape(-1, WARP)
        if kind == "ballot":
            word = (rows.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(1)
            r.write(dst, idx, np.repeat(word.astype(np.uint32), WARP))
        else:
            r.write(dst, idx, np.repeat(rows.any(1) if kind == "any" else rows.all(1), WARP))

    return run


def _redux(i: Instruction, module: Module) -> Action:
    dst, source, _ = i.operands
    _, _, kind, number = i.op.split(".")
    fold, view = FOLDS[kind], np.int32 if number == "s32" else np.uint32

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        rows = r.read(source, idx, "b32").view(view).reshape(-1, WARP)
        got = fold.reduce(rows, axis=1, dtype=view)
        r.write(dst, idx, np.repeat(got, WARP).view(np.uint32))

    return run


def _elect(i: Instruction, module: Module) -> Action:
    lane, chosen = i.operands[0].split("|")

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        r.write(lane, idx, np.zeros(idx.size, np.uint32))
        r.write(chosen, idx, idx % WARP == 0)

    return run


def _bar(i: Instruction, module: Module) -> Action:
    if i.op == "bar.warp.sync":
        return lambda r, idx: _whole(r, idx)
    numbers = i.operands

    def run(r: Run, idx: Index) -> None:
        threads = int(numbers[1]) if len(numbers) > 1 else module.threads
        number = r.read(numbers[0], idx, "b32")
        for group in np.unique(r.group[idx]):
            for which in np.unique(number[r.group[idx] == group]):
                lanes = idx[(r.group[idx] == group) & (number == which)]
                key = (int(group), int(which))
                if i.op == "bar.arrive":
                    r.arrived[key] = r.arrived.get(key, 0) + lanes.size
                    r.fill(key, threads)
                else:
                    r.park(key, threads, lanes)

    return run


def _bra(i: Instruction, module: Module) -> Action:
    target = module.labels[i.operands[0]]

    def run(r: Run, idx: Index) -> None:
        r.pc[idx] = target

    return run


def _ret(i: Instruction, module: Module) -> Action:
    end = len(module.code)

    def run(r: Run, idx: Index) -> None:
        r.pc[idx] = end

    return run


def _nothing(i: Instruction, module: Module) -> Action:
    return lambda r, idx: None


# Copies behind the lane's back land at once: the simulator of the kernel IR lands them late.


def _cp_async(i: Instruction, module: Module) -> Action:
    dst, source, size, *zfill = i.operands
    nbytes = int(size)

    def run(r: Run, idx: Index) -> None:
        into = r.place(dst, idx, nbytes, True) * nbytes
        has = r.read(zfill[0], idx, "b32") > 0 if zfill else np.ones(idx.size, np.bool_)
        flat = r.shared.reshape(-1)
        flat[into[:, None] + np.arange(nbytes)] = 0
        if has.any():
            at = r.place(source, idx[has], nbytes, False) * nbytes
            got = r.memory.data[at[:, None] + np.arange(nbytes)]
            flat[into[has][:, None] + np.arange(nbytes)] = got

    return run


# Matrices: blocks of 8x8 16-bit elements, lane 4 * row + pair of columns


def _halves(words: np.ndarray) -> np.ndarray:
    """[warps, 32] words of two elements as [warps, 8, 8] elements."""
    return np.ascontiguousarray(words).view(np.uint16).reshape(-1, 8, 8)


def _words(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks).view(np.uint32).reshape(-1)


def _ldmatrix(i: Instruction, module: Module) -> Action:
    is_store = i.op.startswith("st")
    names = _inner(i.operands[1 if is_store else 0])
    address, trans = i.operands[0 if is_store else 1], ".trans" in i.op

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        needed = idx.reshape(-1, WARP)[:, : 8 * len(names)]
        lines = r.place(address, needed.reshape(-1), 16, True).reshape(-1, len(names), 8) * 8
        memory = r.view(2, True)
        for n, name in enumerate(names):
            at = lines[:, n, :, None] + np.arange(8)
            if is_store:
                block = _halves(r.read(name, idx, "b32").reshape(-1, WARP))
                memory[at] = block.transpose(0, 2, 1) if trans else block
            else:
                block = memory[at]
                r.write(name, idx, _words(block.transpose(0, 2, 1) if trans else block))

    return run


def _movmatrix(i: Instruction, module: Module) -> Action:
    dst, source = i.operands

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)
        block = _halves(r.read(source, idx, "b32").reshape(-1, WARP))
        r.write(dst, idx, _words(block.transpose(0, 2, 1)))

    return run


def _floats(block: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "f16":
        return block.view(np.float16).astype(np.float64)
    return (block.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _mma(i: Instruction, module: Module) -> Action:
    dsts, a, b, c = (_inner(o) for o in i.operands)
    dtype = i.op.split(".")[7]
    assert i.op.split(".")[6] == "f32", "the machine sums in f32"

    def run(r: Run, idx: Index) -> None:
        _whole(r, idx)

        def block(name: str) -> np.ndarray:
            return _floats(_halves(r.read(name, idx, "b32").reshape(-1, WARP)), dtype)

        a0, a1, a2, a3 = (block(n) for n in a)
        left = np.concatenate([np.concatenate([a0, a2], 2), np.concatenate([a1, a3], 2)], 1)
        right = np.concatenate([block(n).transpose(0, 2, 1) for n in b], 1)
        acc = np.stack([r.read(n, idx, "b32").view(np.float32).reshape(-1, 8, 4) for n in c], -1)
        whole = np.concatenate([acc[..., :2].reshape(-1, 8, 8), acc[..., 2:].reshape(-1, 8, 8)], 1)
        got = (left @ right + whole).astype(np.float32)
        parts = got.reshape(-1, 2, 8, 4, 2)
        for n, name in enumerate(dsts):
            value = np.ascontiguousarray(parts[:, n // 2, :, :, n % 2]).reshape(-1)
            r.write(name, idx, value.view(np.uint32))

    return run


_BY_HEAD: dict[str, Maker] = {
    "mov": _mov, "cvta": _copy, "selp": _selp, "ld": _load, "st": _store, "atom": _atom,
    "shfl": _shfl, "vote": _vote, "redux": _redux, "elect": _elect, "bar": _bar, "bra": _bra,
    "ret": _ret, "fence": _nothing, "griddepcontrol": _nothing, "prefetch": _nothing,
    "ldmatrix": _ldmatrix, "stmatrix": _ldmatrix, "movmatrix": _movmatrix, "mma": _mma,
}  # fmt: skip


def action(i: Instruction, module: Module) -> Action:
    """What an instruction does. Fails on one that the machine doesn't know."""
    if i.op in ROWS:
        return _plain(i)
    if i.op.startswith("mad.wide"):
        return _mad_wide(i, module)
    if i.op.startswith("cp.async"):
        return _nothing(i, module) if "group" in i.op else _cp_async(i, module)
    maker = _BY_HEAD.get(i.op.split(".")[0])
    assert maker is not None, f"line {i.line}: the machine has no {i.op}"
    return maker(i, module)


def compiled(module: Module) -> list[tuple[Instruction, Action]]:
    """The module's code with what each instruction does."""
    return [(i, action(i, module)) for i in module.code]
