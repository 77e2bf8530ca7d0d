"""What a configuration says of weights in codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poot.errors import FormatError
from poot.llm.json_config import part
from poot.llm.keys import Keys
from poot.llm.models.families.read import need_neutral
from poot.llm.models.parts.kinds import Coding

MAX_GROUP = 1 << 20  # columns; a group of -1 is a whole row


def read_coding(keys: Keys) -> Coding | None:
    """How the checkpoint's matrices are coded, None where they aren't. Raises FormatError for a
    method or an option that poot does not read."""
    said = part(keys, "quantization_config")
    if not said.values:
        return None
    method = said.values.get("quant_method", "a kind not named")
    if method not in METHODS:
        raise FormatError(
            f"{keys.name}: the weights are quantised ({method}); poot reads "
            f"{', '.join(sorted(METHODS))}"
        )
    return METHODS[str(method)](said)


def _fp8(said: Keys) -> Coding:
    need_neutral(said, {"fmt": ("e4m3",), "activation_scheme": ("dynamic",)})
    rows, columns = 128, 128
    if "weight_block_size" in said.values:
        rows, columns = said.integers("weight_block_size", 2)
        if not (0 < rows <= MAX_GROUP and 0 < columns <= MAX_GROUP):
            raise said.refuse("weight_block_size", "two extents above 0")
    return Coding("fp8", (rows, columns))


def _compressed(said: Keys) -> Coding:
    need_neutral(said, {"format": ("float-quantized",), "kv_cache_scheme": ()})
    groups = {k.split(".")[1] for k in said.values if k.startswith("config_groups.")}
    if len(groups) != 1:
        raise FormatError(f"{said.name}: has {len(groups)} config_groups; poot reads one")
    weights = part(said, f"config_groups.{groups.pop()}.weights")
    need_neutral(weights, {"strategy": ("channel", "tensor")})
    if (weights.integer("num_bits", 1, 64), weights.text("type")) != (8, "float"):
        raise weights.refuse("num_bits", "8, of type float")
    return Coding("fp8_rows")


def _mxfp4(said: Keys) -> Coding:
    return Coding("mxfp4")


def _group(said: Keys) -> int:
    size = said.integer("group_size", -1, MAX_GROUP, 128)
    if size == 0:
        raise said.refuse("group_size", "-1, or 1 and more")
    return MAX_GROUP if size == -1 else size


def _awq(said: Keys) -> Coding:
    need_neutral(said, {"bits": (4,), "zero_point": (True,), "version": ("gemm", "GEMM")})
    return Coding("awq", (1, _group(said)))


def _gptq(said: Keys) -> Coding:
    formats = ("gptq", "gptq_v2")
    need_neutral(said, {"bits": (4,), "checkpoint_format": formats, "lm_head": (False,)})
    is_second = said.values.get("checkpoint_format") == "gptq_v2"
    return Coding("gptq", (1, _group(said)), zero=0 if is_second else 1)


METHODS: Mapping[str, Callable[[Keys], Coding]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
}
