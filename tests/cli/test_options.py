"""The command line's grammar."""

from __future__ import annotations

from pathlib import Path

import pytest

from poot.cli.options import (
    DEMO_PROMPT,
    Chat,
    Devices,
    Explain,
    Generate,
    Program,
    Serve,
    parse,
)

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
        None, "h200", "file", 2048, 64, "plan", "decode", None, False
    )
    shown = parse(["explain", "--html", "a.html", "--measure"])
    assert isinstance(shown, Explain)
    assert (shown.html, shown.measure) == (Path("a.html"), True)


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("explain --measure", "--html"),
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


def test_serve_is_for_this_machine_alone_unless_told_otherwise():
    command = parse(["serve"])
    assert isinstance(command, Serve)
    assert (command.host, command.port, command.api_key_file) == ("127.0.0.1", 8000, None)
    assert command.program.model is None
    words = "serve --model m.gguf --host 0.0.0.0 --port 9 --api-key-file k --max-requests 3"
    words += " --max-prompt 4 --max-bytes 5 --drain 6 --name n --kv fp8 --blocks 7 --rank 8"
    words += " --adapter a=b --adapter c=d --prefill 1x8,2x16 --decode-rows 1,2"
    command = parse(words.split())
    assert isinstance(command, Serve)
    assert command.program == Program(
        Path("m.gguf"), "auto", "file", 2048, 7, (1, 2), ((1, 8), (2, 16)), "fp8",
        (("a", Path("b")), ("c", Path("d"))), 3, 8,
    )  # fmt: skip
    assert (command.most_requests, command.most_prompt, command.most_bytes) == (3, 4, 5)
    assert (command.drain, command.name) == (6.0, "n")


def test_places_for_adapters_follow_what_may_be_loaded():
    def of(words: str) -> tuple[int, Path | None]:
        command = parse(["serve", *words.split()])
        assert isinstance(command, Serve)
        return command.program.places, command.adapter_root

    assert of("") == (0, None)
    assert of("--adapter a=b") == (2, None)
    assert of("--adapter-root here") == (4, Path("here"))
    assert of("--adapter-root here --adapter a=b") == (5, Path("here"))
    assert of("--adapter-root here --adapter-places 9") == (9, Path("here"))


def test_every_help_of_a_model_names_folders_too(capsys: pytest.CaptureFixture[str]):
    for command in ("demo", "generate", "chat", "serve", "explain"):
        with pytest.raises(SystemExit):
            parse([command, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert "GGUF file, or folder of config.json, safetensors and tokenizer.json" in said


def test_chat_takes_sampling_options():
    words = "chat --system s --temperature 0.5 --max-tokens 9 --seed 3"
    command = parse(words.split())
    assert isinstance(command, Chat)
    assert (command.system, command.temperature, command.max_tokens) == ("s", 0.5, 9)


@pytest.mark.parametrize(
    "words",
    ["serve --adapter nameless", "serve --prefill 16", "serve --decode-rows one", "chat --port 1"],
)
def test_what_is_no_program_is_refused(words: str):
    with pytest.raises(SystemExit):
        parse(words.split())
