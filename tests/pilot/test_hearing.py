"""A worker that takes nothing although Redis answers ends."""

from __future__ import annotations

import pytest

from pilot.hearing import LOOKS_UNTIL_DEAF, Hearing


class Ending:
    """Stands for the end of a process."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def ending() -> Ending:
    return Ending()


def _look(hearing: Hearing, times: int) -> None:
    for _ in range(times):
        hearing.look()


def test_a_worker_that_takes_nothing_ends(ending: Ending) -> None:
    hearing = Hearing(end=ending)

    _look(hearing, LOOKS_UNTIL_DEAF)

    assert ending.times == 1


def test_a_token_now_and_then_is_enough(ending: Ending) -> None:
    hearing = Hearing(end=ending)

    for _ in range(3):
        _look(hearing, LOOKS_UNTIL_DEAF - 1)
        hearing.note()
        hearing.look()

    assert ending.times == 0


@pytest.mark.usefixtures("without_redis")
def test_a_worker_without_redis_is_not_deaf(ending: Ending) -> None:
    hearing = Hearing(end=ending)

    _look(hearing, LOOKS_UNTIL_DEAF + 1)

    assert ending.times == 0
