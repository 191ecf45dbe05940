"""The command line of bin/chaos."""

from __future__ import annotations

import pytest
from launcher.commands import chaos


def test_takes_as_long_as_the_messages_need_unless_told() -> None:
    assert chaos.options([]).seconds == chaos.SHORTEST
    assert chaos.options(["--messages", "20000"]).seconds == 20_000 / chaos.RATE
    assert chaos.options(["--messages", "20000", "--seconds", "60"]).seconds == 60


def test_draws_a_seed_unless_told() -> None:
    assert chaos.options(["--seed", "0"]).seed == 0
    assert len({chaos.options([]).seed for _ in range(5)}) > 1


@pytest.mark.parametrize(
    "wrong", [["--messages", "0"], ["--faults", "-1"], ["--seconds", "soon"], ["--quick"]]
)
def test_refuses_what_makes_no_run(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        chaos.options(wrong)

    assert "bin/chaos" in capsys.readouterr().err
