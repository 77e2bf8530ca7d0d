"""The command line's grammar, and what it yields: one frozen record a command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

DEMO_PROMPT = "Write one sentence about a compiler."
DEFAULT_TOKENS = 128
MODEL = "GGUF file, or folder of config.json, safetensors and tokenizer.json"
MORE_PLACES = 4  # for adapters that clients load, where nobody says


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
    """`poot explain`: one compile of a model, as its report, as the text of one stage, or with
    `html` as a page, with times where it is to `measure`."""

    model: Path | None
    target: str
    dtype: str
    capacity: int
    chunk: int
    stage: str
    entry: str
    html: Path | None
    measure: bool


@dataclass(frozen=True, slots=True)
class Program:
    """What a paged program is made with. `adapters` are (name, PEFT folder), and `places` how many
    may be loaded at once; `blocks` is None for four sequences of the whole capacity."""

    model: Path | None
    target: str
    dtype: str
    capacity: int
    blocks: int | None
    decode_rows: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...]
    kv: str
    adapters: tuple[tuple[str, Path], ...]
    places: int
    rank: int


@dataclass(frozen=True, slots=True)
class Chat:
    """`poot chat`: messages from stdin, one a line, answers on stdout."""

    program: Program
    system: str
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int


@dataclass(frozen=True, slots=True)
class Serve:
    """`poot serve`: the HTTP server. `api_key_file` holds the key that clients have to show;
    from folders below `adapter_root` they may load adapters, from none where it is None."""

    program: Program
    name: str
    host: str
    port: int
    api_key_file: Path | None
    adapter_root: Path | None
    most_requests: int
    most_prompt: int | None
    most_bytes: int
    drain: float
    arrival: float


Command = Generate | Devices | Explain | Chat | Serve


def parser() -> argparse.ArgumentParser:
    """The grammar of `poot`."""
    top = argparse.ArgumentParser(
        prog="poot", description="Compiles array programs into GPU and CPU kernels."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser(
        "demo", help="generate text with a small model, fetched if it is missing"
    )
    demo.add_argument("--model", type=Path, help=f"another {MODEL}")
    demo.add_argument("--prompt", default=DEMO_PROMPT, help=f"default: {DEMO_PROMPT!r}")
    _model_options(demo)
    _sampling_options(demo)
    demo.set_defaults(max_tokens=48)
    run = commands.add_parser("generate", help="generate text with a model")
    run.add_argument("--model", type=Path, required=True, help=MODEL)
    run.add_argument("--prompt", required=True)
    run.add_argument("--chat", action="store_true", help="as a message, in the model's own format")
    _model_options(run)
    _sampling_options(run)
    _add_chat(commands.add_parser("chat", help="talk with a model, message by message"))
    _add_serve(commands.add_parser("serve", help="serve a model over HTTP, as OpenAI's API"))
    commands.add_parser("devices", help="list devices, and why a backend has none")
    explain = commands.add_parser("explain", help="what a model's compile did, and why")
    explain.add_argument("--model", type=Path, help=f"{MODEL} (default: the demo's)")
    _model_options(explain)
    explain.add_argument("--capacity", type=int, default=2048, help="positions of the KV cache")
    explain.add_argument("--chunk", type=int, default=64, help="rows of the prefill entry point")
    explain.add_argument("--stage", default="", help="print one stage's text instead")
    explain.add_argument("--entry", default="decode", help="whose stage (default: decode)")
    explain.add_argument("--html", type=Path, metavar="FILE", help="write it as a page instead")
    explain.add_argument(
        "--measure", action="store_true", help="run it on the device: the page tells times"
    )
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


def _add_chat(to: argparse.ArgumentParser) -> None:
    _program_options(to)
    to.add_argument("--system", default="", help="what the model is told first")
    _sampling_options(to)
    to.set_defaults(max_tokens=512)


def _add_serve(to: argparse.ArgumentParser) -> None:
    _program_options(to)
    to.add_argument("--name", default="", help="the model's name for clients (default: the file's)")
    to.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    to.add_argument("--port", type=int, default=8000)
    to.add_argument("--api-key-file", type=Path, help="a file with the key clients have to show")
    to.add_argument(
        "--adapter-root", type=Path, metavar="FOLDER",
        help="lets clients load adapters from folders below this one (default: they may not)",
    )  # fmt: skip
    to.add_argument("--max-requests", type=int, default=64, help="served at once (default: 64)")
    to.add_argument("--max-prompt", type=int, help="tokens of a prompt (default: the capacity)")
    to.add_argument("--max-bytes", type=int, default=1 << 20, help="of a request's body")
    to.add_argument("--arrival", type=float, default=30.0, help="seconds for a body to come whole")
    to.add_argument("--drain", type=float, default=30.0, help="seconds for what runs at the end")


def _program_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--model", type=Path, help=f"{MODEL} (default: the demo's)")
    _model_options(to)
    to.add_argument("--capacity", type=int, default=2048, help="positions of one sequence")
    to.add_argument("--blocks", type=int, help="of 16 positions, for all sequences together")
    to.add_argument("--decode-rows", type=_numbers, default=(1, 4), metavar="1,4,...")
    to.add_argument("--prefill", type=_buckets, default=((1, 16), (1, 64)), metavar="1x16,1x64,...")
    to.add_argument("--kv", default="f32", help="f32, f16, bf16, int8 or fp8: how a cache is kept")
    to.add_argument("--adapter", type=_adapter, action="append", default=[], metavar="NAME=FOLDER")
    to.add_argument("--adapter-places", type=int, metavar="N", help="how many are loaded at once")
    to.add_argument("--rank", type=int, default=16, help="the largest rank of an adapter")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _buckets(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.split("x") for part in text.split(",")]
    return tuple((int(rows), int(tokens)) for rows, tokens in pairs)


def _adapter(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"needs NAME=FOLDER: {text}")
    return name, Path(folder)


def _program(given: argparse.Namespace) -> Program:
    return Program(
        model=given.model,
        target=given.target,
        dtype=_dtype(given),
        capacity=given.capacity,
        blocks=given.blocks,
        decode_rows=given.decode_rows,
        prefill=given.prefill,
        kv=given.kv,
        adapters=tuple(given.adapter),
        places=_places(given),
        rank=given.rank,
    )


def _places(given: argparse.Namespace) -> int:
    """As many as asked for; else those given and one more to reload into, or MORE_PLACES where
    clients may load some."""
    if given.adapter_places is not None:
        return given.adapter_places
    more = MORE_PLACES if getattr(given, "adapter_root", None) else 1
    return len(given.adapter) + more if given.adapter or more > 1 else 0


def _dtype(given: argparse.Namespace) -> str:
    return given.dtype or ("f32" if given.target == "oracle" else "file")


def parse(arguments: list[str]) -> Command:
    """The command that the arguments ask for. Leaves by SystemExit(2) where they ask for none."""
    grammar = parser()
    given = grammar.parse_args(arguments)
    if given.command == "devices":
        return Devices()
    if given.command == "explain":
        if given.measure and given.html is None:
            grammar.error("--measure needs --html")
        return Explain(
            model=given.model,
            target=given.target,
            dtype=_dtype(given),
            capacity=given.capacity,
            chunk=given.chunk,
            stage=given.stage,
            entry=given.entry,
            html=given.html,
            measure=given.measure,
        )
    if given.command == "chat":
        return Chat(
            program=_program(given),
            system=given.system,
            max_tokens=given.max_tokens,
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            seed=given.seed,
        )
    if given.command == "serve":
        return Serve(
            program=_program(given),
            name=given.name,
            host=given.host,
            port=given.port,
            api_key_file=given.api_key_file,
            adapter_root=given.adapter_root,
            most_requests=given.max_requests,
            most_prompt=given.max_prompt,
            most_bytes=given.max_bytes,
            drain=given.drain,
            arrival=given.arrival,
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
