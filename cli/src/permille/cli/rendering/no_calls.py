"""What is said where sessions have no calls."""

from __future__ import annotations

from collections.abc import Sequence

from permille.cli.rendering.units import count


def no_calls_text(who: str, sessions: Sequence[str]) -> str:
    """One sentence: `who` has none, why that may be, and what says more."""
    of = sessions[0] if len(sessions) == 1 else f"all of its {count(len(sessions))} sessions"
    one = sessions[0].rpartition("/")[2]
    return (
        f"{who} has no calls: in {of} the program slept or waited, or nothing could be decoded;"
        f" `permille report {one}` says more"
    )
