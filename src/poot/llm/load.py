"""A checkpoint on a device: read, traced, compiled, bound, and ready to generate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poot import api
from poot.errors import RequestError
from poot.ir.graph import Graph
from poot.llm.chat import ChatTemplate
from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.generate import chunks, generate
from poot.llm.gguf_file import GgufFile, read_gguf
from poot.llm.json_config import read_json_config
from poot.llm.json_tokenizer import read_json_template, read_json_tokenizer
from poot.llm.models.decoder import decoder_arrays, decoder_graphs
from poot.llm.models.families.table import read_family
from poot.llm.models.llama import entry_name, llama_arrays, llama_graphs
from poot.llm.models.parts.kinds import Decoder
from poot.llm.models.parts.places import check_places
from poot.llm.sampling import Sampling
from poot.llm.tensor_files import TensorFiles, read_tensor_files
from poot.llm.tokenizer import Tokenizer, read_tokenizer
from poot.session import Session

Progress = Callable[[str, int, int], None]
BUCKETS = (1, 16, 64)
GRAIN = 64  # capacities are multiples of it, so that runs of like length share kernels


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checked checkpoint with what it says of its model: a GGUF file with a LlamaConfig, or a
    folder of safetensors with a Decoder. No weight is on a device yet."""

    file: GgufFile | TensorFiles
    config: LlamaConfig | Decoder
    tokenizer: Tokenizer
    template: ChatTemplate | None

    def prompt_ids(self, text: str, *, chat: bool = False) -> list[int]:
        """The ids of a prompt; with `chat`, of one user message in the checkpoint's own format.

        Raises RequestError where the checkpoint has no chat template.
        """
        if not chat:
            return self.tokenizer.encode(text)
        if self.template is None:
            raise RequestError(f"{self.file.path.name} has no chat template; leave --chat out")
        prompt = self.template.render([{"role": "user", "content": text}])
        return self.tokenizer.encode(prompt, add_bos=False)


def chunk_slots(tokens: NDArray[np.int32], pos: int, last: int) -> dict[str, object]:
    """The slots of a step of a chunk at `pos`; only a chunk of several tokens has a `last`."""
    slots: dict[str, object] = {"tokens": tokens, "pos": np.int32(pos)}
    if len(tokens) > 1:
        slots["last"] = np.int32(last)
    return slots


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model bound to a device. As a StepFn it runs one chunk in the entry point of its size."""

    checkpoint: Checkpoint
    program: api.Program
    session: Session
    capacity: int
    buckets: tuple[int, ...]

    def __call__(self, tokens: NDArray[np.int32], pos: int, last: int) -> NDArray[np.float32]:
        slots = chunk_slots(tokens, pos, last)
        logits = self.session.step(entry_name(len(tokens)), device_outputs=None, **slots)
        return np.asarray(logits, np.float32)

    def generate(
        self, prompt: Sequence[int], *, max_tokens: int, sampling: Sampling
    ) -> Iterator[int]:
        """Tokens that continue `prompt` from an emptied cache, up to one of the tokenizer's stops.
        Errors as `poot.llm.generate.generate`."""
        self.session.reset()
        return generate(
            self,
            prompt,
            capacity=self.capacity,
            buckets=self.buckets,
            max_tokens=max_tokens,
            sampling=sampling,
            stops=self.checkpoint.tokenizer.stops,
        )


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Read and check a GGUF file's header, configuration and tokenizer, or those of a folder with
    config.json, safetensors and tokenizer.json. Raises FormatError."""
    path = Path(path)
    if path.is_dir():
        return _read_folder(path)
    file = read_gguf(path)
    config = read_llama_config(file)
    tokenizer = read_tokenizer(file.metadata, file.path.name)
    source = file.metadata.get("tokenizer.chat_template")
    template = None
    if isinstance(source, str):
        ends = (tokenizer.bos, tokenizer.eos)
        bos, eos = ("" if end is None else tokenizer.tokens[end] for end in ends)
        template = ChatTemplate(source, file.path.name, bos, eos)
    return Checkpoint(file, config, tokenizer, template)


def _read_folder(folder: Path) -> Checkpoint:
    keys = read_json_config(folder / "config.json")
    model = read_family(keys)
    files = read_tensor_files(folder)
    check_places(model, files)
    tokenizer = read_json_tokenizer(folder, model.vocab, keys)
    return Checkpoint(files, model, tokenizer, read_json_template(folder, tokenizer))


def fitting(checkpoint: Checkpoint, prompt: int, max_tokens: int) -> tuple[int, tuple[int, ...]]:
    """(capacity, buckets) that serve a prompt of `prompt` tokens and `max_tokens` new ones: the
    capacity in whole GRAINs up to the model's context, the buckets that the prompt's chunks use.

    Raises RequestError where the context is too short, or either number is below 1.
    """
    if prompt < 1 or max_tokens < 1:
        raise RequestError(
            f"a prompt of {prompt} tokens and {max_tokens} new ones; needs 1 or more of each"
        )
    need, context = prompt + max_tokens, checkpoint.config.context
    if need > context:
        raise RequestError(
            f"a prompt of {prompt} tokens and {max_tokens} new ones pass the model's context of "
            f"{context}"
        )
    capacity = min(-(-need // GRAIN) * GRAIN, context)
    fit = [bucket for bucket in BUCKETS if bucket <= capacity]
    used = {chunk.bucket for chunk in chunks(0, prompt, fit, capacity)}
    return capacity, tuple(sorted({1} | used))


def trace_model(
    checkpoint: Checkpoint, *, capacity: int, buckets: Sequence[int], dtype: str
) -> dict[str, Graph]:
    """The model's entry points, by name."""
    file, config = checkpoint.file, checkpoint.config
    if isinstance(file, TensorFiles) and isinstance(config, Decoder):
        return decoder_graphs(file, config, capacity=capacity, buckets=buckets, dtype=dtype)
    assert isinstance(file, GgufFile)
    assert isinstance(config, LlamaConfig)
    return llama_graphs(file, config, capacity=capacity, buckets=buckets, dtype=dtype)


def model_arrays(checkpoint: Checkpoint, *, capacity: int, dtype: str) -> dict[str, np.ndarray]:
    """The arrays to bind to `trace_model`'s entry points of the same capacity and dtype."""
    file, config = checkpoint.file, checkpoint.config
    if isinstance(file, TensorFiles) and isinstance(config, Decoder):
        return decoder_arrays(file, config, capacity=capacity, dtype=dtype)
    assert isinstance(file, GgufFile)
    assert isinstance(config, LlamaConfig)
    return llama_arrays(file, config, capacity=capacity, dtype=dtype)


def load_model(
    checkpoint: Checkpoint,
    *,
    target: str,
    capacity: int,
    buckets: Sequence[int],
    dtype: str = "file",
    progress: Progress = lambda stage, done, total: None,
) -> LoadedModel:
    """Trace, compile for `target` and bind. `progress` hears (stage, done, total).

    Raises FormatError for a weight that is no number, BackendUnavailable for a target that can't
    run here, or a CapabilityError that names what does not fit.
    """
    progress("check weights", 0, 1)
    checkpoint.file.check_finite()
    progress("trace", 0, 1)
    graphs = trace_model(checkpoint, capacity=capacity, buckets=buckets, dtype=dtype)
    program = api.compile(graphs, target, progress=progress)
    progress("bind weights", 0, 1)
    session = program.bind(model_arrays(checkpoint, capacity=capacity, dtype=dtype))
    progress("bind weights", 1, 1)
    return LoadedModel(checkpoint, program, session, capacity, tuple(buckets))
