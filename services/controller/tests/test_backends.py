"""Which back end records what."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import pytest
from permille.controller.domain.backends import Backends
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.recording import RecordableProcess, Recording, RecordingConfig
from permille.controller.domain.session_budget import SessionBudget
from permille.controller.service.node_description import of_cores
from permille.mesh.errors import FailedPrecondition, InvalidArgument

ME = os.getpid()


class Known:
    """A back end that records those processes, or any where none is named."""

    def __init__(
        self,
        name: str,
        pids: Sequence[int] = (),
        *,
        by_core: bool = False,
        snapshots: bool = False,
        why_not: str = "",
        free: int = 0,
    ) -> None:
        self.name, self.by_core, self.joins, self.snapshots = name, by_core, False, snapshots
        self._pids, self._why_not, self._free = pids, why_not, free

    def require(self) -> None:
        if self._why_not:
            raise NotOnThisMachine(self.name, self._why_not, "change that")

    def processes(self) -> list[RecordableProcess]:
        return [RecordableProcess(pid, "x", ("x",), 1, "") for pid in self._pids]

    def process(self, pid: int) -> RecordableProcess | None:
        return RecordableProcess(pid, "x", ("x",), 1, "") if self.by_core or pid in self._pids else None

    def begin(self, config: RecordingConfig) -> Sequence[Recording]:
        raise NotImplementedError

    def find(self, pids: Sequence[int], session_id: str) -> Sequence[Recording]:
        return []

    def free_bytes(self) -> int:
        self.require()
        return self._free

    def collect_garbage(self, sessions: Collection[str]) -> None: ...


def both(preferred: str = "auto", why_not: str = "") -> Backends:
    return Backends([Known("vpt", [7]), Known("kmod", by_core=True, why_not=why_not)], preferred)


def test_a_process_made_ready_goes_to_its_own_back_end_others_to_the_one_that_records_any() -> None:
    assert both().choose("", [7]).name == "vpt"
    assert both().choose("auto", [8]).name == "kmod"
    assert both().choose("", [7, 8]).name == "kmod"


def test_what_is_asked_for_comes_before_what_is_set() -> None:
    assert both().choose("kmod", [7]).name == "kmod"
    assert both("kmod").choose("", [7]).name == "kmod"
    assert both("kmod").choose("vpt", [7]).name == "vpt"
    with pytest.raises(InvalidArgument, match="no back end 'etm'"):
        both().choose("etm", [7])


def test_one_that_does_not_work_here_says_why_when_it_is_asked_for() -> None:
    with pytest.raises(NotOnThisMachine, match="because the module is away"):
        both(why_not="the module is away").choose("kmod", [7])


def test_without_one_that_records_any_process_a_process_has_to_be_made_ready() -> None:
    with pytest.raises(FailedPrecondition) as raised:
        both(why_not="the module is away").choose("", [ME])
    assert raised.value.reason == "NOT_RECORDABLE"
    with pytest.raises(FailedPrecondition) as raised:
        both().choose("vpt", [ME])
    assert raised.value.reason == "NOT_RECORDABLE"


def test_a_node_lists_what_was_made_ready_and_what_is_asked_for() -> None:
    def listed(backends: Backends, wanted: str) -> dict[int, str]:
        return {process.pid: backend.name for process, backend in backends.recordable(wanted, {7, 8})}

    assert listed(both(), "") == {7: "vpt", 8: "kmod"}
    assert listed(both(), "vpt") == {7: "vpt"}
    assert listed(both(), "kmod") == {7: "kmod", 8: "kmod"}
    assert listed(both(why_not="away"), "") == {7: "vpt"}
    assert listed(both(why_not="away"), "kmod") == {}


def test_a_budget_that_nobody_names_leaves_half_of_what_the_back_end_has() -> None:
    vpt, kmod = Known("vpt", [7], free=3 << 20), Known("kmod", by_core=True, free=1 << 40)
    assert SessionBudget(256 << 20).of(vpt) == 3 << 19
    assert SessionBudget(256 << 20).of(kmod) == 256 << 20
    assert SessionBudget(256 << 20).of(Known("kmod", by_core=True, why_not="away")) == 256 << 20


def test_without_a_setting_cores_have_more_than_threads() -> None:
    assert SessionBudget().of(Known("kmod", by_core=True, free=1 << 30)) == 500 << 20
    assert SessionBudget().of(Known("vpt", [7], free=1 << 30)) == 256 << 20


def test_without_a_process_the_node_has_what_works_on_it() -> None:
    assert both().usual("").name == "vpt"
    assert both("kmod").usual("").name == both().usual("kmod").name == "kmod"
    away = Backends([Known("kmod", by_core=True, why_not="away"), Known("vpt")])
    assert away.usual("").name == "vpt"
    assert [backend.name for backend in away.by_preference()] == ["vpt", "kmod"]


def test_a_node_says_which_back_end_records_any_process_and_which_takes_snapshots() -> None:
    kmod, perf = Known("kmod", by_core=True, why_not="the module is away"), Known("perf", by_core=True, snapshots=True)
    backends = Backends([Known("vpt"), kmod, perf])
    told = {found.name: (found.available, found.detail) for found in of_cores(backends, not_needed=True)}
    assert told == {
        "kmod": (False, "the module is away"),
        "perf": (True, "any process of this machine can be recorded, also as a snapshot"),
    }
    fixes = [of_cores(backends, not_needed=not_needed)[0].fix for not_needed in (True, False)]
    assert fixes == ["change that; not needed: vpt records without it", "change that"]
