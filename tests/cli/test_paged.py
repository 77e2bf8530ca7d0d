"""From a command's options to an engine."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from poot.cli.options import Serve, parse
from poot.cli.paged import served
from poot.errors import RequestError
from tests.llm.test_adapters import tensors_of, write
from tests.support.tiny_llama import write_tiny_llama


def test_options_become_a_layout(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    folder = write(tmp_path / "style", tensors_of(1))
    words = f"serve --model {path} --target oracle --capacity 4096 --kv int8 --rank 4"
    command = parse([*words.split(), "--adapter", f"style={folder}", "--decode-rows", "1,2"])
    assert isinstance(command, Serve)
    err = io.StringIO()
    made = served(command.program, err)
    layout = made.engine.layout
    assert (layout.capacity, layout.blocks, layout.kv) == (128, 4 * 8 + 1, "int8")
    assert (layout.adapters, layout.rank, layout.sampled) == (2, 4, True)
    assert made.engine.adapters.names == ("style",)
    assert "oracle; ready in" in err.getvalue()


def test_a_layout_that_can_not_be_is_refused(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    command = parse(["serve", "--model", str(path), "--target", "oracle", "--blocks", "1"])
    assert isinstance(command, Serve)
    with pytest.raises(RequestError, match="2 blocks or more"):
        served(command.program, io.StringIO())
