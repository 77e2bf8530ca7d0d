"""A checkpoint behind an engine: traced over pools, compiled, bound, and ready for requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import cast

import numpy as np

from poot import api
from poot.errors import CaptureUnavailable, RequestError
from poot.ir.graph import Graph
from poot.llm.adapters import Modules, read_adapter
from poot.llm.blocks import blocks_for
from poot.llm.config import LlamaConfig
from poot.llm.engine import Engine, EngineOptions
from poot.llm.gguf_file import GgufFile
from poot.llm.layout import Layout
from poot.llm.load import Checkpoint, Progress
from poot.llm.models.paged_decoder import paged_decoder_arrays, paged_decoder_graphs
from poot.llm.models.paged_llama import llama_modules, paged_llama_arrays, paged_llama_graphs
from poot.llm.models.parts.kinds import Decoder
from poot.llm.models.parts.places import lora_modules
from poot.llm.tensor_files import TensorFiles
from poot.session import Session

SEQUENCES = 4  # of the whole capacity, that the pools have room for where nobody says


@dataclass(frozen=True, slots=True)
class Served:
    """A model bound to a device, with its engine, which is not started. `modules`: what its
    adapters may change."""

    checkpoint: Checkpoint
    program: api.Program
    session: Session
    engine: Engine
    modules: Modules


def default_blocks(capacity: int) -> int:
    """Blocks for SEQUENCES sequences, and the reserved one."""
    return SEQUENCES * blocks_for(capacity) + 1


def serve_model(
    checkpoint: Checkpoint,
    layout: Layout,
    *,
    target: str,
    dtype: str = "file",
    adapters: Sequence[tuple[str, Path]] = (),
    options: EngineOptions | None = None,
    digests: Path | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Served:
    """Trace, compile for `target`, bind, and load the adapters (name, PEFT folder). `digests`: a
    folder that keeps checkpoints' digests.

    Raises RequestError for a capacity past the model's context, and what `load_model` raises."""
    config = checkpoint.config
    if layout.capacity > config.context:
        raise RequestError(
            f"a capacity of {layout.capacity} passes the model's context of {config.context}"
        )
    progress("check weights", 0, 1)
    checkpoint.file.check_finite()
    digest = checkpoint_digest(checkpoint, digests)
    progress("trace", 0, 1)
    graphs = paged_graphs(checkpoint, layout, dtype=dtype)
    program = api.compile(graphs, target, progress=progress)
    progress("bind weights", 0, 1)
    session = program.bind(paged_arrays(checkpoint, layout, dtype=dtype))
    with suppress(CaptureUnavailable):  # then each step's launches are issued one by one
        for entry in graphs:
            session.capture(entry)
    engine = Engine(
        session,
        layout,
        vocab=config.vocab,
        weights=digest,
        tokenizer=checkpoint.tokenizer,
        options=options,
    )
    modules = adapter_modules(checkpoint)
    for name, folder in adapters:
        engine.load_adapter(name, read_adapter(folder, modules))
    progress("bind weights", 1, 1)
    return Served(checkpoint, program, session, engine, modules)


def adapter_modules(checkpoint: Checkpoint) -> Modules:
    """What an adapter of the checkpoint's model may change."""
    config = checkpoint.config
    if isinstance(config, Decoder):
        return Modules(lora_modules(config), {})
    return Modules(llama_modules(config), {"q": config.heads, "k": config.kv_heads})


def paged_graphs(checkpoint: Checkpoint, layout: Layout, *, dtype: str) -> dict[str, Graph]:
    """The entry points of a layout."""
    file, config = checkpoint.file, checkpoint.config
    if isinstance(file, TensorFiles) and isinstance(config, Decoder):
        return paged_decoder_graphs(file, config, layout, dtype=dtype)
    assert isinstance(file, GgufFile)
    assert isinstance(config, LlamaConfig)
    return paged_llama_graphs(file, config, layout, dtype=dtype)


def paged_arrays(checkpoint: Checkpoint, layout: Layout, *, dtype: str) -> dict[str, np.ndarray]:
    """The arrays to bind to them."""
    file, config = checkpoint.file, checkpoint.config
    if isinstance(file, TensorFiles) and isinstance(config, Decoder):
        return paged_decoder_arrays(file, config, layout, dtype=dtype)
    assert isinstance(file, GgufFile)
    assert isinstance(config, LlamaConfig)
    return paged_llama_arrays(file, config, layout, dtype=dtype)


def checkpoint_digest(checkpoint: Checkpoint, folder: Path | None = None) -> str:
    """The digest of a checkpoint's weights and of what shapes them, kept as `content_digest` keeps
    it."""
    file = checkpoint.file
    if isinstance(file, GgufFile):
        return content_digest(file.path, folder)
    hashed = blake2b(digest_size=16)
    for path in (file.folder / "config.json", *file.paths):
        hashed.update(path.name.encode() + content_digest(path, folder).encode())
    return hashed.hexdigest()


def content_digest(path: Path, folder: Path | None = None) -> str:
    """The digest of a checkpoint file's bytes. In `folder` it is kept with the file's size and
    time, and read again only where these have changed."""
    stat = path.stat()
    stamp: list[object] = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    name = blake2b(str(path.resolve()).encode(), digest_size=16).hexdigest()
    kept = None if folder is None else folder / "digests" / f"{name}.json"
    if kept is not None and kept.is_file():
        found = _kept_digest(kept, stamp)
        if found is not None:
            return found
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            hashed.update(piece)
    digest = hashed.hexdigest()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(".new")
        made.write_text(json.dumps({"stamp": stamp, "digest": digest}))
        made.replace(kept)
    return digest


def _kept_digest(path: Path, stamp: list[object]) -> str | None:
    """The digest that was kept with this stamp; None for another's, or an entry that is torn."""
    try:
        row: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(row, dict):
        return None
    fields = cast("dict[str, object]", row)  # JSON keys are texts
    digest = fields.get("digest")
    return digest if fields.get("stamp") == stamp and isinstance(digest, str) else None
