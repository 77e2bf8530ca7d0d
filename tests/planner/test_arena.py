"""Places for values alive at different times."""

from hypothesis import given
from hypothesis import strategies as st

from poot.planner.arena import Life, place


def test_values_that_never_meet_share_bytes():
    offsets, size = place([Life("a", 256, 0, 1), Life("b", 256, 2, 3)], 256)
    assert offsets == {"a": 0, "b": 0}
    assert size == 256


def test_values_that_meet_lie_apart():
    offsets, size = place([Life("a", 100, 0, 2), Life("b", 300, 2, 3)], 256)
    assert sorted(offsets.values()) == [0, 512]
    assert size == 768


def test_equal_layers_need_no_more_than_two():
    def chain(layers: int) -> int:
        lives = [Life(f"x{n}", 1024, n, n + 1) for n in range(layers)]
        return place(lives, 256)[1]

    assert chain(32) == chain(2) == 2048


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)), max_size=24)
)
def test_no_two_live_values_overlap(rows: list[tuple[int, int, int]]):
    lives = [Life(f"v{n}", b, first, first + more) for n, (b, first, more) in enumerate(rows)]
    offsets, size = place(lives, 64)
    for n, a in enumerate(lives):
        assert offsets[a.name] % 64 == 0
        assert offsets[a.name] + a.nbytes <= size
        for b in lives[n + 1 :]:
            meet = a.first <= b.last and b.first <= a.last
            apart = (
                offsets[a.name] + max(a.nbytes, 1) <= offsets[b.name]
                or offsets[b.name] + max(b.nbytes, 1) <= offsets[a.name]
            )
            assert apart or not meet
