"""Decodes as graphs of one attention eqn, for the benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from poot.planner.grouped import ROWS_FIRST, Numbers


@dataclass(frozen=True, slots=True)
class Decode:
    """One decode: sizes, dtype, whether lengths are an operand, whether keys lie in pools of `pool`
    slots (0: dense), and numbers or an order of the schedule other than the planner's."""

    batch: int
    heads: int
    kv_heads: int
    width: int
    keys: int
    dtype: str = "bf16"
    is_live: bool = True
    pool: int = 0
    numbers: Numbers | None = None
    order: int = ROWS_FIRST

    @property
    def schedule(self) -> str:
        return "grouped"

    @property
    def name(self) -> str:
        form = "paged" if self.pool else "live" if self.is_live else "fixed"
        shape = (
            f"{self.dtype}_b{self.batch}_h{self.heads}_{self.kv_heads}_d{self.width}_l{self.keys}"
        )
        tail = "_" + "_".join(map(str, self.numbers)) if self.numbers else ""
        tail += "_by_heads" if self.order else ""
        return f"{shape}_{form}{tail}"

    def text(self) -> str:
        """The graph: one attention eqn."""
        lead = (
            f"{self.pool},{self.kv_heads}"
            if self.pool
            else f"{self.batch},{self.kv_heads},{self.keys}"
        )
        q = f"{self.dtype}[{self.batch},{self.heads},1,{self.width}]"
        rows = [("q", q, ""), ("k", f"{self.dtype}[{lead},{self.width}]", ""),
                ("v", f"{self.dtype}[{lead},{self.width}]", "")]  # fmt: skip
        if self.pool:
            rows.append(("read", f"i32[{self.batch},{self.keys}]", f" range=(0, {self.pool})"))
        if self.is_live:
            rows.append(("len", f"i32[{self.batch}]", f" range=(1, {self.keys + 1})"))
        lines = [f'slot v{n}: {t} "{name}"{limits}' for n, (name, t, limits) in enumerate(rows)]
        names, values = ", ".join(r[0] for r in rows), ", ".join(f"v{n}" for n in range(len(rows)))
        scale = self.width**-0.5
        lines.append(f"v{len(rows)}: {q} = attention({values}) operands=({names}) scale={scale}")
        return "\n".join([*lines, f"out v{len(rows)}"])
