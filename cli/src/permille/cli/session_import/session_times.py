"""When a recording was made, as far as it says, and how long its clock's ticks are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from permille.ptcore import Capture

# The nominal ratio is that of the TSC's frequency to a bus of 100 MHz (Intel SDM volume 3, MSR_PLATFORM_INFO).
_NS_PER_BUS_TICK = 10


@dataclass(frozen=True)
class SessionTimes:
    """Two moments in TSC ticks and in unix ns; `notes` say what of it is a guess."""

    tsc0: int
    ns0: int
    tsc1: int
    ns1: int
    notes: list[str] = field(default_factory=list)

    @property
    def clock(self) -> dict[str, int]:
        """As the manifest has it."""
        return {"tsc0": self.tsc0, "ns0": self.ns0, "tsc1": self.tsc1, "ns1": self.ns1}


def session_times(capture: Capture, first_tsc: int, last_tsc: int, written_ns: int) -> SessionTimes:
    """The recording lasted from `first_tsc` to `last_tsc`, 0 without times; its file was written at `written_ns`."""
    notes = ["when it was recorded is not in the file: it is taken to have ended when the file was last written"]
    if not first_tsc:
        notes.append(
            "the packets hold no times: each instruction counts as one nanosecond, those of a function itself come"
            " before its calls"
        )
    elapsed_ns = _elapsed_ns(capture, first_tsc, last_tsc)
    if elapsed_ns is None:
        elapsed_ns = last_tsc - first_tsc
        if elapsed_ns:
            notes.append(
                "the recording does not say how long a tick of its clock is: times are ticks of the time stamp counter,"
                " shown as if each took a nanosecond (--timing tells the frequency)"
            )
    return SessionTimes(first_tsc, written_ns - elapsed_ns, last_tsc, written_ns, notes)


def _elapsed_ns(capture: Capture, first_tsc: int, last_tsc: int) -> int | None:
    begin, end = capture.nanoseconds(first_tsc), capture.nanoseconds(last_tsc)
    if begin is not None and end is not None:
        return end - begin
    _, _, nominal_ratio = capture.timing
    return (last_tsc - first_tsc) * _NS_PER_BUS_TICK // nominal_ratio if nominal_ratio else None
