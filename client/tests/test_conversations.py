"""What both clients say, and when they say it again."""

from __future__ import annotations

from inspect import signature
from typing import Any, get_args

import pytest
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.client import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    session_set,
    wish,
)
from permille.client.conversations import Call, Conversation, Manner, Pause
from permille.client.errors import PermilleError
from permille.client.wishes import Backend

Operation = operation_pb2.Operation
BUSY = ResourceExhausted("too often", reason="CALL_RATE", retry_after_s=7.5)
AWAY = Unavailable("nobody", reason="UNREACHABLE")
SILENT = DeadlineExceeded("Deadline Exceeded", reason="DEADLINE_EXCEEDED")


class Talk:
    """Holds a conversation with given answers; pauses take their time on its clock."""

    def __init__(self, answers: list[Any]) -> None:
        self.now_s = 100.0
        self.calls: list[Any] = []
        self.pauses: list[float] = []
        self._answers = iter(answers)

    def hold(self, conversation: Conversation[Any]) -> Any:
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now_s += step.seconds
                    step = conversation.send(None)
                    continue
                assert isinstance(step, Call)
                self.calls.append(step.request)
                answer = next(self._answers)
                failed = isinstance(answer, PermilleError)
                step = conversation.throw(answer) if failed else conversation.send(answer)
        except StopIteration as end:
            return end.value


def held(answers: list[Any], method: str, *arguments: Any, patience_s: float = 60, **named: Any) -> tuple[Any, Talk]:
    talk = Talk(answers)
    manner = Manner(patience_s=patience_s, clock=lambda: talk.now_s)
    return talk.hold(getattr(manner, method)(*arguments, **named)), talk


STARTED = coverage_pb2.StartCoverageResponse(operation=Operation(name="operations/1"))


def test_a_start_is_repeated_under_one_request_id_after_the_time_that_the_server_named() -> None:
    operation, talk = held([BUSY, BUSY, STARTED], "start", wish(process_name="a"), "")
    assert operation.name == "operations/1"
    assert talk.pauses == [7.5, 7.5]
    assert len({call.request_id for call in talk.calls}) == 1
    assert talk.calls[0].request_id


def test_two_starts_have_two_request_ids_and_a_given_one_is_kept() -> None:
    first, second, given = (
        held([STARTED], "start", wish(process_name="a"), name)[1].calls[0] for name in ("", "", "r")
    )
    assert first.request_id != second.request_id
    assert given.request_id == "r"


def test_nobody_is_asked_again_ever_less_often_and_not_beyond_patience() -> None:
    _, talk = held([AWAY] * 5 + [STARTED], "start", wish(process_name="a"), "r")
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(talk.pauses))
    with pytest.raises(Unavailable):
        held([AWAY] * 1000, "start", wish(process_name="a"), "r")
    with pytest.raises(ResourceExhausted) as failure:
        held([BUSY], "start", wish(process_name="a"), "r", patience_s=7)
    assert failure.value.retry_after_s == 7.5


def test_no_answer_in_time_is_as_if_nobody_was_there() -> None:
    operation, talk = held([SILENT, AWAY, SILENT, STARTED], "start", wish(process_name="a"), "r")
    assert operation.name == "operations/1"
    assert [call.request_id for call in talk.calls] == ["r"] * 4
    with pytest.raises(DeadlineExceeded):
        held([SILENT] * 1000, "start", wish(process_name="a"), "r")


def test_what_repeating_cannot_help_is_raised_at_once() -> None:
    with pytest.raises(InvalidArgument):
        held([InvalidArgument("no", reason="TARGET_EMPTY")], "plan", wish(), outlook=False)


def changed(stage: str, **more: Any) -> operation_pb2.WaitOperationResponse:
    return operation_pb2.WaitOperationResponse(
        operation=Operation(name="operations/1", progress=operation_pb2.Progress(stage=stage), **more)
    )


def test_waiting_tells_each_progress_and_returns_the_result() -> None:
    told: list[str] = []
    done = changed("DECODING", done=True)
    done.operation.response.Pack(coverage_pb2.CoverageResult(sessions=["nodes/n/sessions/s"]))
    running = Operation(name="operations/1", progress=operation_pb2.Progress(stage="PLANNING"))
    answers = [changed("RECORDING"), AWAY, SILENT, done]
    result, talk = held(answers, "wait", running, lambda progress: told.append(progress.stage), None)
    assert list(result.sessions) == ["nodes/n/sessions/s"]
    assert told == ["PLANNING", "RECORDING"]
    assert [type(call).__name__ for call in talk.calls] == ["WaitOperationRequest"] * 4


