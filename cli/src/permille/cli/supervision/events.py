"""What a supervisor tells while it works."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Happened(StrEnum):
    """What happened to a process, or to the whole."""

    STARTED = "started"
    SERVING = "serving"
    ENDED = "ended"
    READY = "ready"
    DRAINING = "draining"
    KILLED = "killed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Event:
    """`name`: etcd or a service; empty for the whole. `detail`: text for people."""

    happened: Happened
    name: str = ""
    pid: int = 0
    detail: str = ""
