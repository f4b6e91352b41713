"""What both clients say, and when they say it again."""

from __future__ import annotations

from typing import Any

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.client import DeadlineExceeded, InvalidArgument, NotFound, ResourceExhausted, Unavailable, wish
from permille.client.conversations import Call, Conversation, Manner, Pause
from permille.client.errors import PermilleError

Operation = operation_pb2.Operation
BUSY = ResourceExhausted("too often", reason="CALL_RATE", retry_after_s=7.5)
AWAY = Unavailable("nobody", reason="UNREACHABLE")


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
    answers = [changed("RECORDING"), AWAY, done]
    result, talk = held(answers, "wait", running, lambda progress: told.append(progress.stage), None)
    assert list(result.sessions) == ["nodes/n/sessions/s"]
    assert told == ["PLANNING", "RECORDING"]
    assert [type(call).__name__ for call in talk.calls] == ["WaitOperationRequest"] * 3


def test_waiting_raises_why_the_operation_failed() -> None:
    error = operation_pb2.Error(
        code=5, message="it ended", reason="TARGET_ENDED", help="start it", metadata={"pid": "7"}
    )
    with pytest.raises(NotFound, match=r"it ended \(start it\)") as failure:
        held([changed("PLANNING", done=True, error=error)], "wait", Operation(name="operations/1"), None, None)
    assert (failure.value.reason, failure.value.metadata) == ("TARGET_ENDED", {"pid": "7"})


def test_waiting_ends_at_its_limit_and_names_what_goes_on() -> None:
    with pytest.raises(DeadlineExceeded, match="RECORDING") as failure:
        held([], "wait", changed("RECORDING").operation, None, 0.0)
    assert failure.value.metadata == {"operation": "operations/1"}
