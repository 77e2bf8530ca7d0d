"""`poot chat`, on the oracle."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from poot.cli import main
from poot.cli.chat import talk
from poot.cli.options import Chat, parse
from poot.cli.paged import served
from poot.llm.request import Request
from tests.support.tiny_llama import CHAT, write_tiny_llama

OPTIONS = "--target oracle --capacity 128 --decode-rows 1 --prefill 1x16 --max-tokens 6"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def words(path: Path) -> list[str]:
    return ["chat", "--model", str(path), *OPTIONS.split()]


def test_each_line_gets_an_answer_that_knows_what_was_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("the\n\na\n/quit\nnever\n"))
    out, err = io.StringIO(), io.StringIO()
    assert main(words(path), out, err) == 0, err.getvalue()
    command = parse(words(path))
    assert isinstance(command, Chat)
    made = served(command.program, io.StringIO())
    checkpoint = made.checkpoint
    assert checkpoint.template is not None
    messages, want = [], ""
    for text in ("the", "a"):
        messages.append({"role": "user", "content": text})
        ids = checkpoint.tokenizer.encode(checkpoint.template.render(messages))
        handle = made.engine.submit(Request(tuple(ids), 6, stop_ids=checkpoint.tokenizer.stops))
        made.engine.run()
        messages.append({"role": "assistant", "content": handle.result(0).text})
        want += handle.result(0).text + "\n"
    assert out.getvalue() == want
    assert "one message a line" in err.getvalue()


def test_what_can_not_be_answered_is_said_and_the_talk_goes_on(path: Path):
    command = parse([*words(path), "--system", "a"])
    assert isinstance(command, Chat)
    made = served(command.program, io.StringIO())
    out, err = io.StringIO(), io.StringIO()
    made.engine.start()
    talk(made, command, ["x" * 200, "the"], out, err)
    made.engine.stop()
    assert "pass the cache's capacity of 128" in err.getvalue()
    assert out.getvalue().count("\n") == 1


def test_an_interrupt_ends_the_answer_and_not_the_talk(path: Path, monkeypatch: pytest.MonkeyPatch):
    command = parse(words(path))
    assert isinstance(command, Chat)
    made = served(command.program, io.StringIO())
    out = io.StringIO()
    written = out.write
    interrupts = iter([True])

    def write(text: str) -> int:
        if text.strip() and next(interrupts, False):
            raise KeyboardInterrupt
        return written(text)

    monkeypatch.setattr(out, "write", write)
    made.engine.start()
    talk(made, command, lines(), out, io.StringIO())
    made.engine.stop()
    assert out.getvalue().count("\n") == 2
    assert made.engine.metrics().finished == 2


def lines() -> Iterator[str]:
    yield "the"
    yield "a"


def test_a_model_without_a_template_says_so(path: Path):
    bare = write_tiny_llama(path.parent / "bare.gguf", keys={"tokenizer.chat_template": None})
    command = parse(words(bare))
    assert isinstance(command, Chat)
    made = served(command.program, io.StringIO())
    err = io.StringIO()
    talk(made, command, ["hi"], io.StringIO(), err)
    assert "bare.gguf has no chat template" in err.getvalue()
    assert "{% for" in CHAT
