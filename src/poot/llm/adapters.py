"""LoRA adapters: read from PEFT's files, and kept in the States of a session while it runs."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from poot.errors import FormatError, RequestError
from poot.extras import refuse_missing
from poot.llm.layout import Layout
from poot.llm.stepper import Bound

try:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType] - its path
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.llm")

STATES = "lora."  # the names of the adapters' States begin so
FACTORS = {".lora_A.weight": "A", ".lora_B.weight": "B"}
# Keys of adapter_config.json that change what an adapter computes, with the values that don't.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
}
MOST_ALPHA, MOST_SAID = 1 << 24, 60
_FACTOR_DTYPES = ("float16", "bfloat16", "float32", "float64")
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Factors by (layer, matrix): a f32 [rank, in] and b f32 [rank, out], the scale in b. What it
    adds to a matrix's output is h @ a^T @ b."""

    rank: int
    factors: Mapping[tuple[int, str], tuple[F32, F32]]


class AdapterShelf:
    """Which adapter lies in which place of a session's States. Place 0 is none, and adds nothing.
    Loaded and unloaded between steps; the rest from any thread."""

    def __init__(self, session: Bound, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self._names: dict[str, int] = {}
        self._users = [0] * (layout.adapters + 1)
        self._generations = [0] * (layout.adapters + 1)
        self._loads = 0
        self._lock = threading.Lock()
        self._held: dict[str, F32] = {
            name: np.zeros(i.var.type.shape, np.float32)
            for name, i in session.state_inputs.items()
            if name.startswith(STATES)
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._names))

    def generation(self, place: int) -> int:
        """The number of the load that filled a place; 0 for place 0. No two loads have one."""
        return self._generations[place]

    def need(self, name: str) -> int:
        """The place of a name. Raises RequestError for one that is not loaded."""
        place = self._names.get(name)
        if place is None:
            known = ", ".join(self.names) or "none"
            raise RequestError(f"there is no adapter {name!r}; loaded: {known}")
        return place

    def hold(self, name: str) -> int:
        """The place of a name, for a request that runs until `let_go`."""
        with self._lock:
            place = self.need(name)
            self._users[place] += 1
            return place

    def let_go(self, place: int) -> None:
        """One request less runs with the adapter of a place."""
        with self._lock:
            self._users[place] -= 1
            assert self._users[place] >= 0

    def load(self, name: str, adapter: Adapter) -> None:
        """Writes an adapter into a free place and lets the name mean it. Raises RequestError where
        none is free or it doesn't fit the program."""
        if not name:
            raise RequestError("an adapter needs a name")
        self._check(name, adapter)
        free = self.free_places()
        if not free:
            raise RequestError(
                f"all {self._layout.adapters} places for adapters are in use; unload one, or lay "
                "the program out with more"
            )
        self._write(free[0], adapter)
        with self._lock:
            self._loads += 1
            self._generations[free[0]] = self._loads
            self._names[name] = free[0]

    def free_places(self) -> tuple[int, ...]:
        """The places that no name means and nobody runs with."""
        used = set(self._names.values())
        places = range(1, len(self._users))
        return tuple(p for p in places if p not in used and not self._users[p])

    def unload(self, name: str) -> None:
        """Forgets a name. Raises RequestError for one that is not loaded."""
        with self._lock:
            self.need(name)
            self._names.pop(name)

    def _check(self, name: str, adapter: Adapter) -> None:
        if adapter.rank > self._layout.rank:
            raise RequestError(
                f"adapter {name!r} is of rank {adapter.rank}; the program has room for "
                f"{self._layout.rank}"
            )
        for (layer, matrix), (a, b) in adapter.factors.items():
            key = f"{STATES}{layer}.{matrix}"
            if f"{key}.a" not in self._held:
                raise RequestError(f"adapter {name!r} is for {matrix} of layer {layer}, which the "
                                   "program doesn't adapt")  # fmt: skip
            wanted = tuple(self._held[f"{key}.{f}"].shape[2] for f in "ab")
            if (a.shape, b.shape) != ((adapter.rank, wanted[0]), (adapter.rank, wanted[1])):
                raise RequestError(
                    f"adapter {name!r}: factors of {matrix} in layer {layer} are {list(a.shape)} "
                    f"and {list(b.shape)}; needs [{adapter.rank}, {wanted[0]}] and "
                    f"[{adapter.rank}, {wanted[1]}]"
                )

    def _write(self, place: int, adapter: Adapter) -> None:
        for name, held in self._held.items():
            layer, matrix, factor = name.removeprefix(STATES).split(".")
            pair = adapter.factors.get((int(layer), matrix))
            row = held[place]
            row[:] = 0
            if pair is not None:
                row[: adapter.rank] = pair["ab".index(factor)]
            self._session.state[name] = held


