"""Where a decoder's weights lie in a checkpoint: which tensors, of which shapes.

`Decoder.names` maps a weight to a tensor's name; those of a layer stand after `names["layers"]` and
the layer's number. A name with "{e}" is one tensor for each expert, bound as one weight [experts,
...]. A name without ".weight" or ".bias" gets it; one that begins with "=" is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from poot.errors import FormatError
from poot.llm.models.parts.coded import check_coded, has_codes
from poot.llm.models.parts.feed import dense_shapes, experts_shapes
from poot.llm.models.parts.heads import heads_shapes
from poot.llm.models.parts.kinds import Coding, Decoder, Dense, Heads, Layer, Norm
from poot.llm.models.parts.latent import latent_shapes
from poot.llm.tensor_files import TensorFiles

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A weight of `shape`: one tensor, or one for each entry of its first axis."""

    tensors: tuple[str, ...]
    shape: Shape
    is_stacked: bool

    @property
    def each(self) -> Shape:
        """The shape of each tensor."""
        return self.shape[1:] if self.is_stacked else self.shape

    def is_coded(self, files: TensorFiles, coding: Coding | None) -> bool:
        """Whether the checkpoint has the weight in codes: all of it, or FormatError. Vectors and
        what stands outside the layers are never in codes."""
        found = {has_codes(files, coding, name) for name in self.tensors}
        if found == {True, False}:
            raise FormatError(
                f"{files.folder.name}: some of {self.tensors[0]} and its like are in codes and "
                "some are not; needs one kind for all experts of a layer"
            )
        return len(self.shape) > 1 and found == {True}


def layer_places(model: Decoder, index: int, prefix: str = "") -> dict[str, Place]:
    """The weights of one layer, by name; `prefix` stands before all names."""
    layer = model.layers[index]
    head = f"{prefix}{model.names['layers']}.{index}."
    return {
        name: _place(head, model.names, name, shape)
        for name, shape in _layer_shapes(layer, model.width).items()
    }


def outer_places(model: Decoder, prefix: str = "") -> dict[str, Place]:
    """The weights outside the layers, by name."""
    shapes: dict[str, Shape] = {"embed": (model.vocab, model.width)}
    if model.embed_norm is not None:
        shapes |= _norm_shapes("embed_norm", model.embed_norm, model.width)
    shapes |= _norm_shapes("norm", model.norm, model.width)
    places = {n: _place(prefix, model.names, n, shape) for n, shape in shapes.items()}
    if not model.is_tied:
        places["head"] = _place("", model.names, "head", shapes["embed"])
    return places


def prefix_of(model: Decoder, files: TensorFiles) -> str:
    """What stands before the names of a checkpoint: the family's own, or nothing where the base
    model was saved by itself."""
    own = model.names["prefix"]
    embed = _place(own, model.names, "embed", ()).tensors[0]
    bare = embed.removeprefix(own)
    return "" if embed not in files.tensors and bare in files.tensors else own


def lora_targets(layer: Layer, width: int) -> dict[str, tuple[int, int]]:
    """The matrices of a layer that an adapter may change: name -> (in, out). Routers, experts and
    what latent attention multiplies into its queries are none."""
    return {
        name: (shape[1], shape[0])
        for name, shape in _layer_shapes(layer, width).items()
        if len(shape) == 2 and name not in ("router", "kv_b") and not name.startswith("each_")
    }


def lora_modules(model: Decoder) -> dict[str, tuple[int, str]]:
    """The modules that an adapter may change by their names in the checkpoint, from the layers'
    name on -> (layer, matrix)."""
    head = model.names["layers"]
    return {
        f"{head}.{i}.{model.names[name]}": (i, name)
        for i, layer in enumerate(model.layers)
        for name in lora_targets(layer, model.width)
    }


def check_places(model: Decoder, files: TensorFiles) -> None:
    """Raises FormatError unless the checkpoint holds the tensors that follow from the model, in
    their shapes and in a dtype that poot reads, and no others."""
    prefix = prefix_of(model, files)
    wanted: set[str] = set()
    for place in _all(model, prefix):
        if place.is_coded(files, model.coding):
            assert model.coding is not None
            for name in place.tensors:
                wanted |= check_coded(files, model.coding, name, place.each)
            continue
        for name in place.tensors:
            found = files.info(name)
            if found.shape != place.each:
                raise FormatError(
                    f"{found.file}: tensor {name} has shape {list(found.shape)}; config.json makes "
                    f"it {list(place.each)}"
                )
            files.dtype(name)
            wanted.add(name)
        kinds = sorted({files.info(name).dtype for name in place.tensors})
        if len(kinds) > 1:
            raise FormatError(
                f"{files.folder.name}: tensors {place.tensors[0]} and its like are of "
                f"{' and '.join(kinds)}; needs one dtype for all experts of a layer"
            )
    strange = [name for name in sorted(files.tensors.keys() - wanted) if not _skips(model, name)]
    if strange:
        raise FormatError(
            f"{files.info(strange[0]).file}: poot's {model.family} has no tensor {strange[0]} "
            f"({len(strange)} such), so it would compute something else"
        )


def _all(model: Decoder, prefix: str) -> Iterator[Place]:
    yield from outer_places(model, prefix).values()
    for i in range(len(model.layers)):
        yield from layer_places(model, i, prefix).values()


def _skips(model: Decoder, name: str) -> bool:
    is_tied_head = model.is_tied and name == "lm_head.weight"
    return is_tied_head or any(name.endswith(e) or name.startswith(e) for e in model.ignored)


def _layer_shapes(layer: Layer, width: int) -> dict[str, Shape]:
    a, f = layer.attention, layer.feed
    made = _norm_shapes("norm_in", layer.norm, width)
    made |= heads_shapes(a, width) if isinstance(a, Heads) else latent_shapes(a, width)
    if layer.has_post_norms:
        made |= _norm_shapes("norm_mixed", layer.norm, width)
    made |= _norm_shapes("norm_feed", layer.norm, width)
    made |= dense_shapes(f, width) if isinstance(f, Dense) else experts_shapes(f, width)
    if layer.has_post_norms:
        made |= _norm_shapes("norm_fed", layer.norm, width)
    return made


def _norm_shapes(name: str, norm: Norm, width: int) -> dict[str, Shape]:
    gain: dict[str, Shape] = {name: (width,)}
    return gain | ({f"{name}_bias": (width,)} if norm.is_layer and norm.is_biased else {})


def _place(head: str, names: dict[str, str], name: str, shape: Shape) -> Place:
    spelled = names.get(name)
    if spelled is None:
        spelled = f"={names[name.removesuffix('_bias')]}.bias"
    whole = spelled[1:] if spelled.startswith("=") else f"{spelled}.weight"
    if "{e}" in whole:
        return Place(
            tuple(head + whole.replace("{e}", str(e)) for e in range(shape[0])), shape, True
        )
    return Place((head + whole,), shape, False)
