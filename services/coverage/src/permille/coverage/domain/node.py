"""What a node says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A process of a node; `session` is the one recording it now, if any."""

    pid: int
    name: str
    session: str = ""


@dataclass(frozen=True)
class Node:
    """A node: what it can record now, and what was asked for, is alive and cannot be recorded."""

    name: str
    recordable: tuple[Process, ...] = ()
    others: tuple[Process, ...] = ()
    trace_budget_bytes: int = 0
