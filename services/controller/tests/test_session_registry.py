"""Sessions in a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from permille.controller.domain.progress import BufferProgress, Progress
from permille.controller.domain.session import Session, State
from permille.controller.service.session_registry import SessionRegistry
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease

KEY = "/permille/v1/nodes/n1/sessions/"


def session(number: int, *, request: str = "", pid: int = 7, node: str = "n1") -> Session:
    return Session(node, f"s{number:03}", request or f"r{number}", (pid,), "ON_DEMAND", 500, 1 << 20)


@pytest.fixture
async def registry(etcd: Etcd) -> AsyncIterator[SessionRegistry]:
    async with registry_of(etcd, "n1") as registry:
        yield registry


@asynccontextmanager
async def registry_of(etcd: Etcd, node: str) -> AsyncIterator[SessionRegistry]:
    lease = Lease(etcd, 2)
    await lease.start()
    registry = SessionRegistry(etcd, lease, node)
    await registry.start(b"{}")
    yield registry
    await registry.close()
    await lease.close()


async def created(registry: SessionRegistry, one: Session) -> tuple[Session, bool]:
    return await registry.create(one.request_id, lambda: one)


async def finish(registry: SessionRegistry, one: Session) -> Session:
    done = one.changed(state=State.STORED)
    registry.publish(done)
    await registry.settled(one.id)
    return done


async def test_a_repeated_start_finds_the_first_session(registry: SessionRegistry) -> None:
    first, new = await created(registry, session(1, request="same"))
    assert new
    assert await created(registry, session(2, request="same")) == (first, False)
    await finish(registry, first)
    again, new = await created(registry, session(3, request="same"))
    assert not new and again.state == State.STORED


async def test_fifty_starts_at_once_with_one_request_id_are_one_session(registry: SessionRegistry) -> None:
    results = await asyncio.gather(*(created(registry, session(n, request="same")) for n in range(50)))
    assert len({one.name for one, _ in results}) == 1
    assert sum(new for _, new in results) == 1


async def test_fifty_starts_at_once_of_one_target_are_one_session_and_forty_nine_errors(
    registry: SessionRegistry, etcd: Etcd
) -> None:
    results = await asyncio.gather(*(created(registry, session(n)) for n in range(50)), return_exceptions=True)
    (winner,) = [result[0] for result in results if not isinstance(result, BaseException)]
    for refused in results:
        if isinstance(refused, BaseException):
            assert isinstance(refused, FailedPrecondition)
            assert (refused.reason, refused.metadata["session"]) == ("ALREADY_TRACED", winner.name)
    assert len(await etcd.prefix(KEY)) == 1


async def test_a_target_is_free_again_when_its_recording_is_over(registry: SessionRegistry) -> None:
    first, _ = await created(registry, session(1))
    registry.publish(first.changed(state=State.STORING))
    second, new = await created(registry, session(2))
    assert new and second.id == "s002"


async def test_a_target_that_the_recorder_still_holds_is_not_free(registry: SessionRegistry) -> None:
    first, _ = await created(registry, session(1))
    registry.publish(first.changed(state=State.STORING, holds=True))
    with pytest.raises(FailedPrecondition, match=first.name):
        await created(registry, session(2))


async def test_an_active_session_is_under_a_lease_and_a_finished_one_is_not(
    registry: SessionRegistry, etcd: Etcd
) -> None:
    one, _ = await created(registry, session(1))
    stored = await etcd.get(KEY + one.id)
    assert stored is not None and stored.lease != 0
    await finish(registry, one)
    stored = await etcd.get(KEY + one.id)
    assert stored is not None and stored.lease == 0
    assert (await registry.get(one.name)).state == State.STORED


async def test_a_watcher_sees_every_state_until_the_last(registry: SessionRegistry) -> None:
    one, _ = await created(registry, session(1))

    seen = []
    following = {
        State.PREPARING: lambda: registry.publish(one.changed(state=State.RECORDING)),
        State.RECORDING: lambda: registry.publish(one.changed(state=State.STORING)),
        State.STORING: lambda: registry.publish(one.changed(state=State.STORED)),
    }
    async for change in registry.watch(one.name):
        seen.append(change.state)
        following.get(change.state, lambda: None)()
    assert seen == [State.PREPARING, State.RECORDING, State.STORING, State.STORED]


async def test_how_far_a_session_is_is_told_to_its_watchers_and_not_to_etcd(
    registry: SessionRegistry, etcd: Etcd
) -> None:
    one, _ = await created(registry, session(1))
    before = await etcd.get(KEY + one.id)
    told = [Progress([BufferProgress(size, 100, full=False, stopped=False, core=3)], 9 - size) for size in range(3)]
    left = list(told)
    assert not registry.watched(one.id)
    seen = []
    async for change, progress in registry.watch_progress(one.name):
        assert registry.watched(one.id)
        seen.append(progress)
        if left:
            registry.progressed(one.id, left.pop(0))
        elif not change.state.final:
            assert await etcd.get(KEY + one.id) == before
            registry.publish(one.changed(state=State.FAILED))
    # What was reached is told with the end, too.
    assert seen == [None, *told, told[-1]]
    assert not registry.watched(one.id)


async def test_of_another_controllers_session_the_changes_are_told(registry: SessionRegistry, etcd: Etcd) -> None:
    async with registry_of(etcd, "n2") as other:
        one, _ = await created(other, session(1, node="n2"))
        seen = []
        async for change, progress in registry.watch_progress(one.name):
            assert progress is None
            seen.append(change.state)
            other.progressed(one.id, Progress([], 5))
            if not change.state.final:
                other.publish(one.changed(state=State.FAILED))
        assert seen == [State.PREPARING, State.FAILED]


async def test_etcd_away_refuses_new_work_and_learns_the_end_of_the_running_when_it_is_back(
    registry: SessionRegistry, etcd: Etcd, etcd_server: EmbeddedEtcd
) -> None:
    one, _ = await created(registry, session(1))
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    with pytest.raises(Unavailable):
        await created(registry, session(2, pid=8))
    registry.publish(one.changed(state=State.STORED))
    assert (await registry.get(one.name)).state == State.STORED
    settling = asyncio.create_task(registry.settled(one.id))
    await asyncio.sleep(0.5)
    assert not settling.done()
    await etcd_server.start()
    await settling
    stored = await etcd.get(KEY + one.id)
    assert stored is not None and stored.lease == 0 and b"STORED" in stored.value


async def test_a_lease_that_etcd_forgot_is_replaced_and_the_session_written_again(
    registry: SessionRegistry, etcd: Etcd
) -> None:
    one, _ = await created(registry, session(1))
    before = await etcd.get(KEY + one.id)
    assert before is not None
    await etcd.revoke(before.lease)
    assert await etcd.get(KEY + one.id) is None
    while (after := await etcd.get(KEY + one.id)) is None:
        await asyncio.sleep(0.05)
    assert after.lease not in (0, before.lease)


async def test_lists_are_paged_newest_first(registry: SessionRegistry, etcd: Etcd) -> None:
    for number in range(5):
        await finish(registry, (await created(registry, session(number)))[0])
    assert await listed(registry, "", 2) == ["s004", "s003", "s002", "s001", "s000"]
    async with registry_of(etcd, "n2") as other:
        await created(other, session(9, node="n2"))
        assert (await registry.get("nodes/n2/sessions/s009")).node == "n2"
        assert sorted(await listed(registry, "nodes/-", 4)) == ["s000", "s001", "s002", "s003", "s004", "s009"]
        assert await listed(registry, "nodes/n2", 0) == ["s009"]


async def listed(registry: SessionRegistry, parent: str, size: int) -> list[str]:
    ids: list[str] = []
    token = ""
    while True:
        page, token = await registry.page(parent, size, token)
        ids += [one.id for one in page]
        if not token:
            return ids


async def test_wrong_names_pages_and_tokens_are_refused(registry: SessionRegistry) -> None:
    with pytest.raises(NotFound):
        await registry.get("nodes/n1/sessions/none")
    for parent, size, token in (("n1", 0, ""), ("nodes/n1/x", 0, ""), ("", -1, ""), ("", 0, "/elsewhere")):
        with pytest.raises(InvalidArgument):
            await registry.page(parent, size, token)
