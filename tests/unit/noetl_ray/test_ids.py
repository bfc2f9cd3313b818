"""Snowflake ids: unique, growing, BIGINT, whatever the clock does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.events.envelope import BIGINT_MAX
from noetl_ray.ids import EPOCH_MS, GENERATORS_MAX, SnowflakeIds, mint_time_ms


class SetClock:
    """Wall time as the test says."""

    def __init__(self, ms: int = EPOCH_MS + 1_000) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@given(
    st.integers(0, GENERATORS_MAX - 1),
    st.lists(st.integers(EPOCH_MS, EPOCH_MS + (1 << 41) - 2), min_size=1, max_size=50),
)
def test_ids_grow_and_fit_bigint_whatever_the_clock_says(generator: int, times: list[int]) -> None:
    clock = SetClock()
    ids = SnowflakeIds(generator, clock)
    minted = []
    for ms in times:
        clock.ms = ms
        minted.append(ids.mint())
    assert all(a < b for a, b in itertools.pairwise(minted))
    assert all(0 < i <= BIGINT_MAX for i in minted)
    assert {(i >> 12) & (GENERATORS_MAX - 1) for i in minted} == {generator}


def test_a_clock_that_goes_back_does_not_take_ids_back() -> None:
    clock = SetClock(EPOCH_MS + 10_000)
    ids = SnowflakeIds(1, clock)
    first = ids.mint()
    clock.ms -= 5_000
    second = ids.mint()
    assert second == first + 1
    assert mint_time_ms(second) == EPOCH_MS + 10_000


def test_more_ids_than_a_millisecond_holds_borrow_from_the_next() -> None:
    ids = SnowflakeIds(3, SetClock())
    minted = [ids.mint() for _ in range(3 * 4096 + 5)]
    assert len(set(minted)) == len(minted)
    assert minted == sorted(minted)
    assert mint_time_ms(minted[-1]) == EPOCH_MS + 1_003


def test_two_generators_never_meet() -> None:
    one, two = (SnowflakeIds(number, SetClock()) for number in (0, GENERATORS_MAX - 1))
    assert not {one.mint() for _ in range(5000)} & {two.mint() for _ in range(5000)}


@pytest.mark.parametrize("generator", [-1, GENERATORS_MAX])
def test_generator_numbers_are_bounded(generator: int) -> None:
    with pytest.raises(ValueError, match=rf"generator {generator} is not in 0\.\.1023"):
        SnowflakeIds(generator, SetClock())


def test_an_id_says_when_it_was_made() -> None:
    clock = SetClock(EPOCH_MS + 123_456)
    assert mint_time_ms(SnowflakeIds(9, clock).mint()) == clock.ms


def test_a_clock_before_the_epoch_still_gives_positive_ids() -> None:
    ids = SnowflakeIds(0, SetClock(EPOCH_MS - 60_000))
    assert 0 < ids.mint() < ids.mint()