def test_waiting_raises_why_the_operation_failed() -> None:
    error = operation_pb2.Error(
        code=5, message="it ended", reason="TARGET_ENDED", help="start it", metadata={"pid": "7"}
    )
    with pytest.raises(NotFound, match=r"it ended \(start it\)") as failure:
        held([changed("PLANNING", done=True, error=error)], "wait", Operation(name="operations/1"), None, None)
    assert (failure.value.reason, failure.value.metadata) == ("TARGET_ENDED", {"pid": "7"})


def test_waiting_ends_at_its_limit_and_names_what_goes_on() -> None:
    with pytest.raises(DeadlineExceeded, match="RECORDING") as failure:
        held([changed("RECORDING")], "wait", Operation(name="operations/1"), None, 0.0)
    assert failure.value.metadata == {"operation": "operations/1"}


def test_what_is_done_is_told_however_short_the_limit() -> None:
    held([changed("DECODING", done=True)], "wait", Operation(name="operations/1"), None, 0.0)


def test_an_unknown_purpose_or_back_end_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgument, match=r"'bad' is no purpose .*anomaly, profiling"):
        wish(purpose="bad")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"'ebpf' is no backend .*kmod"):
        wish(backend="ebpf")  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["operations/1", changed("RECORDING").operation])
def test_waiting_for_who_is_away_ends_at_its_limit_too(operation: Operation | str) -> None:
    talk = Talk([AWAY] * 1000)
    with pytest.raises(Unavailable):
        talk.hold(Manner(patience_s=60, clock=lambda: talk.now_s).wait(operation, None, 5.0))
    assert 100 < talk.now_s <= 105


def test_a_wish_has_every_target_weight_gain_and_back_end_of_the_api() -> None:
    asked = wish(
        selector="app=web", purpose="profiling", rounds=5, min_gain=2.0, min_gain_per_core_second=0.5,
        weights={"priority": 2.0, "stability": 1.0}, backend="perf",
    )  # fmt: skip
    assert asked.target == coverage_pb2.Target(selector="app=web")
    assert asked.rounds == coverage_pb2.AdaptiveRounds(limit=5, min_gain=2.0, min_gain_per_core_second=0.5)
    assert asked.weights == coverage_pb2.Weights(priority=2.0, stability=1.0)
    assert asked.backend == controller_pb2.BACKEND_PERF
    assert not wish(pids=[1]).HasField("weights")
    with pytest.raises(InvalidArgument, match="a gain is wanted of rounds"):
        wish(process_name="a", min_gain=1.0)


def test_how_long_a_recording_is_kept_is_said_in_whole_seconds() -> None:
    assert wish(pids=[1]).retention_s == 0
    assert wish(pids=[1], retention_s=7 * 24 * 3600).retention_s == 7 * 24 * 3600
    nonsense: list[Any] = [0, -1, 1 << 32, 0.5, "7d"]
    for one in nonsense:
        with pytest.raises(InvalidArgument, match="cannot be kept for") as failure:
            wish(pids=[1], retention_s=one)
        assert (failure.value.reason, failure.value.metadata) == ("RETENTION", {"value": str(one)})


def test_every_back_end_and_target_of_the_api_can_be_wished_for() -> None:
    backends = {f"BACKEND_{word.upper() or 'UNSPECIFIED'}" for word in get_args(Backend)}
    # What was recorded elsewhere nobody records.
    assert backends == set(controller_pb2.Backend.keys()) - {"BACKEND_IMPORTED"}
    assert {field.name for field in coverage_pb2.Target.DESCRIPTOR.fields} <= set(signature(wish).parameters)


def test_coverage_and_diff_ask_for_as_much_as_was_said_and_wait_longer() -> None:
    _, talk = held([coverage_pb2.GetCoverageResponse()], "coverage", session_set(target="a"), 5, 6, 7)
    assert talk.calls == [
        coverage_pb2.GetCoverageRequest(of=coverage_pb2.SessionSet(target="a"), functions=5, edges=6, paths=7)
    ]
    one, other = session_set(["nodes/n/sessions/s"]), session_set(operation="operations/1")
    found = coverage_pb2.DiffCoverageResponse(similarity=0.5)
    answer, talk = held([AWAY, found], "diff", one, other, "calls", 3, 4)
    assert (answer, len(talk.calls)) == (found, 2)
    assert talk.calls[0] == coverage_pb2.DiffCoverageRequest(
        a=one, b=other, measure=coverage_pb2.DiffCoverageRequest.MEASURE_CALLS, limit=3, paths=4
    )
