"""Saves a language model for `decode`: the bundle, its weights, a prompt and the vocabulary.

    python runtime/c/examples/smollm2.py FOLDER --target cpu-avx2 [--model FILE] [--prompt TEXT]

The target is a limits profile ("cpu-avx2" runs on any x86-64 with AVX2) or a device here.
"""

from __future__ import annotations

import argparse
import struct
import sys
from pathlib import Path

import poot
from poot.cli.generate import demo_model
from poot.llm.load import model_arrays, read_checkpoint, trace_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cpu-avx2")
    parser.add_argument("--model", type=Path, help="a GGUF file or a folder; SmolLM2-135M else")
    parser.add_argument("--prompt", default="The capital of France is")
    parser.add_argument("--capacity", type=int, default=128)
    parser.add_argument("--dtype", default="file")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = read_checkpoint(asked.model or demo_model(sys.stderr))
    kind = {"capacity": asked.capacity, "dtype": asked.dtype}
    program = poot.compile(trace_model(checkpoint, buckets=(1,), **kind), asked.target)
    program.save(asked.folder / "model.poot", model_arrays(checkpoint, **kind))
    ids = checkpoint.prompt_ids(asked.prompt)
    (asked.folder / "prompt.txt").write_text(" ".join(map(str, ids)) + "\n")
    tokens = [checkpoint.tokenizer.token_bytes(n) for n in range(len(checkpoint.tokenizer.tokens))]
    packed = b"".join(struct.pack("<I", len(t)) + t for t in tokens)
    (asked.folder / "vocabulary.bin").write_bytes(packed)
    for file in sorted(asked.folder.iterdir()):
        print(f"{file.stat().st_size:>12,} {file.name}")


if __name__ == "__main__":
    main()
