"""A job hands on tokens and text."""

from __future__ import annotations

from poot.llm.job import Job
from poot.llm.request import Finish, Handle, Piece, Request
from poot.llm.stepper import Drawn
from poot.llm.tokenizer import read_tokenizer
from tests.support.smollm2 import smollm2


def job_of(**options: object) -> tuple[Job, list[object]]:
    heard: list[object] = []
    request = Request((1, 2), 9, **options)  # pyright: ignore[reportArgumentType] - by name
    tokenizer = read_tokenizer(smollm2().metadata, "smollm2")
    return Job(Handle(request, lambda h: None, heard.append), 10.0, tokenizer), heard


def test_half_a_character_waits_for_its_other_half_and_is_shown_at_the_end():
    job, heard = job_of()
    tokenizer = read_tokenizer(smollm2().metadata, "smollm2")
    ids = tokenizer.encode("a😀")
    for token in ids[:-1]:
        assert not job.show(Drawn(token, None))
    job.close("length", 12.5, 3, None)
    pieces = [p for p in heard if isinstance(p, Piece)]
    assert "".join(p.text for p in pieces) == "a\ufffd"
    assert pieces[-1].token is None
    end = heard[-1]
    assert isinstance(end, Finish)
    assert (end.reason, end.prompt, end.tokens, end.cached) == ("length", 2, len(ids) - 1, 3)
    assert (end.first, end.whole) == (None, 2.5)


def test_a_stop_string_is_told_and_what_comes_after_it_is_not_shown():
    job, heard = job_of(stops=(" two",))
    tokenizer = read_tokenizer(smollm2().metadata, "smollm2")
    hits = [job.show(Drawn(t, None)) for t in tokenizer.encode("one two three")[:2]]
    assert hits == [False, True]
    job.close("stop", 11.0, 0, None)
    assert "".join(p.text for p in heard if isinstance(p, Piece)) == "one"
    assert isinstance(heard[-1], Finish)
    assert heard[-1].stop == " two"


def test_a_job_is_late_from_its_deadline_on():
    job, _ = job_of(deadline=2.0)
    assert [job.is_late(t) for t in (10.0, 11.9, 12.0)] == [False, False, True]
    assert not job_of()[0].is_late(1e9)
