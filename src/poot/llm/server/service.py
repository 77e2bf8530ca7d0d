"""From a client's request to requests of the engine: models by name, prompts to ids, bounds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from poot.errors import RequestError
from poot.llm.chat import ChatTemplate
from poot.llm.engine import Engine
from poot.llm.request import Request
from poot.llm.sampling import Sampling
from poot.llm.server.schema import Asked, ChatAsked, CompletionAsked
from poot.llm.tokenizer import Tokenizer

DEFAULT_TOKENS = 16  # of a completion, as OpenAI's
DEFAULT_CHAT_TOKENS = 512
MOST_PROMPTS = 64


class NoSuchModel(RequestError):
    """The client names a model that isn't here."""


@dataclass(frozen=True, slots=True)
class Work:
    """Requests for the engine, each an answer's choice, in order; `prompts` has the size of each
    prompt, once."""

    requests: tuple[Request, ...]
    prompts: tuple[int, ...]
    model: str


@dataclass(frozen=True, slots=True)
class Service:
    """An engine with what makes ids of a client's text. `name` is the base model's; an adapter that
    is loaded is a model of its own name."""

    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    name: str
    most_prompt: int | None = None

    def models(self) -> tuple[str, ...]:
        """What a client may name."""
        return (self.name, *self.engine.adapters.names)

    def completion(self, asked: CompletionAsked) -> Work:
        """Raises RequestError, NoSuchModel for a model that isn't here."""
        asked.check()
        rows = asked.prompts()
        if len(rows) * (asked.n or 1) > MOST_PROMPTS:
            raise RequestError(f"{len(rows)} prompts times n are more than {MOST_PROMPTS} texts")
        prompts = [self.tokenizer.encode(r) if isinstance(r, str) else list(r) for r in rows]
        return self._work(asked, prompts, asked.max_tokens or DEFAULT_TOKENS, asked.logprobs)

    def chat(self, asked: ChatAsked) -> Work:
        """Raises RequestError, NoSuchModel for a model that isn't here. A message may not spell a
        control token, which would speak in another's name."""
        asked.check()
        if self.template is None:
            raise RequestError(f"the model {self.name} has no chat template; ask for a completion")
        messages = [{"role": m.speaker(), "content": m.text()} for m in asked.messages]
        for i, message in enumerate(messages):
            spelled = self.tokenizer.control_in(message["content"])
            if spelled is not None:
                raise RequestError(f"message {i} spells the control token {spelled}; take it out")
        text = self.template.render(messages)
        prompt = self.tokenizer.encode(text, add_bos=False)
        wanted = asked.max_completion_tokens or asked.max_tokens
        left = max(1, self.engine.layout.capacity - len(prompt))
        count = min(DEFAULT_CHAT_TOKENS, left) if wanted is None else wanted
        return self._work(asked, [prompt], count, asked.scores())

    def _work(
        self, asked: Asked, prompts: Sequence[list[int]], count: int, scores: int | None
    ) -> Work:
        adapter = self._adapter(asked.model)
        longest = max(map(len, prompts))
        if self.most_prompt is not None and longest > self.most_prompt:
            raise RequestError(
                f"a prompt of {longest} tokens; this server takes up to {self.most_prompt}"
            )
        stop_ids = frozenset[int]() if asked.ignore_eos else self.tokenizer.stops
        seed = secrets.randbits(32) if asked.seed is None else asked.seed % 2**32
        requests: list[Request] = []
        for prompt in prompts:
            for _ in range(asked.n or 1):
                requests.append(
                    Request(
                        prompt=tuple(prompt),
                        max_tokens=count,
                        sampling=_sampling(asked, (seed + len(requests)) % 2**32),
                        stop_ids=stop_ids,
                        stops=asked.stops(),
                        logprobs=scores,
                        adapter=adapter,
                        salt=asked.cache_salt or "",
                        deadline=asked.timeout,
                    )
                )
        return Work(tuple(requests), tuple(map(len, prompts)), asked.model)

    def _adapter(self, model: str) -> str | None:
        if model == self.name:
            return None
        if model not in self.engine.adapters.names:
            known = ", ".join(self.models())
            raise NoSuchModel(f"there is no model {model!r}; models: {known}")
        return model


def _sampling(asked: Asked, seed: int) -> Sampling:
    """OpenAI's defaults, so temperature 1 where none is given."""
    return Sampling(
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_k=asked.top_k or 0,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=seed,
        min_p=asked.min_p or 0.0,
        penalty=1.0 if asked.repetition_penalty is None else asked.repetition_penalty,
        presence=asked.presence_penalty or 0.0,
        frequency=asked.frequency_penalty or 0.0,
    )
