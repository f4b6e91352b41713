"""What a session leaves at /metrics."""

from __future__ import annotations

from permille.controller.domain.recording import Stream, counters_of
from permille.controller.domain.session import Session, State
from permille.controller.service import session_metrics
from prometheus_client import REGISTRY

KMOD = {"backend": "kmod"}


def stream(core: int, **counters: int) -> Stream:
    return Stream(core, 0, "", 10, 20, False, 0, 0, 1, 2, (), core, counters)


def now(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_counters_of_all_cores_are_added_but_for_those_that_are_the_largest() -> None:
    cores = [stream(0, operations_on=1, hook_ticks_max=90), stream(1, operations_on=2, hook_ticks_max=70, arrivals=5)]
    assert counters_of(cores) == {"operations_on": 3, "arrivals": 5, "hook_ticks_max": 90}
    assert counters_of([]) == {}


def test_what_the_recorder_counted_and_what_found_no_room_is_at_metrics() -> None:
    before = now("permille_session_full_buffers_total"), now("permille_session_lost_switch_records_total")
    session = Session(
        "n1", "s1", "r1", (7,), "ON_DEMAND", 500, 1 << 20, state=State.STORED, backend="kmod", stop_reason="PERIOD",
        full_buffers=2, lost_records=3, counters={"operations_on": 4, "hook_calls": 900, "hook_ticks_max": 77},
    )  # fmt: skip
    for times in (1, 2):
        session_metrics.count(session)
        assert now("permille_recorder_work_total", counter="operations_on", **KMOD) == 4 * times
        assert now("permille_recorder_work_total", counter="hook_calls", **KMOD) == 900 * times
    assert now("permille_recorder_work_total", counter="hook_ticks_max", **KMOD) == 0
    after = now("permille_session_full_buffers_total"), now("permille_session_lost_switch_records_total")
    assert after == (before[0] + 4, before[1] + 6)
