"""The end of a unit: many groups' parts, the same bits on every run, words at rest after."""

import numpy as np

from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, request_for, run


def test_more_parts_than_are_read_at_once_are_merged():
    request = check_form(decode(1, 2, 1, 3000, 64), card(11))
    assert request.schedule.get("spread") == 22


def test_two_runs_give_the_same_bits():
    form = decode(3, 4, 2, 300, 64, live=True)
    _, feed = form_text(form)
    first, _ = run(form, 5, feed)
    second, _ = run(form, 5, feed)
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]


def test_words_between_groups_are_read_and_written_relaxed():
    (call,) = lower(request_for(decode(3, 4, 2, 300, 64, live=True), 5), card(5)).calls
    touches = [s for s in walk(call.kernel.body) if isinstance(s, Ins) and s.attr("mem") == "words"]
    assert {s.op for s in touches} == {"load", "store"}
    assert {s.attr("cache") for s in touches} == {"relaxed"}


def test_all_parts_are_read_before_the_first_is_looked_at():
    (call,) = lower(request_for(decode(1, 4, 1, 4000, 128), 8), card(8)).calls
    ops = [s for s in walk(call.kernel.body) if isinstance(s, Ins)]
    reads = [n for n, s in enumerate(ops) if s.op == "load" and s.attr("mem") == "words"]
    batch = reads[1:17]
    assert batch[-1] - batch[0] == 15


def test_whole_units_need_no_words():
    request = request_for(decode(4, 8, 2, 64, 64), 4)
    (call,) = lower(request, card(4)).calls
    assert "words" not in [p.name for p in call.kernel.params]
    assert not call.attributes.is_resident
    out = np.zeros(1)
    assert out.size == 1
