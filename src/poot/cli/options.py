"""The command line's grammar, and what it yields: one frozen record a command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

DEMO_PROMPT = "Write one sentence about a compiler."
DEFAULT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Generate:
    """`poot generate` and `poot demo`. `model` is None for the demonstration model, `max_tokens`
    for as many as DEFAULT_TOKENS and the model's context allow."""

    model: Path | None
    prompt: str
    chat: bool
    target: str
    dtype: str
    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    seed: int


@dataclass(frozen=True, slots=True)
class Devices:
    """`poot devices`."""


@dataclass(frozen=True, slots=True)
class Explain:
    """`poot explain`: one compile of a model, as its report or as the text of one stage."""

    model: Path | None
    target: str
    dtype: str
    capacity: int
    chunk: int
    stage: str
    entry: str


Command = Generate | Devices | Explain


def parser() -> argparse.ArgumentParser:
    """The grammar of `poot`."""
    top = argparse.ArgumentParser(
        prog="poot", description="Compiles array programs into GPU and CPU kernels."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser(
        "demo", help="generate text with a small model, fetched if it is missing"
    )
    demo.add_argument("--model", type=Path, help="another GGUF file")
    demo.add_argument("--prompt", default=DEMO_PROMPT, help=f"default: {DEMO_PROMPT!r}")
    _model_options(demo)
    _sampling_options(demo)
    demo.set_defaults(max_tokens=48)
    run = commands.add_parser("generate", help="generate text with a GGUF file")
    run.add_argument("--model", type=Path, required=True, help="a GGUF file")
    run.add_argument("--prompt", required=True)
    run.add_argument("--chat", action="store_true", help="as a message, in the model's own format")
    _model_options(run)
    _sampling_options(run)
    commands.add_parser("devices", help="list devices, and why a backend has none")
    explain = commands.add_parser("explain", help="what a model's compile did, and why")
    explain.add_argument("--model", type=Path, help="a GGUF file (default: the demo's)")
    _model_options(explain)
    explain.add_argument("--capacity", type=int, default=2048, help="positions of the KV cache")
    explain.add_argument("--chunk", type=int, default=64, help="rows of the prefill entry point")
    explain.add_argument("--stage", default="", help="print one stage's text instead")
    explain.add_argument("--entry", default="decode", help="whose stage (default: decode)")
    return top


def _model_options(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--target", default="auto", help="auto, or a device such as vulkan, wgpu, cpu, oracle"
    )
    to.add_argument(
        "--dtype",
        choices=("file", "f32", "bf16"),
        help="weights in the file's own codes, expanded, or expanded and rounded to bf16 (default: "
        "file; f32 on the oracle, which would decode them at each step)",
    )


def _sampling_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--max-tokens", type=int, metavar="N")
    to.add_argument("--temperature", type=float, default=0.0, help="0 (default): greedy")
    to.add_argument("--top-k", type=int, default=0, help="0 (default): all")
    to.add_argument("--top-p", type=float, default=1.0, help="1 (default): all")
    to.add_argument("--seed", type=int, default=0)


def _dtype(given: argparse.Namespace) -> str:
    return given.dtype or ("f32" if given.target == "oracle" else "file")


def parse(arguments: list[str]) -> Command:
    """The command that the arguments ask for. Leaves by SystemExit(2) where they ask for none."""
    given = parser().parse_args(arguments)
    if given.command == "devices":
        return Devices()
    if given.command == "explain":
        return Explain(
            model=given.model,
            target=given.target,
            dtype=_dtype(given),
            capacity=given.capacity,
            chunk=given.chunk,
            stage=given.stage,
            entry=given.entry,
        )
    return Generate(
        model=given.model,
        prompt=given.prompt,
        chat=given.command == "demo" or given.chat,
        target=given.target,
        dtype=_dtype(given),
        max_tokens=given.max_tokens,
        temperature=given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        seed=given.seed,
    )
