"""`poot explain` of a checkpoint."""

from __future__ import annotations

import io
from pathlib import Path

from poot.cli import main
from tests.support.tiny_llama import write_tiny_llama


def call(path: Path, *words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    arguments = ["explain", "--model", str(path), "--capacity", "64", "--chunk", "16", *words]
    return main(arguments, out, err), out.getvalue(), err.getvalue()


def test_the_report_needs_no_device(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    code, out, err = call(path, "--target", "lavapipe")
    assert code == 0, err
    assert "decode" in out
    assert "prefill_16" in out
    assert "bytes" in out


def test_a_stage_prints_as_its_text(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    code, out, err = call(path, "--target", "lavapipe", "--stage", "trace", "--entry", "prefill_16")
    assert code == 0, err
    assert "dynamic_update_slice" in out


def test_a_stage_that_is_not_there_is_one_message(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    code, out, err = call(path, "--target", "lavapipe", "--stage", "dreams")
    assert (code, out) == (2, "")
    assert "dreams" in err


def test_a_page_is_written_with_times_where_it_runs(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    file = tmp_path / "out.html"
    code, out, err = call(path, "--target", "cpu", "--html", str(file), "--measure")
    assert code == 0, err
    assert str(file) in out
    text = file.read_text(encoding="utf-8")
    assert "prefill_16" in text
    assert "not measured" not in text


def test_a_page_that_can_not_be_written_is_one_message_before_anything_is_compiled(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    file = tmp_path / "nowhere" / "out.html"
    code, out, err = call(path, "--target", "lavapipe", "--html", str(file))
    assert (code, out) == (2, "")
    assert "out.html" in err
    assert "passes" not in err
