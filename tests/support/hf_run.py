"""A saved tiny model in poot: read, traced, and stepped on the oracle or on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from poot.ir.graph import Graph, State
from poot.llm.json_config import read_json_config
from poot.llm.models.decoder import decoder_arrays, decoder_graphs
from poot.llm.models.families.table import read_family
from poot.llm.models.llama import entry_name
from poot.llm.models.parts.kinds import Decoder
from poot.llm.models.parts.places import check_places
from poot.llm.tensor_files import TensorFiles, read_tensor_files
from poot.oracle import run
from tests.support.everywhere import compile_on
from tests.support.hf_tiny import save_tiny

Step = Callable[[list[int], int], np.ndarray]
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 97, 48)]


@dataclass(frozen=True, slots=True)
class Tiny:
    """A checkpoint of the tiny model `name`."""

    files: TensorFiles
    model: Decoder

    def graphs(
        self, capacity: int, buckets: tuple[int, ...], dtype: str = "file"
    ) -> dict[str, Graph]:
        return decoder_graphs(
            self.files, self.model, capacity=capacity, buckets=buckets, dtype=dtype, all_logits=True
        )


@cache
def saved(name: str, dtype: str = "float32", vocab: int = 97) -> Path:
    """The folder of a tiny model's checkpoint."""
    return save_tiny(name, Path(mkdtemp(prefix="poot-tiny-")), dtype=dtype, vocab=vocab)


def tiny(name: str, dtype: str = "float32") -> Tiny:
    return read(saved(name, dtype))


def read(folder: Path) -> Tiny:
    """Config and tensors of a folder, checked."""
    model = read_family(read_json_config(folder / "config.json"))
    files = read_tensor_files(folder)
    check_places(model, files)
    return Tiny(files, model)


def on_oracle(graphs: dict[str, Graph], arrays: dict[str, np.ndarray]) -> Step:
    first = next(iter(graphs.values()))
    states = {
        i.name: np.zeros(i.var.type.shape, np.float32)
        for i in first.inputs
        if isinstance(i.storage, State)
    }

    def step(tokens: list[int], pos: int) -> np.ndarray:
        slots = {"tokens": np.array(tokens, np.int32), "pos": np.array(pos, np.int32)}
        result = run(graphs[entry_name(len(tokens))], arrays | states | slots)
        states.update(result.states)
        return result.outputs[0]

    return step


def stepper(given: Tiny, target: str, capacity: int, buckets: tuple[int, ...]) -> Step:
    """The model on a target, from an empty cache. Logits of all rows."""
    graphs = given.graphs(capacity, buckets)
    arrays = decoder_arrays(given.files, given.model, capacity=capacity)
    if target == "oracle":
        return on_oracle(graphs, arrays)
    session = compile_on(target, graphs).bind(arrays)

    def step(tokens: list[int], pos: int) -> np.ndarray:
        name, at = entry_name(len(tokens)), np.int32(pos)
        return np.array(session.step(name, tokens=np.array(tokens, np.int32), pos=at))

    return step


def fed(step: Step, ids: list[int], cuts: list[int]) -> np.ndarray:
    """The logits of ids, cut so."""
    assert sum(cuts) == len(ids)
    rows: list[np.ndarray] = []
    at = 0
    for count in cuts:
        rows.append(step(ids[at : at + count], at))
        at += count
    return np.concatenate(rows)