@dataclass(frozen=True, slots=True)
class Modules:
    """Which modules of a model an adapter may change: `places` maps the end of a module's name to
    (layer, matrix). `pairs` are matrices whose rows stand in pairs in poot (GGUF's Llama), with
    their heads: an adapter's are moved likewise, from PEFT's half-split order."""

    places: Mapping[str, tuple[int, str]]
    pairs: Mapping[str, int]

    def place(self, module: str) -> tuple[int, str] | None:
        """(layer, matrix) of a module's whole name."""
        parts = module.split(".")
        ends = (".".join(parts[i:]) for i in range(len(parts)))
        return next((self.places[end] for end in ends if end in self.places), None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The last parts of the modules' names, once each."""
        return tuple(dict.fromkeys(name.rpartition(".")[2] for name in self.places))


def read_adapter(folder: Path | str, modules: Modules) -> Adapter:
    """The LoRA adapter in a folder of PEFT's: adapter_config.json and adapter_model.safetensors.

    Raises FormatError for files that are missing or aren't what they say, and for adapters that
    compute something else (DoRA, biases, ranks by pattern, whole modules)."""
    folder = Path(folder)
    config = _config(folder / "adapter_config.json")
    rank, scale = _scale(config, folder.name)
    path = folder / "adapter_model.safetensors"
    halves: dict[tuple[int, str], dict[str, F32]] = {}
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, AttributeError, TypeError, ValueError, KeyError) as e:
        # numpy's reader meets dtypes that numpy hasn't by errors of Python's own
        raise FormatError(f"{path.name} can't be read: {e}") from e
    for key, values in sorted(tensors.items()):
        layer, matrix, factor = _place(key, path.name, modules)
        halves.setdefault((layer, matrix), {})[factor] = _checked(values, key, path.name)
    factors: dict[tuple[int, str], tuple[F32, F32]] = {}
    for (layer, matrix), pair in halves.items():
        if pair.keys() != {"A", "B"} or pair["A"].shape[0] != rank or pair["B"].shape[1] != rank:
            raise FormatError(
                f"{path.name}: {matrix} of layer {layer} needs lora_A [{rank}, in] and lora_B "
                f"[out, {rank}]: { ({k: list(v.shape) for k, v in sorted(pair.items())}) }"
            )
        with np.errstate(over="ignore"):
            b = pair["B"] * np.float32(scale)
        if not np.isfinite(b).all():
            raise FormatError(f"{path.name}: lora_B of {matrix} in layer {layer} times the scale "
                              f"{scale} passes what f32 holds")  # fmt: skip
        if matrix in modules.pairs:
            b = _in_pairs(b, modules.pairs[matrix])
        factors[layer, matrix] = (pair["A"], np.ascontiguousarray(b.T))
    if not factors:
        raise FormatError(f"{path.name} holds no adapter")
    return Adapter(rank, factors)


def _config(path: Path) -> dict[str, object]:
    try:
        config: object = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise FormatError(f"{path.name} can't be read: {e}") from e
    if not isinstance(config, dict):
        raise FormatError(f"{path.name} is no JSON object")
    return cast("dict[str, object]", config)  # JSON keys are texts


def _scale(config: dict[str, object], name: str) -> tuple[int, float]:
    """(rank, alpha / rank, or alpha / sqrt(rank) where the adapter says so)."""
    for key, neutral in _NEUTRAL.items():
        if key in config and config[key] not in neutral:
            raise FormatError(
                f"adapter {name}: {key} is {_said(config[key])}; poot does no such adapter"
            )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= 1 << 12:
        raise FormatError(f"adapter {name}: r is {_said(rank)}; needs an integer from 1 to 4096")
    number = alpha if isinstance(alpha, int | float) and not isinstance(alpha, bool) else None
    if number is None or not abs(number) <= MOST_ALPHA:
        raise FormatError(
            f"adapter {name}: lora_alpha is {_said(alpha)}; needs a number up to 2^24"
        )
    return rank, number / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _said(value: object) -> str:
    """What a file says, cut to a length that a message bears."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}..."


def _place(key: str, name: str, modules: Modules) -> tuple[int, str, str]:
    """(layer, matrix, "A" or "B") of a tensor's name, which is a module's with "lora_A.weight" or
    "lora_B.weight" behind it."""
    tail = next((t for t in FACTORS if key.endswith(t)), "")
    found = modules.place(key.removesuffix(tail)) if tail else None
    if found is None:
        raise FormatError(
            f"{name}: tensor {key} is no LoRA factor of {', '.join(modules.kinds)} of a layer that "
            "the model has"
        )
    return *found, FACTORS[tail]


def _checked(values: np.ndarray, key: str, name: str) -> F32:
    if values.dtype.name not in _FACTOR_DTYPES:
        raise FormatError(
            f"{name}: tensor {key} is {values.dtype}; factors are f16, bf16, f32 or f64"
        )
    with np.errstate(over="ignore"):
        wide = values.astype(np.float32)
    if wide.ndim != 2 or not np.isfinite(wide).all():
        raise FormatError(
            f"{name}: tensor {key} {list(wide.shape)} needs two axes of finite numbers"
        )
    return wide


def _in_pairs(b: F32, heads: int) -> F32:
    """Rows [heads * D, rank] from half-split order, where row i turns with row i + D/2, to
    pairs."""
    if b.shape[0] % (2 * heads):
        raise FormatError(f"lora_B of {b.shape[0]} rows has no {heads} heads of even width")
    apart = b.reshape(heads, 2, -1, b.shape[1])
    return apart.swapaxes(1, 2).reshape(b.shape)
