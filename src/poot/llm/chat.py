"""Renders messages through a checkpoint's own chat template, in a sandbox.

The template is a stranger's program. It sees the messages and a few functions and changes nothing.
Its `range` loops, its repeated sequences and its output are bounded. Its memory is not: text that
doubles itself, or a format with an absurd width, is stopped by the machine's limit only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

from poot.errors import FormatError, RequestError
from poot.extras import refuse_missing

try:
    from jinja2 import TemplateError
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.llm")

MAX_TEXT = 1 << 22  # characters of a rendered prompt, or of a string the template repeats
MAX_TURNS = 1 << 18  # iterations of all `range` loops together
ROLES = ("system", "user", "assistant", "tool")

# What running a stranger's expressions can raise, besides the library's own errors.
_SLIPS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
# Methods and filters that make a text of any length from a number, and a global that makes many.
_PADDING = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map"})
_PADDING_FILTERS = ("center", "indent", "format", "wordwrap")


class _Refused(Exception):
    """The template called raise_exception: it finds the messages wrong."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox without powers, and with a bound on repeated sequences."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Powers are refused: a short one takes hours. So is a sequence past MAX_TEXT."""
        if operator == "**":
            raise ValueError("powers are not done here")
        if operator == "%" and isinstance(left, str):
            raise ValueError("texts are not formatted here: a width may be of any length")
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Sized) and isinstance(other, int) and len(one) * other > MAX_TEXT:
                raise ValueError(f"a sequence of {len(one)} repeated {other} times")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """What pads or formats a text is out of reach: its width may be of any length."""
        is_padding = isinstance(obj, str) and attr in _PADDING
        return not is_padding and super().is_safe_attribute(obj, attr, value)


class _Turns:
    """`range`, counting what all calls of one rendering ask for together."""

    def __init__(self) -> None:
        self._left = MAX_TURNS

    def __call__(self, *bounds: int) -> range:
        turns = range(*bounds)
        self._left -= len(turns) + 1
        if self._left < 0:
            raise ValueError(f"range loops of more than {MAX_TURNS} turns together")
        return turns


def _refuse(why: str) -> None:
    raise _Refused(why)


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """`tokenizer.chat_template` of the file `name`, with the texts of its bos and eos tokens."""

    source: str
    name: str
    bos: str = ""
    eos: str = ""

    def render(self, messages: Sequence[Mapping[str, str]], *, answer: bool = True) -> str:
        """The prompt for `messages`, each {"role", "content"}; with `answer`, up to where the
        assistant's answer begins. It spells control tokens: encode it with `special=True`.

        Raises RequestError for messages that are malformed or that the template refuses, and
        FormatError for a template that fails or passes the sandbox's bounds.
        """
        _check_messages(messages)
        sandbox = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        sandbox.filters["tojson"] = _tojson
        for name in _PADDING_FILTERS:
            del sandbox.filters[name]
        del sandbox.globals["lipsum"]
        pieces: list[str] = []
        length = 0
        try:
            template = sandbox.from_string(
                self.source, globals={"raise_exception": _refuse, "range": _Turns()}
            )
            for piece in template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=answer,
                bos_token=self.bos,
                eos_token=self.eos,
            ):
                pieces.append(piece)
                length += len(piece)
                if length > MAX_TEXT:
                    raise ValueError(f"a prompt of more than {MAX_TEXT} characters")
        except _Refused as refused:
            raise RequestError(f"{self.name}'s chat template refuses: {refused}") from refused
        except (TemplateError, *_SLIPS) as slip:
            raise FormatError(
                f"{self.name}: tokenizer.chat_template fails: {type(slip).__name__}: {slip}"
            ) from slip
        return "".join(pieces)


def _check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    if not messages:
        raise RequestError("a chat needs one message or more, got none")
    for i, message in enumerate(messages):
        if sorted(message) != ["content", "role"]:
            raise RequestError(f"message {i} has {sorted(message)}; needs role and content")
        if message["role"] not in ROLES:
            raise RequestError(f"message {i} has role {message['role']!r}; needs one of {ROLES}")
