"""The chat template, and what its sandbox stops."""

from __future__ import annotations

import time

import pytest

from poot.errors import FormatError, RequestError
from poot.llm.chat import ChatTemplate
from tests.support.smollm2 import smollm2

HELLO = [{"role": "user", "content": "Hi"}]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "m.gguf", bos="<s>", eos="</s>")


def test_smollm2_renders_its_own_format():
    chat = ChatTemplate(str(smollm2().metadata["tokenizer.chat_template"]), "smollm2")
    system = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n"
    )
    turn = "<|im_start|>user\nHi<|im_end|>\n"
    assert chat.render(HELLO) == f"{system}{turn}<|im_start|>assistant\n"
    assert chat.render(HELLO, answer=False) == system + turn
    own = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert chat.render(own, answer=False) == f"<|im_start|>system\nBe brief.<|im_end|>\n{turn}"


def test_a_template_sees_bos_eos_messages_and_its_functions():
    source = (
        "{{ bos_token }}{% for m in messages %}{{ loop.index }}{{ m.content | tojson }}"
        "{% break %}{% endfor %}{% for i in range(2) %}{{ i * 3 }}{{ '-' * i }}{% endfor %}"
        "{{ eos_token }}"
    )
    assert template(source).render([{"role": "user", "content": "<é>"}]) == '<s>1"<é>"03-</s>'


def test_blocks_leave_no_blank_lines():
    assert template("{% if true %}\n  {% set x = 1 %}\na\n{% endif %}\n").render(HELLO) == "a\n"


def test_a_refusal_of_the_template_is_the_requests_error():
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
    with pytest.raises(RequestError, match=r"m.gguf's chat template refuses: system first"):
        template(source).render(HELLO)


@pytest.mark.parametrize(
    "source, words",
    [
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ absent.x }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 1 + 'a' }}", "TypeError"),
        ("{{ 9 ** 999999999 }}", "powers"),
        ("{{ 'a' * 99999999999 }}", "repeated 99999999999 times"),
        ("{{ 99999999999 * 'a' }}", "repeated 99999999999 times"),
        ("{% for i in range(99999999999) %}{% endfor %}", "range loops"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "range loops",
        ),
        ("{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "prompt of more than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% include '/etc/passwd' %}", "TypeError"),
    ],
)
def test_a_template_that_fails_or_runs_wild_is_the_files_error_at_once(source: str, words: str):
    started = time.perf_counter()
    with pytest.raises(FormatError, match=f"m.gguf: tokenizer.chat_template fails: .*{words}"):
        template(source).render(HELLO)
    assert time.perf_counter() - started < 2.0


@pytest.mark.parametrize(
    "messages, words",
    [
        ([], "needs one message or more"),
        ([{"role": "user"}], r"message 0 has \['role'\]; needs role and content"),
        ([*HELLO, {"role": "user", "content": "a", "x": "y"}], "message 1 has"),
        ([{"role": "robot", "content": "a"}], "message 0 has role 'robot'"),
    ],
)
def test_malformed_messages_are_named(messages: list[dict[str, str]], words: str):
    with pytest.raises(RequestError, match=words):
        template("{{ messages }}").render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%1000000000s' % 'a' }}",
        "{{ 'a'.ljust(30000000000) }}",
        "{{ 'a'.zfill(30000000000) }}",
        "{{ 'x'|center(2000000000) }}",
        "{{ '{:>3000000000}'.format('a') }}",
        "{{ lipsum(n=1000000)|length }}",
    ],
)
def test_a_text_padded_to_any_length_is_refused_at_once(source: str):
    with pytest.raises(FormatError):
        ChatTemplate(source, "hostile.gguf").render([{"role": "user", "content": "x"}])
