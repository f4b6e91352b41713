from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain import session as sessions
from permille.controller.domain.kmod_backend import KmodBackend
from permille.controller.domain.perf_backend import PerfBackend
from permille.controller.domain.planned_buffer import PlannedBuffer
from permille.controller.domain.session import FOLLOWERS, Session, State, TraceOptions
from permille.controller.domain.session_request import (
    SessionRequest,
    check,
    check_memory,
    check_repeated,
    check_snapshot,
)
from permille.controller.domain.targets.resolution import Group
from permille.mesh.errors import AlreadyExists, Internal, InvalidArgument, ResourceExhausted, Unavailable

SESSIONS = st.builds(
    Session,
    node=st.just("n1"),
    id=st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True),
    request_id=st.text(max_size=10),
    pids=st.lists(st.integers(1, 2**22), min_size=1).map(tuple),
    purpose=st.just("ON_DEMAND"),
    period_ms=st.integers(1, 60000),
    budget_bytes=st.integers(0, 2**40),
    options=st.builds(TraceOptions),
    group=st.builds(Group),
    state=st.sampled_from(State),
    target_name=st.text(),
    command_line=st.lists(st.text()).map(tuple),
    plan=st.lists(st.builds(PlannedBuffer)).map(tuple),
)
ONE = Session("n1", "s1", "r1", (7,), "ON_DEMAND", 500, 1 << 20)


@given(SESSIONS)
def test_a_session_comes_back_from_its_text(session: Session) -> None:
    assert sessions.from_json(sessions.to_json(session)) == session
    assert sessions.parse_name(session.name) == (session.node, session.id)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"pids": 3}', b"\xff"])
def test_text_that_is_no_session_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        sessions.from_json(text)


def test_a_session_of_before_plans_were_kept_has_none() -> None:
    assert sessions.from_json(sessions.to_json(ONE).replace(b'"plan":[],', b"")) == ONE


def test_a_session_of_an_older_version_has_no_group() -> None:
    older = json.loads(sessions.to_json(ONE))
    del older["group"]
    assert sessions.from_json(json.dumps(older).encode()) == ONE


def test_a_field_of_a_newer_version_does_no_harm() -> None:
    assert sessions.from_json(sessions.to_json(ONE)[:-1] + b',"new_field":1}') == ONE


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_session_takes_only_the_steps_of_its_life(before: State, after: State) -> None:
    session = ONE.changed(state=before)
    if after in FOLLOWERS[before]:
        assert session.advanced(after).state == after
    else:
        with pytest.raises(Internal):
            session.advanced(after)


def test_a_reason_to_wait_is_gone_with_the_next_step() -> None:
    waiting = ONE.changed(state=State.STORING).waiting(Unavailable("no store", reason="STORE_UNAVAILABLE", help="fix"))
    assert (waiting.state, waiting.error_reason) == (State.STORING, "STORE_UNAVAILABLE")
    assert waiting.advanced(State.STORED).error_reason == ""


@pytest.mark.parametrize(
    "name",
    ["", "sessions/1", "nodes/n1/sessions/", "nodes/N1/sessions/x", "nodes/a/sessions/../b", "nodes/-/sessions/x/"],
)
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="name of a session"):
        sessions.parse_name(name)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pids": []}, "pids"),
        ({"pids": [0]}, "pids"),
        ({"pids": [-4]}, "pids"),
        ({"pids": [5, 5]}, "pids"),
        ({"pids": list(range(1, 100))}, "pids"),
        ({"period_ms": 0}, "period_ms"),
        ({"period_ms": 60_001}, "period_ms"),
        ({"purpose": "FUN"}, "purpose"),
        ({"request_id": "a b"}, "request_id"),
        ({"budget_bytes": 4096}, "budget_bytes"),
        ({"budget_bytes": -1}, "budget_bytes"),
        ({"options": TraceOptions(psb_freq=16)}, "options.psb_freq"),
        ({"options": TraceOptions(tsc=False)}, "options.mtc"),
    ],
)
def test_a_wrong_wish_is_refused_by_name(change: dict[str, object], field: str) -> None:
    good: dict[str, object] = {"request_id": "r1", "pids": [5], "period_ms": 500}
    check(SessionRequest(**good), max_period_ms=60_000)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument) as error:
        check(SessionRequest(**{**good, **change}), max_period_ms=60_000)  # type: ignore[arg-type]
    assert error.value.metadata["field"] == field
    assert error.value.help


def test_a_snapshot_is_for_who_keeps_what_was_written_last() -> None:
    wanted = TraceOptions(snapshot=True)
    check_snapshot(wanted, PerfBackend())
    check_snapshot(TraceOptions(), KmodBackend())
    with pytest.raises(InvalidArgument, match="kmod takes no snapshots") as error:
        check_snapshot(wanted, KmodBackend())
    assert "--backend perf" in error.value.help


def test_a_group_has_one_name() -> None:
    with pytest.raises(InvalidArgument) as error:
        check(SessionRequest("r1", [5], 500, group=Group("/web.slice", pod="default/web-0")), max_period_ms=60_000)
    assert error.value.reason == "TARGET_AMBIGUOUS"


def test_a_budget_beyond_the_free_shared_memory_is_refused() -> None:
    check_memory(100, 100)
    with pytest.raises(ResourceExhausted, match="more than the 99 bytes"):
        check_memory(100, 99)


def test_a_request_id_stands_for_one_wish() -> None:
    check_repeated(SessionRequest("r1", [7], 500), ONE)
    with pytest.raises(AlreadyExists) as error:
        check_repeated(SessionRequest("r1", [8], 500), ONE)
    assert error.value.metadata["session"] == ONE.name
