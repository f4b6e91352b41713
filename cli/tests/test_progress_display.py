"""What is told of an operation while it goes on, where nothing moves."""

from __future__ import annotations

import io

from permille.api.operation.v1.operation_pb2 import Progress
from permille.cli.progress_display import ProgressDisplay
from rich.console import Console


def test_what_an_operation_waits_for_is_told_once_and_again_when_it_comes_again() -> None:
    out = io.StringIO()
    with ProgressDisplay(Console(file=out, width=200), silent=False) as display:
        for waiting in (
            "",
            "no scheduler at [::1]:8786",
            "no scheduler at [::1]:8786",
            "",
            "no scheduler at [::1]:8786",
        ):
            display.tell(Progress(stage="DECODING", waiting=waiting))
    assert out.getvalue().splitlines() == ["decoding", *["waiting: no scheduler at [::1]:8786"] * 2]
