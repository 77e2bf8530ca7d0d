"""The command line's grammar."""

from __future__ import annotations

from pathlib import Path

import pytest

from poot.cli.options import DEMO_PROMPT, Devices, Explain, Generate, parse

DEMO = Generate(
    model=None,
    prompt=DEMO_PROMPT,
    chat=True,
    target="auto",
    dtype="file",
    max_tokens=48,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    seed=0,
)


def test_demo_needs_no_option_and_chats():
    assert parse(["demo"]) == DEMO


def test_generate_takes_every_option():
    words = "generate --model m.gguf --prompt hi --chat --target cpu --dtype f32 --max-tokens 5"
    words += " --temperature 0.5 --top-k 3 --top-p 0.9 --seed 7"
    want = Generate(Path("m.gguf"), "hi", True, "cpu", "f32", 5, 0.5, 3, 0.9, 7)
    assert parse(words.split()) == want


def test_generate_continues_the_prompt_as_it_is_unless_told_to_chat():
    command = parse(["generate", "--model", "m.gguf", "--prompt", "hi"])
    assert isinstance(command, Generate)
    assert (command.chat, command.max_tokens, command.temperature) == (False, None, 0.0)


@pytest.mark.parametrize(
    "words, dtype",
    [("", "file"), ("--target oracle", "f32"), ("--target oracle --dtype file", "file")],
)
def test_weights_stay_in_their_codes_except_on_the_oracle(words: str, dtype: str):
    command = parse(["demo", *words.split()])
    assert isinstance(command, Generate)
    assert command.dtype == dtype


def test_devices_and_explain_are_commands():
    assert parse(["devices"]) == Devices()
    assert parse(["explain", "--target", "h200", "--stage", "plan"]) == Explain(
        None, "h200", "file", 2048, 64, "plan", "decode"
    )


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("", "required: command"),
        ("fly", "invalid choice: 'fly'"),
        ("generate --prompt hi", "required: --model"),
        ("generate --model m.gguf", "required: --prompt"),
        ("demo --max-tokens many", "invalid int value: 'many'"),
        ("demo --dtype f16", "invalid choice: 'f16'"),
    ],
)
def test_a_command_that_does_not_parse_ends_with_2_and_says_why(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        parse(words.split())
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
