"""What clients get, in the shapes of OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poot.llm.request import Finish, Piece, TokenLogprob

Json = dict[str, object]
Spell = Callable[[int], bytes]


def error_body(message: str, kind: str, *, code: str | None = None) -> Json:
    """The body of an answer that is an error. Half a surrogate pair in a message comes as "?"."""
    text = message.encode("utf-8", errors="replace").decode()
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def usage(finishes: Sequence[Finish], prompts: Sequence[int]) -> Json:
    """Tokens of each prompt once, and of all answers."""
    asked, made = sum(prompts), sum(f.tokens for f in finishes)
    return {
        "prompt_tokens": asked,
        "completion_tokens": made,
        "total_tokens": asked + made,
        "prompt_tokens_details": {"cached_tokens": sum(f.cached for f in finishes)},
    }


@dataclass(frozen=True, slots=True)
class Shape:
    """One of the two kinds of answer, for one request. `spell` gives a token's bytes."""

    name: str
    model: str
    is_chat: bool
    spell: Spell
    created: int

    def _head(self, kind: str) -> Json:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model}

    def whole(self, choices: list[Json], counts: Json) -> Json:
        """The answer of a request that doesn't stream."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": counts}

    def choice(self, index: int, pieces: Sequence[Piece], finish: Finish) -> Json:
        """One text with why it ended ("stop", "length", or poot's own "cancelled" and "deadline")
        and, where asked for, its scores."""
        text = "".join(p.text for p in pieces)
        body: Json = {"text": text}
        if self.is_chat:
            body = {"message": {"role": "assistant", "content": text, "refusal": None}}
        scores = self.scores(pieces, 0)
        return {"index": index, **body, "logprobs": scores, "finish_reason": finish.reason}

    def chunk(self, choices: list[Json], counts: Json | None = None) -> Json:
        """One event of a stream."""
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        more: Json = {} if counts is None else {"usage": counts}
        return {**self._head(kind), "choices": choices, **more}

    def opening(self, index: int) -> Json:
        """The first chunk's choice of a chat: the role."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, index: int, piece: Piece | None, shown: int, reason: str | None) -> Json:
        """A chunk's choice: a piece, which `shown` characters came before, or the end."""
        text = "" if piece is None else piece.text
        scores = None if piece is None else self.scores([piece], shown)
        body: Json = {"text": text}
        if self.is_chat:
            body = {"delta": {"content": text} if piece is not None else {}}
        return {"index": index, **body, "logprobs": scores, "finish_reason": reason}

    def scores(self, pieces: Sequence[Piece], shown: int) -> Json | None:
        """Log-probabilities in the shape of the endpoint, None where none were asked for."""
        rows = [p.logprob for p in pieces if p.logprob is not None]
        if not rows:
            return None
        if self.is_chat:
            return {"content": [self._scored(row) for row in rows], "refusal": None}
        texts = [self._text(row.token) for row in rows]
        offsets: list[int] = []
        for text in texts:
            offsets.append(shown)
            shown += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [row.logprob for row in rows],
            "top_logprobs": [{self._text(t): p for t, p in row.top} for row in rows],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self.spell(token).decode("utf-8", errors="replace")

    def _scored(self, row: TokenLogprob) -> Json:
        top = [self._one(t, p) for t, p in row.top]
        return {**self._one(row.token, row.logprob), "top_logprobs": top}

    def _one(self, token: int, logprob: float) -> Json:
        raw = self.spell(token)
        text = raw.decode("utf-8", errors="replace")
        return {"token": text, "bytes": list(raw), "logprob": logprob}


def new_shape(name: str, model: str, is_chat: bool, spell: Spell) -> Shape:
    """A shape with the time of now."""
    return Shape(name, model, is_chat, spell, int(time.time()))
