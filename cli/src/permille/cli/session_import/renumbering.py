"""Numbers of processes, threads and cores that no system has, which a session cannot hold."""

from __future__ import annotations

# The kernel's are signed and of 32 bits; threads have none from 2^22 on (PID_MAX_LIMIT).
_END = 1 << 31
_FIRST_FREE = 1 << 30
_MOST_NAMED = 3


class Renumbering:
    """Gives each of them another one that nobody has: what it names is told apart from all else, as it was."""

    def __init__(self) -> None:
        self._others: dict[int, int] = {}

    def __call__(self, number: int) -> int:
        """The number itself where there may be such."""
        if number < _END:
            return number
        return self._others.setdefault(number, _FIRST_FREE + len(self._others))

    @property
    def notes(self) -> list[str]:
        """What became of which, in a line."""
        if not self._others:
            return []
        named = [f"{number} as {other}" for number, other in list(self._others.items())[:_MOST_NAMED]]
        more = ", ..." if len(self._others) > len(named) else ""
        what = f"{len(self._others)} numbers of processes, threads or cores are none that a system has, and are told as"
        return [f"{what} others: {', '.join(named)}{more}"]
