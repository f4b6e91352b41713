"""A whole mesh whose store is S3: it works, and an S3 that refuses delays and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole_mesh import WholeMesh, new_mesh, session_of
from tests.whole_session import assert_did_its_work, assert_whole, caught_decoding, waiting_session


@pytest.fixture
def s3_mesh(tmp_path: Path, conditional_s3_url: str) -> Iterator[WholeMesh]:
    """A mesh on a new bucket, not started yet. The credentials come from the environment."""
    mesh = new_mesh(tmp_path, PERMILLE_STORE=conditional_s3_url)
    try:
        yield mesh
        mesh.stop()
    finally:
        mesh.close()


@pytest.mark.slow
def test_an_s3_that_is_away_while_recording(s3_mesh: WholeMesh, busy: Path, conditional_swift_server: Any) -> None:
    s3_mesh.start()
    with s3_mesh.running(str(busy), "paced") as target:
        with s3_mesh.started("trace", "--pid", str(target.pid), "--for", "1s", "--json") as trace:
            s3_mesh.await_recording(target.pid)
            conditional_swift_server.refuse()
            waiting = waiting_session(s3_mesh, trace)
            assert (waiting["state"], waiting["stop_reason"]) == ("STORING", "PERIOD") and waiting["error_help"]
            conditional_swift_server.answer_again()
            session = session_of(s3_mesh.finished(trace))
        assert session == waiting["session_id"]
        assert_did_its_work(assert_whole(s3_mesh, session))
    s3_mesh.command("delete", session, "--yes")
    assert set(s3_mesh.counts(session).values()) == {0}
    assert s3_mesh.sessions() == []


@pytest.mark.slow
def test_an_s3_that_is_away_while_decoding(s3_mesh: WholeMesh, busy: Path, conditional_swift_server: Any) -> None:
    s3_mesh.start()
    with (
        s3_mesh.running(str(busy), "spinning") as target,
        caught_decoding(s3_mesh, target.pid) as trace,
    ):
        conditional_swift_server.refuse()
        assert trace.poll() is None
        conditional_swift_server.answer_again()
        session = session_of(s3_mesh.finished(trace))
    assert_did_its_work(assert_whole(s3_mesh, session))


@pytest.mark.slow
def test_a_wrong_key_is_told_and_loses_nothing(s3_mesh: WholeMesh, busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        s3_mesh.start()
    with (
        s3_mesh.running(str(busy), "paced") as target,
        s3_mesh.started("trace", "--pid", str(target.pid), "--for", "500ms", "--json") as trace,
    ):
        waiting = waiting_session(s3_mesh, trace)
        assert waiting["state"] == "STORING"
        assert waiting["error_message"] and waiting["error_help"]
        s3_mesh.stop()
        s3_mesh.start()
        session = session_of(s3_mesh.finished(trace))
    assert session == waiting["session_id"]
    assert_did_its_work(assert_whole(s3_mesh, session))
