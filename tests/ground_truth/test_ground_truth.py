"""Every instruction that libipt and the Rust flow decode from vpt's packets is the one that ran, in its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from permille.controller.domain.vpt_layout import Flags

BASE = Flags.BRANCH | Flags.TRUTH
TIMED = BASE | Flags.TSC | Flags.MTC | Flags.CYC
OPTIONS = {
    "everything": (TIMED | Flags.LONG_TNT, {}),
    "short TNT": (TIMED, {}),
    "no return compression": (TIMED | Flags.LONG_TNT | Flags.DISRETC, {}),
    "no CYC": (BASE | Flags.TSC | Flags.MTC | Flags.LONG_TNT, {}),
    "no MTC": (BASE | Flags.TSC | Flags.CYC | Flags.LONG_TNT, {}),
    "no TSC": (BASE | Flags.MTC | Flags.CYC | Flags.LONG_TNT, {}),
    "no time": (BASE | Flags.LONG_TNT, {}),
    "nothing": (BASE | Flags.DISRETC, {}),
    "frequent PSB and MTC": (TIMED | Flags.LONG_TNT, {"psb_freq": 0, "mtc_freq": 0}),
    "rare PSB and MTC": (TIMED | Flags.LONG_TNT, {"psb_freq": 8, "mtc_freq": 9}),
}
WORKLOADS = ["gzip", "redis", "python", "program"]
# Before a conditional branch at the end of the stream the flow stops, libipt behind it.
LAST_BRANCH = 1


def compare(recording: Any, deciders: Any) -> int:
    """Asserts that both decoders see the truth in every stream, and returns how many instructions that is."""
    assert recording.page.unexplained == 0
    total = {"libipt": 0, "flow": 0}
    behind = {}
    for name, header, verdict in deciders.verdicts(recording):
        about = f"{name}, thread {bytes(header.name).decode()} ({header.index}): {verdict.told}"
        assert verdict.same and verdict.gaps == verdict.errors == 0, about
        if not header.full and verdict.missing > LAST_BRANCH:
            behind[header.index] = about
        assert verdict.equal > 0 or header.blocks <= 1, about
        total[name] += verdict.equal
    # A thread that got no processor at the end, in the middle of the recorder, has not written its last packets.
    assert len(behind) <= recording.page.revoked_threads, behind
    assert total["libipt"] - total["flow"] <= LAST_BRANCH * len(recording.streams())
    return min(total.values())


def record_until(lab: Any, workload: str, option: str, enough: int, judge: Callable[[Any], int]) -> None:
    flags, options = OPTIONS[option]
    with lab.busy(workload) as target:
        target.record_until(enough, judge, flags, period_ms=250, **options)


@pytest.mark.parametrize(
    ("workload", "option"),
    [("program", "everything"), ("redis", "everything"), ("gzip", "nothing"), ("python", "no return compression")],
)
def test_the_decoded_flow_is_what_ran(lab: Any, deciders: Any, workload: str, option: str) -> None:
    record_until(lab, workload, option, 50_000, lambda recording: compare(recording, deciders))


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_ten_million_instructions_with_every_packet_option(lab: Any, deciders: Any, workload: str, option: str) -> None:
    record_until(lab, workload, option, 10_000_000, lambda recording: compare(recording, deciders))


def test_a_full_buffer_stops_and_what_it_has_is_what_ran(lab: Any, deciders: Any) -> None:
    flags, _ = OPTIONS["everything"]
    with lab.busy("gzip") as target:
        recording = target.record_until_full(flags, size_bytes=200_000, streams=1)
        (header,) = recording.streams()
        assert header.full and header.lost_blocks > 0 and header.written_bytes <= 200_000
        assert compare(recording, deciders) > 100_000
