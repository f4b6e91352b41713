"""What `permille coverage` asks for, from the options that were given."""

from __future__ import annotations

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.cli.coverage_options import wishing
from permille.cli.invocation import Invocation, command
from permille.mesh.errors import InvalidArgument
from typer import Typer
from typer.testing import CliRunner


def asked(*options: str) -> coverage_pb2.CoverageRequest:
    """The wish of a command that was called so. Raises what the command raises."""
    found = list[coverage_pb2.CoverageRequest]()

    def take(invocation: Invocation, *, wish: coverage_pb2.CoverageRequest) -> None:
        found.append(wish)

    app = Typer()
    app.command()(command(wishing(take)))
    CliRunner().invoke(app, ["--name", "redis-server", *options], catch_exceptions=False)
    (wish,) = found
    return wish


def test_both_gains_of_rounds_can_be_asked_for() -> None:
    wish = asked("--rounds", "5", "--min-gain", "2", "--min-gain-per-core-second", "0.5")
    assert wish.rounds == coverage_pb2.AdaptiveRounds(limit=5, min_gain=2.0, min_gain_per_core_second=0.5)


@pytest.mark.parametrize("option", ["--min-gain", "--min-gain-per-core-second"])
def test_a_gain_without_rounds_or_that_no_round_can_reach_is_refused(option: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{option} is wanted of rounds") as refused:
        asked(option, "1")
    assert refused.value.reason == "ROUNDS_MISSING"
    with pytest.raises(InvalidArgument, match=f"{option} is inf") as refused:
        asked("--rounds", "5", option, "inf")
    assert refused.value.reason == "GAIN_OUT_OF_RANGE"
