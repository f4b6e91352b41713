"""What one session saw: its functions and who called whom, without addresses of one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Function(NamedTuple):
    """A function of one binary, by its address in the file, so that replicas agree; build id "" where there is none."""

    module: str
    build_id: str
    address: int
    name: str


class Edge(NamedTuple):
    """A call of one function by another.

    Calls, not branches: the table of branches has addresses of one process, which another process loads elsewhere.
    """

    caller: Function
    callee: Function


@dataclass(frozen=True)
class Totals:
    """Of one function in one session or several."""

    calls: int = 0
    self_instructions: int = 0
    total_instructions: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            self.calls + other.calls,
            self.self_instructions + other.self_instructions,
            self.total_instructions + other.total_instructions,
        )


@dataclass(frozen=True)
class Profile:
    """One decoded session. `lost_bytes`: what was executed and is not in it; `cores`: threads that wrote."""

    session_id: str
    session: str = ""
    target: str = ""
    start_ns: int = 0
    period_ms: int = 0
    raw_bytes: int = 0
    lost_bytes: int = 0
    functions: Mapping[Function, Totals] = field(default_factory=dict)
    edges: Mapping[Edge, int] = field(default_factory=dict)
