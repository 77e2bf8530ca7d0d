"""A checkpoint behind an engine, and the digest of its file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from poot.errors import RequestError
from poot.llm.layout import Layout
from poot.llm.load import read_checkpoint
from poot.llm.request import Request
from poot.llm.serving import checkpoint_digest, content_digest, default_blocks, serve_model
from tests.llm.test_adapters import tensors_of, write
from tests.support.hf_adapter import merged_logits, write_adapter
from tests.support.hf_run import read, saved
from tests.support.hf_tiny import hf_logits
from tests.support.json_bytes import byte_spec, write_tokenizer
from tests.support.tiny_llama import write_tiny_llama

LAYOUT = Layout(blocks=13, capacity=64, decode_rows=(1,), prefill=((1, 16),), adapters=1, rank=4)


def test_a_checkpoint_is_served_with_its_adapters(tmp_path: Path):
    checkpoint = read_checkpoint(write_tiny_llama(tmp_path / "tiny.gguf"))
    heard: list[str] = []
    made = serve_model(
        checkpoint,
        LAYOUT,
        target="oracle",
        dtype="f32",
        adapters=[("style", write(tmp_path / "style", tensors_of(1)))],
        digests=tmp_path,
        progress=lambda stage, done, total: heard.append(stage),
    )
    prompt = tuple(checkpoint.prompt_ids("the a"))
    handles = [made.engine.submit(Request(prompt, 5, adapter=a)) for a in (None, "style")]
    made.engine.run()
    assert handles[0].result(0).tokens != handles[1].result(0).tokens
    assert list(dict.fromkeys(heard))[:2] == ["check weights", "trace"]
    assert len(list((tmp_path / "digests").iterdir())) == 1


def test_a_capacity_past_the_context_is_refused(tmp_path: Path):
    checkpoint = read_checkpoint(write_tiny_llama(tmp_path / "tiny.gguf"))
    with pytest.raises(RequestError, match="129 passes the model's context of 128"):
        serve_model(checkpoint, Layout(blocks=20, capacity=129), target="oracle")


def test_default_blocks_hold_four_whole_sequences():
    assert default_blocks(64) == 17
    assert default_blocks(65) == 21


def test_a_digest_is_of_the_bytes_and_is_computed_once(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"weights")
    other.write_bytes(b"weights")
    kept = tmp_path / "kept"
    digest = content_digest(one, kept)
    assert digest == content_digest(other) == content_digest(one)
    (entry,) = (kept / "digests").iterdir()
    row = json.loads(entry.read_text())
    entry.write_text(json.dumps({**row, "digest": "as kept"}))
    assert content_digest(one, kept) == "as kept"
    one.write_bytes(b"weights, changed")
    changed = content_digest(one, kept)
    assert changed not in (digest, "as kept")
    for torn in ("{", "[]", '{"stamp": 1}', json.dumps({**row, "digest": 3})):
        entry.write_text(torn)
        assert content_digest(one, kept) == changed


def test_a_folder_is_served_and_its_digest_follows_its_files(tmp_path: Path):
    shutil.copytree(saved("qwen3", vocab=263), tmp_path / "m")
    folder = write_tokenizer(tmp_path / "m", byte_spec())
    checkpoint = read_checkpoint(folder)
    layout = Layout(blocks=20, capacity=64)
    served = serve_model(checkpoint, layout, target="oracle")
    prompt = tuple(checkpoint.prompt_ids("the a"))
    handle = served.engine.submit(Request(prompt, 6))
    served.engine.run()
    got = handle.result(0).tokens
    for i, token in enumerate(got):
        logits = hf_logits("qwen3", [*prompt, *got[:i]], vocab=263)[-1]
        assert logits[token] >= logits.max() - 1e-3
    before = checkpoint_digest(checkpoint)
    assert checkpoint_digest(read_checkpoint(folder)) == before
    config = folder / "config.json"
    config.write_text(config.read_text().replace("10000.0", "20000.0"))
    assert checkpoint_digest(read_checkpoint(folder)) != before


def test_a_folders_adapter_is_loaded_with_it(tmp_path: Path):
    shutil.copytree(saved("qwen3", vocab=263), tmp_path / "m")
    folder = write_tokenizer(tmp_path / "m", byte_spec())
    adapter = write_adapter(read(folder), tmp_path / "adapter")
    layout = Layout(blocks=20, capacity=64, prefill=((1, 16),), adapters=1)
    served = serve_model(
        read_checkpoint(folder), layout, target="oracle", adapters=[("a", adapter)]
    )
    prompt = (5, 6, 7, 8)
    handle = served.engine.submit(Request(prompt, 4, adapter="a"))
    served.engine.run()
    got = handle.result(0).tokens
    for i, token in enumerate(got):
        logits = merged_logits("qwen3", adapter, [*prompt, *got[:i]], vocab=263)[-1]
        assert logits[token] >= logits.max() - 1e-3
