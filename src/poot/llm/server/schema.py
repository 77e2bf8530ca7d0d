"""What a client may send, checked by type and bound. What poot doesn't do is refused by name: a
field that would be ignored in silence is an error, unless it says what happens anyway."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from poot.errors import RequestError

MOST_CHOICES = 16
MOST_STOPS = 16
MOST_STOP_LENGTH = 256
# Fields that poot takes only at the value that changes nothing.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "logit_bias": (None, {}),
    "suffix": (None, ""),
    "echo": (None, False),
    "best_of": (None, 1),
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "functions": (None, []),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "store": (None, False),
}


class StreamOptions(BaseModel):
    """`include_usage`: a last chunk counts the tokens."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False


class Asked(BaseModel):
    """What both kinds of completion take. Above OpenAI's fields: `top_k`, `min_p`,
    `repetition_penalty`, `cache_salt`, `ignore_eos`, `timeout` (seconds). `user` and `metadata`
    are the client's own notes."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str = Field(max_length=512)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = Field(None, max_length=1024)
    ignore_eos: bool | None = None
    timeout: float | None = Field(None, gt=0)
    user: str | None = None
    metadata: dict[str, str] | None = None
    logit_bias: object = None
    best_of: object = None

    def stops(self) -> tuple[str, ...]:
        """The stop strings. Raises RequestError for too many, or one that is empty or too long."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(given) > MOST_STOPS:
            raise RequestError(f"stop has {len(given)} texts; at most {MOST_STOPS}")
        if any(not 1 <= len(text) <= MOST_STOP_LENGTH for text in given):
            raise RequestError(f"a stop text needs 1 to {MOST_STOP_LENGTH} characters")
        return tuple(given)

    def check(self) -> None:
        """Raises RequestError for a field that asks for what poot doesn't do."""
        for name, neutral in _NEUTRAL.items():
            value = getattr(self, name, None)
            if value not in neutral:
                raise RequestError(f"{name} is not supported; leave it out")
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options go with stream; leave them out")


class CompletionAsked(Asked):
    """POST /v1/completions. `prompt`: a text or token ids, or several of either."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    suffix: object = None
    echo: object = None

    def prompts(self) -> list[str | list[int]]:
        """Each prompt. Raises RequestError where there is none."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        rows = self.prompt
        if not rows:
            raise RequestError("the prompt is empty; needs one text or more")
        if isinstance(rows[0], int):
            return [[t for t in rows if isinstance(t, int)]]
        return [row for row in rows if not isinstance(row, int)]


class LoadAdapter(BaseModel):
    """POST /v1/load_lora_adapter: the adapter in a folder, by a name of its own. `load_inplace`:
    under a name that is there already."""

    model_config = ConfigDict(extra="forbid", strict=True)
    lora_name: str = Field(min_length=1, max_length=512)
    lora_path: str = Field(min_length=1, max_length=4096)
    load_inplace: bool = False


class UnloadAdapter(BaseModel):
    """POST /v1/unload_lora_adapter: forgets a name. `lora_int_id` means nothing here."""

    model_config = ConfigDict(extra="forbid", strict=True)
    lora_name: str = Field(min_length=1, max_length=512)
    lora_int_id: int | None = None


class TextPart(BaseModel):
    """A part of a message: text alone."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a chat. A developer's is a system's. Only an assistant's may be without
    content; it may come as it was answered, with a refusal of null."""

    model_config = ConfigDict(extra="forbid", strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None
    name: str | None = None
    refusal: None = None

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"the content of a message of {self.role} is null; needs text")
        return self

    def speaker(self) -> str:
        """The role by which templates know it."""
        return "system" if self.role == "developer" else self.role

    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class ChatAsked(Asked):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    max_completion_tokens: int | None = Field(None, ge=1)
    tools: object = None
    tool_choice: object = None
    response_format: object = None
    functions: object = None
    audio: object = None
    modalities: object = None
    store: object = None

    def scores(self) -> int | None:
        """How many of the likeliest tokens are scored beside each, None for no scores."""
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs go with logprobs: true")
        return (self.top_logprobs or 0) if self.logprobs else None
