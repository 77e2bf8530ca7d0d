"""One row a family: the architecture that config.json names, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from poot.errors import FormatError
from poot.llm.keys import Keys
from poot.llm.models.families.coding import read_coding
from poot.llm.models.families.gemma import read_gemma2, read_gemma3
from poot.llm.models.families.others import (
    read_bloom,
    read_deepseek_v2,
    read_deepseek_v3,
    read_gpt_oss,
    read_mpt,
)
from poot.llm.models.families.plain import (
    read_llama,
    read_mistral,
    read_mixtral,
    read_phi3,
    read_qwen2,
    read_qwen3,
    read_qwen3_moe,
)
from poot.llm.models.parts.kinds import Decoder

FAMILIES: Mapping[str, Callable[[Keys], Decoder]] = {
    "BloomForCausalLM": read_bloom,
    "DeepseekV2ForCausalLM": read_deepseek_v2,
    "DeepseekV3ForCausalLM": read_deepseek_v3,
    "Gemma2ForCausalLM": read_gemma2,
    "Gemma3ForCausalLM": read_gemma3,
    "GptOssForCausalLM": read_gpt_oss,
    "LlamaForCausalLM": read_llama,
    "MistralForCausalLM": read_mistral,
    "MixtralForCausalLM": read_mixtral,
    "MptForCausalLM": read_mpt,
    "Phi3ForCausalLM": read_phi3,
    "Qwen2ForCausalLM": read_qwen2,
    "Qwen3ForCausalLM": read_qwen3,
    "Qwen3MoeForCausalLM": read_qwen3_moe,
}


def read_family(keys: Keys) -> Decoder:
    """The model that a config.json describes.

    Raises FormatError for an architecture without a row, naming it and the rows, and for keys that
    are missing, absurd, or ask for what poot's family does not do."""
    names = keys.texts("architectures")
    known = ", ".join(sorted(FAMILIES))
    if len(names) != 1 or names[0] not in FAMILIES:
        raise FormatError(
            f"{keys.name}: the architecture is {', '.join(names) or 'not named'}; poot has {known}"
        )
    return replace(FAMILIES[names[0]](keys), coding=read_coding(keys))
