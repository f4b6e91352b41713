"""A store that is away: recordings wait on disk, and when they have enough of it, new ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.journal import Journal
from permille.controller.domain.session import Session, State
from permille.controller.domain.session_request import check_spool
from permille.mesh.errors import ResourceExhausted

STORED, STORING = pb.Session.STATE_STORED, pb.Session.STATE_STORING


def session(error: str = "") -> Session:
    return Session("n1", "s1", "r1", (1,), "ON_DEMAND", 500, 1 << 20, state=State.STORING, error_message=error)


def test_the_journal_knows_what_is_on_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sessions")
    assert journal.size_bytes() == 0
    entry = journal.open(session())
    before = journal.size_bytes()
    (entry.folder / "segment-0.pt.zst").write_bytes(b"x" * 1000)
    assert journal.size_bytes() == before + 1000 > 1000
    entry.remove()
    assert journal.size_bytes() == 0


def test_what_is_within_the_budget_or_waits_for_nothing_is_let_in() -> None:
    check_spool(99, 100, [session()])
    check_spool(100, 100, [])


def test_a_full_spool_says_what_waits_why_and_what_to_do() -> None:
    with pytest.raises(ResourceExhausted, match=r"1 recordings with 100 bytes wait .*: no route") as refused:
        check_spool(100, 100, [session("no route")])
    assert refused.value.reason == "SPOOL_FULL" and "controller.spool_budget_bytes" in refused.value.help


async def test_while_the_store_is_away_new_sessions_are_refused_and_nothing_recorded_is_lost(
    node: Any, swift_server: Any, s3_url: str, target_program: Path
) -> None:
    await node.kill("controller")
    node.settings = ["--store", s3_url, "--controller-spool-budget-bytes", "1000"]
    await node.start("controller")
    with node.running(target_program) as process:
        await node.recordable(process)
        swift_server.refuse()
        try:
            waiting = await node.begin(process.pid, request_id="first", period_ms=60_000)
            await node.stop_when_it_has_something(waiting)
            await node.until(waiting.name, STORING, with_reason=True)
            with pytest.raises(ResourceExhausted) as refused:
                await node.begin(process.pid, request_id="second")
            assert refused.value.reason == "SPOOL_FULL"
            assert int(refused.value.metadata["spooled_bytes"]) >= 1000
            # Who asks again for what has begun is not refused.
            assert (await node.begin(process.pid, request_id="first", period_ms=60_000)).name == waiting.name
        finally:
            swift_server.answer_again()
        assert (await node.end_of(waiting.name)).state == STORED
        while True:
            try:
                assert (await node.trace(process.pid, request_id="third")).state == STORED
                break
            except ResourceExhausted:
                # The journal forgets the first one a moment after a watcher saw its end.
                continue
