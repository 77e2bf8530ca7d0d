"""A byte-level tokenizer and its files, for a checkpoint folder of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.tiny_llama import CHAT, CONTROLS, MERGES, vocabulary

BOS = "<|im_start|>"


def byte_spec() -> dict[str, object]:
    """tokenizer.json of `tests.support.tiny_llama`'s vocabulary, with a bos before each text."""
    tokens = vocabulary()
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": c, "special": True, **special} for i, c in enumerate(CONTROLS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
                          "trim_offsets": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BOS, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [1], "tokens": [BOS]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [m.split(" ") for m in MERGES], "byte_fallback": False},
    }  # fmt: skip


def spaced_spec() -> dict[str, object]:
    """tokenizer.json of a vocabulary with U+2581 for a space, and bytes where it has no letter."""
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", *"abcdehlo"]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": letters[i], "special": True, **special} for i in range(3)
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(letters)},
                  "merges": [], "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
    }  # fmt: skip


def write_tokenizer(folder: Path, spec: dict[str, object], **beside: object) -> Path:
    """tokenizer.json and tokenizer_config.json in a folder."""
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    said = {"bos_token": BOS, "eos_token": {"content": "<|im_end|>"}, "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(said | beside))
    return folder
