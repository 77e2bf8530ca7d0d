"""`poot generate` from the arguments to the text, on the oracle."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from poot.cli import main
from poot.cli.generate import Counted
from poot.llm.load import load_model, read_checkpoint
from poot.llm.sampling import Sampling
from tests.support.tiny_llama import write_tiny_llama


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return main(list(arguments), out, err), out.getvalue(), err.getvalue()


def generated(path: Path, ids: list[int], sampling: Sampling) -> str:
    checkpoint = read_checkpoint(path)
    model = load_model(checkpoint, target="oracle", capacity=64, buckets=(1, 16))
    tokens = model.generate(ids, max_tokens=10, sampling=sampling)
    return checkpoint.tokenizer.decode(tokens)


def test_text_goes_to_out_and_the_device_and_the_rate_to_err(path: Path):
    words = ["--model", str(path), "--prompt", "the a", "--target", "oracle", "--max-tokens", "10"]
    code, out, err = call("generate", *words)
    assert code == 0
    ids = read_checkpoint(path).prompt_ids("the a")
    assert out == "the a" + generated(path, ids, Sampling()) + "\n"
    assert err.startswith("check weights ...\ntrace ...\n")
    assert "oracle; ready in" in err
    assert f"tokens after a prompt of {len(ids)}" in err


def test_chat_leaves_the_prompt_out_and_a_seed_repeats(path: Path):
    words = ["generate", "--model", str(path), "--prompt", "hi", "--chat", "--target", "oracle"]
    words += ["--max-tokens", "10", "--temperature", "0.9", "--seed", "11", "--dtype", "f32"]
    ids = read_checkpoint(path).prompt_ids("hi", chat=True)
    code, out, _ = call(*words)
    assert code == 0
    assert out == generated(path, ids, Sampling(temperature=0.9, seed=11)) + "\n"
    assert call(*words)[1] == out


def test_without_a_number_the_context_bounds_the_tokens(path: Path):
    long = "x" * 126
    code, _, err = call("generate", "--model", str(path), "--prompt", long, "--target", "oracle")
    assert code == 0, err
    assert "after a prompt of 126" in err


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--model", "absent.gguf"], "poot: needs a regular file: path=absent.gguf"),
        (["--temperature", "-1"], "poot: temperature is -1.0"),
        (["--max-tokens", "999"], "poot: a prompt of 2 tokens and 999 new ones pass"),
        (["--max-tokens", "0"], "poot: a prompt of 2 tokens and 0 new ones; needs 1 or more"),
        (["--target", "abacus"], "abacus"),
    ],
)
def test_an_error_is_one_message_and_2(path: Path, words: list[str], complaint: str):
    given = ["--model", str(path), "--prompt", "hi", "--target", "oracle", *words]
    code, out, err = call("generate", *given)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err


def test_the_rate_leaves_the_first_token_out():
    tokens = Counted(iter([1, 2, 3]))
    assert list(tokens) == [1, 2, 3]
    tokens.first, tokens.rest = 2.0, 0.5
    assert (
        tokens.report(7) == "3 tokens after a prompt of 7; the first in 2.00 s, then 4.00 a second"
    )
    nothing = Counted(iter(()))
    assert list(nothing) == []
    assert nothing.report(7) == "0 tokens after a prompt of 7"
