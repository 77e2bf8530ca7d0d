"""`poot chat`: a talk with a model. What was said before is in the prefix cache, so an answer
begins after its own message alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from poot.cli.options import Chat, Command
from poot.cli.paged import served
from poot.errors import RequestError
from poot.llm.request import Request
from poot.llm.sampling import Sampling
from poot.llm.serving import Served

QUIT = "/quit"


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """Reads messages from stdin until its end, or /quit."""
    assert isinstance(command, Chat)
    made = served(command.program, err)
    print(f"one message a line; {QUIT} or the end of the input ends the talk", file=err)
    made.engine.start()
    try:
        talk(made, command, sys.stdin, out, err)
    finally:
        made.engine.stop(drain=False)


def talk(made: Served, command: Chat, lines: Iterable[str], out: TextIO, err: TextIO) -> None:
    """One answer a line. An answer that is interrupted stays as far as it came."""
    how = Sampling(command.temperature, command.top_k, command.top_p, command.seed)
    messages = [{"role": "system", "content": command.system}] if command.system else []
    for line in lines:
        text = line.strip()
        if text == QUIT:
            return
        if not text:
            continue
        messages.append({"role": "user", "content": text})
        try:
            answer = _answer(made, messages, command.max_tokens, how, out)
        except RequestError as e:
            print(f"poot: {e}", file=err)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": answer})


def _answer(
    made: Served, messages: list[dict[str, str]], most: int, how: Sampling, out: TextIO
) -> str:
    checkpoint = made.checkpoint
    if checkpoint.template is None:
        raise RequestError(f"{checkpoint.file.path.name} has no chat template")
    prompt = checkpoint.tokenizer.encode(checkpoint.template.render(messages), add_bos=False)
    left = max(1, made.engine.layout.capacity - len(prompt))
    handle = made.engine.submit(
        Request(tuple(prompt), min(most, left), how, checkpoint.tokenizer.stops)
    )
    pieces: list[str] = []
    try:
        for piece in handle:
            pieces.append(piece.text)
            print(piece.text, end="", file=out, flush=True)
    except KeyboardInterrupt:
        handle.cancel()
    print(file=out, flush=True)
    return "".join(pieces)
