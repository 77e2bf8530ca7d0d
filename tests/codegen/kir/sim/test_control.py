"""Control flow over masks: each lane sees what it would see alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.codegen.kir.build import I32, KernelBuilder, Val
from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Operand, Stmt, While
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.text import parse, show
from poot.codegen.kir.verify import verify
from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick
LANES = 32


class Alone:
    """One lane's run of a kernel of integer ops, in plain Python: what the masks must come to."""

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.regs: dict[str, int] = {}
        self.out: dict[int, int] = {}

    def read(self, operand: Operand) -> int:
        return int(operand.value) if isinstance(operand, Lit) else self.regs[operand.name]

    def run(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, Ins):
                self.ins(stmt)
            elif isinstance(stmt, If):
                self.run(stmt.then if self.read(stmt.cond) else stmt.orelse)
            elif isinstance(stmt, For):
                for i in range(*(self.read(x) for x in (stmt.start, stmt.stop, stmt.step))):
                    self.regs[stmt.var.name] = i
                    self.run(stmt.body)
            elif isinstance(stmt, While):
                self.run(stmt.head)
                while self.read(stmt.cond):
                    self.run(stmt.body)
                    self.run(stmt.head)

    def ins(self, ins: Ins) -> None:
        args = [self.read(a) for a in ins.args]
        if ins.op == "store":
            self.out[args[0]] = args[1]
            return
        two = {
            "add": lambda a, b: (a + b + 2**31) % 2**32 - 2**31,
            "sub": lambda a, b: (a - b + 2**31) % 2**32 - 2**31,
            "mul": lambda a, b: a * b,
            "and": lambda a, b: a & b,
            "lt": lambda a, b: int(a < b),
            "set": lambda a: a,
            "lane": lambda: self.lane,
        }
        self.regs[ins.dsts[0].name] = two[ins.op](*args)


def grow(k: KernelBuilder, variables: list[Val], random: Random, depth: int) -> None:
    """Random statements over the variables, loops and branches among them."""
    for _ in range(random.randint(1, 3)):
        a, b, c = (random.choice(variables) for _ in range(3))
        kind = random.choice(["set", "set", "if", "for", "while"]) if depth else "set"
        if kind == "set":
            k.set(a, k.op(random.choice(["add", "sub"]), b, random.choice([c, k.lit(3, I32)])))
        elif kind == "if":
            with k.if_(b < c):
                grow(k, variables, random, depth - 1)
            if random.random() < 0.5:
                with k.else_():
                    grow(k, variables, random, depth - 1)
        elif kind == "for":
            start, stop = k.copy(b & 3), k.copy(c & 7)
            with k.for_(start, stop, random.randint(1, 3)) as i:
                k.set(a, a + i)
                grow(k, variables, random, depth - 1)
        else:
            left = k.var(k.copy(b & 3), I32)
            with k.block_() as head:
                again = k.lit(0, I32) < left
            with k.while_(head, again):
                k.set(left, left - 1)
                grow(k, variables, random, depth - 1)


def random_kernel(seed: int) -> Kernel:
    random = Random(seed)
    k = KernelBuilder("random", LANES)
    out = k.param("out", "i32", LANES * 3, "w")
    lane = k.lane()
    variables = [k.var(lane, I32), k.var(5, I32), k.var(lane & 3, I32)]
    grow(k, variables, random, 3)
    for n, v in enumerate(variables):
        k.store(out, lane * 3 + n, v)
    return k.kernel()


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_a_vector_of_lanes_does_what_each_lane_does_alone(seed):
    kernel = random_kernel(seed)
    verify(kernel)
    want = np.zeros(LANES * 3, np.int32)
    for lane in range(LANES):
        alone = Alone(lane)
        alone.run(kernel.body)
        for at, value in alone.out.items():
            want[at] = value
    for text_trip in (kernel, parse(show(kernel))):
        got = np.zeros(LANES * 3, np.int32)
        simulate(text_trip, {"out": got}, 1)
        np.testing.assert_array_equal(got, want)
    waves = np.zeros(LANES * 3, np.int32)
    simulate(kernel, {"out": waves}, 1, subgroup=8, in_waves=True)
    np.testing.assert_array_equal(waves, want)


HEAD = "param out: i32[64] w align=4"


def test_the_bounds_of_a_loop_are_read_once():
    """`verify` refuses a body that writes them; what they are read from may change afterwards."""
    out = np.zeros(64, np.int32)
    body = """
      l: i32 = lane
      var total: i32 = set 0
      var n: i32 = set 3
      stop: i32 = add n, l
      for i: i32 = 0, stop, 2 {
        t: i32 = add total, i
        total = set t
      }
      n = set 9
      store out[l], total
    """
    run_kernel(body, HEAD, {"out": out})
    np.testing.assert_array_equal(out, [sum(range(0, 3 + lane, 2)) for lane in range(64)])


def test_a_loop_of_64_bit_numbers_counts_past_32_bits():
    out = np.zeros(64, np.int32)
    body = """
      var n: i32 = set 0
      l: i32 = lane
      for i: i64 = 4294967296:i64, 4294967306:i64, 5:i64 {
        t: i32 = add n, 1
        n = set t
      }
      store out[l], n
    """
    run_kernel(body, HEAD, {"out": out})
    assert set(out) == {2}


def test_a_step_that_goes_nowhere_is_refused():
    body = "l: i32 = lane\nfor i: i32 = 0, 4, l {\n}"
    with pytest.raises(SimulationError, match="a step of 0 or less"):
        run_kernel(body, HEAD, {"out": np.zeros(64, np.int32)})


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_a_loop_that_never_ends_is_refused(in_waves, monkeypatch):
    monkeypatch.setattr("poot.codegen.kir.sim.control.MAX_TRIPS", 50)
    body = "var m: i32 = set 0\nwhile {\nc: bool = lt m, 1\n} c {\n}"
    with pytest.raises(SimulationError, match="a loop while c ran 50 times") as found:
        run_kernel(body, HEAD, {"out": np.zeros(64, np.int32)}, in_waves=in_waves)
    assert found.value.kind == "deadlock"
