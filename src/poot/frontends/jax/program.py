"""`from_jax`: a JAX function as a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from poot.errors import TraceError
from poot.frontends.foreign import Foreign, Given
from poot.frontends.imported import Imported
from poot.frontends.jax.indices import with_from_end, with_ranges
from poot.frontends.jax.table import PRIMITIVES
from poot.frontends.jax.trees import read_function
from poot.frontends.lower import lower
from poot.ir.graph import Slot
from poot.trace import slot


def from_jax(
    fn: Callable[..., object],
    *args: object,
    weights: Sequence[int] | None = None,
    states: Sequence[int] = (),
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> Imported:
    """The graph and the weights of a JAX function, traced for arrays like `args`.

    An argument is an array, a `jax.ShapeDtypeStruct`, or a tree of them; leaves that are neither
    stay what they are. Those at the places `weights` become Weights in their own memory (without
    `weights` the first argument, if it is a tree), as do the arrays of a module that is called
    itself, and arrays that the function closes over; integers among them become Consts. Those at
    the places `states` become States, and the function returns (outputs, states), nested as they
    came, in a tuple where there are several. The others become slots. Names are the arguments',
    dotted: `params.params.Dense_0.kernel`. int64 becomes i32. A slot that indexes a table of
    weights gets its range, and one named in `ranges` the range (lo, hi), hi excluded, that stands
    there; without axes, or with one, it is a position: attention over a cache visits the keys up to
    there alone.
    Raises TraceError on arguments that don't fit, and UnsupportedOps with every call that there is
    no row for, and its line."""
    foreign = with_ranges(with_from_end(read_function(fn, args, weights, states)))
    return lower(_declared(foreign, dict(ranges or {})), PRIMITIVES, "from_jax")


def _declared(foreign: Foreign, ranges: dict[str, tuple[int, int]]) -> Foreign:
    """The program with the caller's ranges on its slots. Raises TraceError on a name that is no
    integer slot."""
    known = {
        g.name for g in foreign.givens if isinstance(g.storage, Slot) and g.type.dtype == "i32"
    }
    strange = sorted(ranges.keys() - known)
    if strange:
        what = f"from_jax needs ranges of integer inputs, {', '.join(sorted(known)) or 'none here'}"
        raise TraceError(f"{what}: got {', '.join(strange)}")
    return replace(foreign, givens=tuple(_ranged(g, ranges.get(g.name)) for g in foreign.givens))


def _ranged(given: Given, range: tuple[int, int] | None) -> Given:
    if range is None:
        return given
    kind = "pos" if len(given.type.shape) < 2 else "user"
    spec = slot(given.type.shape, given.type.dtype, kind=kind, range=range)
    return replace(given, storage=spec.storage)
