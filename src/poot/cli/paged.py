"""What `poot chat` and `poot serve` share: a model behind an engine, from the command's options."""

from __future__ import annotations

import time
from typing import TextIO

from poot.cli.generate import SLOW, demo_model
from poot.cli.options import Program
from poot.cli.progress import has_rich, reporting
from poot.knobs import knobs
from poot.llm.layout import Layout
from poot.llm.load import read_checkpoint
from poot.llm.serving import Served, default_blocks, serve_model


def served(asked: Program, err: TextIO) -> Served:
    """Loads the model, and names the device and the memory on `err`."""
    checkpoint = read_checkpoint(asked.model or demo_model(err))
    capacity = min(asked.capacity, checkpoint.config.context)
    layout = Layout(
        blocks=default_blocks(capacity) if asked.blocks is None else asked.blocks,
        capacity=capacity,
        decode_rows=asked.decode_rows,
        prefill=asked.prefill,
        kv=asked.kv,
        adapters=asked.places,
        rank=asked.rank,
        sampled=True,
    )
    started = time.perf_counter()
    with reporting(err, bars=err.isatty() and has_rich()) as progress:
        made = serve_model(
            checkpoint,
            layout,
            target=asked.target,
            dtype=asked.dtype,
            adapters=asked.adapters,
            digests=knobs().cache_dir,
            progress=progress,
        )
    device = made.program.device
    words = (
        made.program.target if device is None else f"{made.program.target}: {device.description}"
    )
    print(f"{words}; ready in {time.perf_counter() - started:.1f} s", file=err)
    if made.program.limits.is_software:
        print(SLOW, file=err)
    return made
