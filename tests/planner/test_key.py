"""The plan's name."""

from tests.support.plans import plan_text, small

TEXT = 'weight v0: f32[4] "w"\nv1: f32[4] = neg(v0)\nout v1'


def test_names_limits_and_entry_points_change_the_key():
    keys = {
        plan_text(main=TEXT).key,
        plan_text(other=TEXT).key,
        plan_text(main=TEXT.replace('"w"', '"u"')).key,
        plan_text(main=TEXT, limits=small(threads=128)).key,
    }
    assert len(keys) == 4
