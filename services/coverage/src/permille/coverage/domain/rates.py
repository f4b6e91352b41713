"""How fast a target writes trace and how fast that is decoded, learnt from the sessions that were."""

from __future__ import annotations

from dataclasses import dataclass

# First guesses, until a session has been measured: an emulated program writes some tens of MB of packets in a second of
# one busy thread, and one core decodes about as much. They only tell seconds from minutes.
FIRST_BYTES_PER_SECOND = 20e6
FIRST_DECODED_BYTES_PER_SECOND = 20e6
# What a decode costs however small it is: fetching, starting, committing the tables.
DECODE_FLOOR_MS = 500
# The weight of the newest session: the last five or so decide.
_NEWEST = 0.4
# A recording that was shorter counts less: of a millisecond one sees how the recording begins, no rate.
_WHOLE_MS = 100
# What is left of the largest number of blocks after a session with fewer.
_KEPT = 0.95


@dataclass(frozen=True)
class Observation:
    """One finished session: what `processes` processes wrote and lost in `recorded_ms`, decoded in `decode_ms`.

    `blocks`: how many different basic blocks of the program are known to run, from this and earlier sessions; None:
    nothing could be decoded.
    """

    processes: int
    recorded_ms: int
    raw_bytes: int
    lost_bytes: int
    decode_ms: int
    blocks: int | None = None


@dataclass(frozen=True)
class Rates:
    """Trace bytes per second of one process, and decoded bytes per second; `sessions` measured so far.

    `blocks`: as many different basic blocks as were seen, fading slowly, so that a program that was rebuilt smaller is
    noticed; None: none yet.
    """

    bytes_per_second: float = FIRST_BYTES_PER_SECOND
    decoded_bytes_per_second: float = FIRST_DECODED_BYTES_PER_SECOND
    sessions: int = 0
    blocks: float | None = None

    def after(self, seen: Observation) -> Rates:
        """The rates with one more session in them: an exponentially weighted mean; the first one replaces the guess.

        A session of less than 100 ms counts by its share of that, for the bytes that were written per second.
        """
        if seen.recorded_ms <= 0 or seen.processes <= 0:
            return self
        weight = _NEWEST if self.sessions else 1.0
        written_weight = weight * min(1.0, seen.recorded_ms / _WHOLE_MS)
        # What was lost would have been written with larger buffers: it belongs to the target's rate.
        written = (seen.raw_bytes + seen.lost_bytes) * 1000 / (seen.recorded_ms * seen.processes)
        work_ms = max(seen.decode_ms - DECODE_FLOOR_MS, 1)
        # Of a small trace the floor is all one sees.
        decoded = seen.raw_bytes * 1000 / work_ms if seen.raw_bytes >= 1 << 20 else self.decoded_bytes_per_second
        blocks = self.blocks
        if seen.blocks is not None:
            blocks = max(float(seen.blocks), _KEPT * (blocks or 0.0))
        return Rates(
            bytes_per_second=self.bytes_per_second + written_weight * (written - self.bytes_per_second),
            decoded_bytes_per_second=self.decoded_bytes_per_second + weight * (decoded - self.decoded_bytes_per_second),
            sessions=self.sessions + 1,
            blocks=blocks,
        )

    def expected_bytes(self, processes: int, period_ms: int, budget_bytes: int) -> int:
        """Trace bytes that a session will write; full buffers stop, so never more than the budget (0: unknown)."""
        expected = int(self.bytes_per_second * processes * period_ms / 1000)
        return min(expected, budget_bytes) if budget_bytes else expected

    def decoding_ms(self, size_bytes: float) -> float:
        """Time that decoding so many bytes will take, above the floor that every decode takes."""
        return size_bytes * 1000 / max(self.decoded_bytes_per_second, 1.0)
