"""From sums to outputs: the products' elements as leaves of the epilogue, and launches for outputs
that no product reaches."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.elementwise import store_items
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.gen.matmul.parts import Products, Segment
from poot.codegen.gen.pull import Leaf
from poot.codegen.gen.reduce import reduce_call
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import Val
from poot.errors import CapabilityError
from poot.limits import DeviceLimits
from poot.planner.request import Request

Others = Callable[[int, Coords], Val]


def product_leaf(value: Val, own: Coords, loc: str, other: Leaf | None = None) -> Leaf:
    """A product's element for its own index, and by `other` for others; without it another index's
    is a CapabilityError."""

    def leaf(coords: Coords) -> Val:
        if coords != own and other is not None:
            return other(coords)
        if coords != own:
            raise CapabilityError(
                "an epilogue asks for another element than its product's own", loc
            )
        return value

    return leaf


def store_element(
    job: Job,
    segment: Segment,
    sinks: dict[int, Sink],
    own: Coords,
    sums: list[Val],
    others: Others | None = None,
) -> None:
    """Rounds the products' sums (f32) to their dtype and stores the outputs' elements they make.
    `others` gives the sum of a product (by number) at another index."""
    for n, (product, total) in enumerate(zip(segment.products, sums, strict=True)):
        dtype = product.out.type.dtype
        value = job.numbers.rounded(total, dtype)

        def other(coords: Coords, n: int = n, dtype: str = dtype) -> Val:
            assert others is not None
            return job.numbers.rounded(others(n, coords), dtype)

        found = other if others is not None else None
        job.pull.leaves[product.out.id] = product_leaf(value, own, product.loc, found)
    for n in segment.outputs:
        sink = sinks[n]
        anchor = _nearest(segment, job, sink)
        coords = forward(job, segment.products[anchor].out, sink.source, own)
        sink.store(job, coords, job.pull.value(sink.source, coords))


def _nearest(segment: Segment, job: Job, sink: Sink) -> int:
    """The first product from which a way leads to the sink's source."""
    for i, product in enumerate(segment.products):
        if sink.source.id == product.out.id:
            return i
    reached = {p.out.id: {p.out.id} for p in segment.products}
    for eqn in job.request.body.eqns:
        for ids in reached.values():
            if any(v.id in ids for v in eqn.ins):
                ids.update(v.id for v in eqn.outs)
    for i, product in enumerate(segment.products):
        if sink.source.id in reached[product.out.id]:
            return i
    raise CapabilityError("an output that no product of its segment reaches")


def product_sinks(job: Job, products: Products) -> dict[int, Sink]:
    """The sinks of the outputs that products reach, by output number."""
    wanted = tuple(n for s in products.segments for n in s.outputs)
    return {n: sink for n in wanted for sink in open_sinks(job, (n,))}


def side_calls(
    request: Request, limits: DeviceLimits, products: Products
) -> tuple[KernelCall, ...]:
    """Launches for the outputs that no product reaches: elementwise, or with folds."""
    if not products.aside:
        return ()
    folded: set[int] = set()
    for eqn in request.body.eqns:
        if eqn.op == "reduce" or any(v.id in folded for v in eqn.ins):
            folded.update(v.id for v in eqn.outs)
    outputs = request.body.outputs
    rows = tuple(n for n in products.aside if outputs[n].id in folded)
    plain = tuple(n for n in products.aside if outputs[n].id not in folded)
    threads = min(64, limits.threads)
    calls: list[KernelCall] = []
    if plain:
        job = open_job(request, limits, "elementwise", threads)
        job.bind_inputs(skip=(i for _, i in request.updates))
        calls.append(store_items(job, open_sinks(job, plain), 1))
    if rows:
        calls.append(reduce_call(request, limits, threads, threads, rows))
    return tuple(calls)
