"""What signals do to a command that follows an operation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from permille.api.operation.v1 import operation_pb2
from permille.cli.operation_progress import OperationProgress
from permille.mesh.errors import Cancelled

Operation = operation_pb2.Operation
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAME = "operations/1"


@pytest.fixture(autouse=True)
def _as_in_a_command() -> Iterator[None]:
    before = {number: signal.signal(number, signal.default_int_handler) for number in ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Service:
    """One operation that ends when it is asked to; `signals` are sent to the command while it waits.

    `hears`: whether it answers who cancels; `ends`: whether the operation ends by then.
    """

    def __init__(self, *signals: signal.Signals, hears: bool = True, ends: bool = True) -> None:
        self.cancels = 0
        self._signals = list(signals)
        self._hears = hears
        self._ends = ends

    async def WaitOperation(self, _request: Any, timeout: float) -> Any:  # noqa: N802 - as the stub has it
        if self._signals:
            number = self._signals.pop(0)
            signal.raise_signal(number)
            if signal.getsignal(number) is not signal.SIG_IGN:
                await asyncio.sleep(timeout)
        return operation_pb2.WaitOperationResponse(operation=Operation(name=NAME, done=True))

    async def CancelOperation(self, _request: Any, timeout: float) -> Any:  # noqa: N802
        self.cancels += 1
        if not self._hears:
            signal.raise_signal(self._signals.pop(0))
            await asyncio.sleep(timeout)
        return operation_pb2.CancelOperationResponse(operation=Operation(name=NAME, done=self._ends))


def followed(service: Service, *, cancels: bool = True) -> Operation:
    async def stub() -> Any:
        return service

    following = OperationProgress(
        stub, tell=lambda _: None, away=lambda _: None, patience_s=60, later="look", cancels=cancels
    )
    return asyncio.run(following.follow(Operation(name=NAME)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_asks_for_the_end(number: signal.Signals) -> None:
    service = Service(number)
    assert followed(service).done
    assert service.cancels == 1


@pytest.mark.parametrize("number", ALL)
def test_who_only_waits_leaves_it_alone(number: signal.Signals) -> None:
    service = Service(number)
    with pytest.raises(Cancelled, match=f"^{NAME} goes on$"):
        followed(service, cancels=False)
    assert service.cancels == 0


def test_a_terminal_that_is_gone_leaves_it_alone() -> None:
    service = Service(signal.SIGHUP)
    with pytest.raises(Cancelled, match=f"^{NAME} goes on$") as left:
        followed(service)
    assert (service.cancels, left.value.help) == (0, "look")


@pytest.mark.parametrize("second", ALL)
def test_a_second_one_says_what_the_first_achieved(second: signal.Signals) -> None:
    with pytest.raises(Cancelled, match="was asked to end and is still ending"):
        followed(Service(signal.SIGINT, second, ends=False))
    with pytest.raises(Cancelled, match="goes on, unless it still heard"):
        followed(Service(signal.SIGINT, second, hears=False))


@pytest.mark.parametrize("number", ALL)
def test_a_signal_that_is_ignored_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    service = Service(number)
    assert followed(service).done
    assert service.cancels == 0
    assert signal.getsignal(number) is signal.SIG_IGN


def test_afterwards_each_ends_the_command_as_before() -> None:
    followed(Service())
    assert {signal.getsignal(number) for number in ALL} == {signal.default_int_handler}
