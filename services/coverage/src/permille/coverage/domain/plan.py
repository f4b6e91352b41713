"""From a wish and what the nodes say to who records what, for how long, at which cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from permille.coverage.domain.node import Node
from permille.coverage.domain.period import LONGEST_MS, Purpose, period_for
from permille.coverage.domain.rates import Rates
from permille.coverage.domain.target import MOST_PIDS, Target, match
from permille.mesh.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True)
class Wish:
    """What somebody wants; zeros are filled in by the plan."""

    target: Target
    purpose: Purpose = Purpose.ON_DEMAND
    period_ms: int = 0
    budget_bytes: int = 0


@dataclass(frozen=True)
class NodePlan:
    """One session to come; `budget_bytes` 0 leaves it to the node."""

    node: str
    pids: tuple[int, ...]
    period_ms: int
    budget_bytes: int
    expected_bytes: int


@dataclass(frozen=True)
class Plan:
    """All sessions of one wish and what they will cost together."""

    nodes: tuple[NodePlan, ...]
    expected_bytes: int
    expected_decode_ms: int
    measured_sessions: int


def plan(wish: Wish, nodes: Sequence[Node], rates: Mapping[str, Rates], *, longest_ms: int = LONGEST_MS) -> Plan:
    """Who records what. `rates`: what is known by process name; a name without any gets the first guesses.

    More processes of one name on one node than a session may hold (64) become several sessions.
    Raises what `period_for` and `match` raise, and `FailedPrecondition` when a process is being recorded already.
    """
    if wish.budget_bytes < 0:
        raise InvalidArgument(
            f"budget_bytes is {wish.budget_bytes}",
            reason="BUDGET_NEGATIVE",
            help="give 0 for the node's default, or a size in bytes",
        )
    period_ms = period_for(wish.purpose, wish.period_ms, longest_ms=longest_ms)
    sessions: list[NodePlan] = []
    decode_ms = 0
    measured: list[int] = []
    for found in match(wish.target, nodes):
        for process in found.processes:
            if process.session:
                raise _already_recorded(process.pid, process.name, process.session)
        for begin in range(0, len(found.processes), MOST_PIDS):
            part = found.processes[begin : begin + MOST_PIDS]
            known = rates.get(part[0].name, Rates())
            budget = wish.budget_bytes or found.node.trace_budget_bytes
            expected = known.expected_bytes(len(part), period_ms, budget)
            decode_ms += known.expected_decode_ms(expected)
            measured.append(known.sessions)
            pids = tuple(process.pid for process in part)
            sessions.append(NodePlan(found.node.name, pids, period_ms, wish.budget_bytes, expected))
    return Plan(tuple(sessions), sum(s.expected_bytes for s in sessions), decode_ms, min(measured))


def _already_recorded(pid: int, name: str, session: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"process {pid} ({name}) is being recorded now by {session}",
        reason="ALREADY_TRACED",
        help="wait until that recording ends; one process is recorded by one session at a time",
        metadata={"pid": str(pid), "session": session},
        retry_after_s=1.0,
    )
