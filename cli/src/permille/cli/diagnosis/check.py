"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`needed`: nothing can be recorded without it. `fix`: the command that brings what is missing."""

    name: str
    available: bool
    detail: str
    fix: str = ""
    needed: bool = False
