"""`poot explain`: what one compile of a checkpoint's model did, and why."""

from __future__ import annotations

from typing import TextIO

from poot import api
from poot.cli.generate import demo_model
from poot.cli.options import Command, Explain
from poot.cli.progress import has_rich, reporting
from poot.llm.load import read_checkpoint, trace_model


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """Compile decode and one prefill chunk, and print the report or one stage's text."""
    assert isinstance(command, Explain)
    checkpoint = read_checkpoint(command.model or demo_model(err))
    graphs = trace_model(
        checkpoint,
        capacity=min(command.capacity, checkpoint.config.context),
        buckets=sorted({1, command.chunk}),
        dtype=command.dtype,
    )
    with reporting(err, bars=err.isatty() and has_rich()) as progress:
        program = api.compile(graphs, command.target, progress=progress)
    text = program.text(command.stage, command.entry) if command.stage else program.explain()
    print(text, file=out)
