"""`poot explain`: what one compile of a checkpoint's model did, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np

from poot import api
from poot.cli.generate import demo_model
from poot.cli.options import Command, Explain
from poot.cli.progress import has_rich, reporting
from poot.errors import RequestError
from poot.explain.page import page
from poot.llm.load import (
    Checkpoint,
    LoadedModel,
    chunk_slots,
    load_model,
    read_checkpoint,
    trace_model,
)
from poot.llm.models.llama import entry_name
from poot.profile import Profile

_ROUNDS = 5  # runs of an entry point that is measured; the one of the middle is shown


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """Compile decode and one prefill chunk; print the report or one stage's text, or write the
    page. Raises RequestError where its file can't be written, before anything is compiled."""
    assert isinstance(command, Explain)
    if command.html is not None:
        _need_writable(command.html)
    checkpoint = read_checkpoint(command.model or demo_model(err))
    capacity = min(command.capacity, checkpoint.config.context)
    buckets = sorted({1, command.chunk})
    if command.measure and command.html is not None:
        _write(command.html, *_measured(command, checkpoint, capacity, buckets, err), out)
        return
    graphs = trace_model(checkpoint, capacity=capacity, buckets=buckets, dtype=command.dtype)
    with reporting(err, bars=err.isatty() and has_rich()) as progress:
        program = api.compile(graphs, command.target, progress=progress)
    if command.html is not None:
        _write(command.html, program, {}, out)
        return
    text = program.text(command.stage, command.entry) if command.stage else program.explain()
    print(text, file=out)


def _need_writable(path: Path) -> None:
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as e:
        raise RequestError(
            f"the page can't be written to {path}: {e.strerror}; name a file in a folder that is "
            "there"
        ) from e


def _write(path: Path, program: api.Program, profiles: dict[str, Profile], out: TextIO) -> None:
    path.write_text(page(program, profiles), encoding="utf-8")
    print(f"wrote {path}", file=out)


def _measured(
    command: Explain, checkpoint: Checkpoint, capacity: int, buckets: list[int], err: TextIO
) -> tuple[api.Program, dict[str, Profile]]:
    """The program and a profile of each entry point: of runs over an empty cache's end, the one
    whose sum is the median."""
    with reporting(err, bars=err.isatty() and has_rich()) as progress:
        model = load_model(
            checkpoint,
            target=command.target,
            capacity=capacity,
            buckets=buckets,
            dtype=command.dtype,
            progress=progress,
        )
        profiles: dict[str, Profile] = {}
        for n, bucket in enumerate(buckets):
            progress("measure", n, len(buckets))
            runs = sorted(
                (_profile(model, bucket, capacity) for _ in range(_ROUNDS)), key=lambda p: p.us
            )
            profiles[entry_name(bucket)] = runs[_ROUNDS // 2]
        progress("measure", len(buckets), len(buckets))
    model.session.close()
    return model.program, profiles


def _profile(model: LoadedModel, bucket: int, capacity: int) -> Profile:
    """One run at the cache's last positions, where attention has the most to read."""
    slots = chunk_slots(np.zeros(bucket, np.int32), capacity - bucket, bucket - 1)
    return model.session.profile(entry_name(bucket), **slots)
