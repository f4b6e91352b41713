"""How often the progress of an operation is looked at, and what of its parts is its own."""

from __future__ import annotations

from permille.api.operation.v1.operation_pb2 import Progress
from permille.coverage.service.progress import Stage, decoding_stage, pause_s


def test_however_many_sessions_there_are_about_as_many_are_looked_at_each_second() -> None:
    assert pause_s(1) == pause_s(100) == 0.25
    assert max(parts / pause_s(parts) for parts in range(1, 100_000)) <= 1000.001


def test_what_one_of_its_decodes_waits_for_is_what_it_waits_for() -> None:
    moves = Progress(stage="DECODING", completed=1, total=2, unit="bytes")
    waits = Progress(stage="DECODING", completed=0, total=3, unit="bytes", waiting="no scheduler")
    assert decoding_stage([moves, waits]) == Stage("DECODING", 1, 5, "bytes", "no scheduler")
    assert decoding_stage([moves, Progress(stage="WAITING", waiting="no store")]).waiting == "no store"
    assert decoding_stage([moves]).waiting == ""
