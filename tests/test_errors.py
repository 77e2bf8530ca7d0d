from __future__ import annotations

import inspect

import pytest

from poot import errors
from poot.errors import CapabilityError, PootError, TypeRuleError, need

TREE = [e for _, e in inspect.getmembers(errors, inspect.isclass) if issubclass(e, PootError)]


@pytest.mark.parametrize("error", TREE, ids=lambda e: e.__name__)
def test_every_error_keeps_its_class_and_words_when_it_gets_a_line(error):
    e = error("what broke").located("model.py:41")
    assert type(e) is error
    assert (e.message, e.loc) == ("what broke", "model.py:41")
    assert str(e) == "what broke\n  at model.py:41"


@pytest.mark.parametrize("error", TREE, ids=lambda e: e.__name__)
def test_every_error_says_what_it_is_for(error):
    assert "__doc__" in vars(error)
    assert error.__doc__


def test_a_message_without_a_line_is_the_message_alone():
    assert str(PootError("what broke")) == "what broke"


def test_need_raises_nothing_where_the_claim_holds():
    need(True, "anything", x=1)


def test_need_says_what_is_needed_and_what_was_seen():
    with pytest.raises(TypeRuleError) as e:
        need(False, "as many columns as rows", a=3, b=(4, 5))
    assert e.value.message == "needs as many columns as rows: a=3, b=(4, 5)"


def test_need_raises_the_class_it_is_given():
    with pytest.raises(CapabilityError, match=r"^needs a device$"):
        need(False, "a device", error=CapabilityError)
