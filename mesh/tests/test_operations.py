"""Operations against a real etcd: idempotent, paged, waited for, cancelled, and owned by one process at a time."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.message import Message
from permille.api.decoder.v1 import decoder_pb2
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import (
    Aborted,
    Cancelled,
    Internal,
    InvalidArgument,
    NotFound,
    PermilleError,
    ResourceExhausted,
    Unavailable,
)
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operation_names import operation_id, operation_of, part_request_id
from permille.mesh.operation_runner import Job, OperationRunner
from permille.mesh.operations import Operation, OperationStore, Reservation, operation_error

Request = decoder_pb2.DecodeRequest
Result = decoder_pb2.DecodeResult


async def replica(etcd: Etcd, draining: asyncio.Event | None = None) -> OperationStore:
    """A process's view of the operations, with a lease of its own."""
    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    return OperationStore(etcd, "decoder", lease=lease, draining=draining)


def die(store: OperationStore) -> None:
    """As after kill -9: the lease is not kept alive any more, nothing is given back."""
    assert store.lease._task is not None
    store.lease._task.cancel()


async def test_a_repeated_request_id_returns_the_same_operation(etcd: Etcd) -> None:
    store = await replica(etcd)
    first, created = await store.create(Request(session="s"), "r1")
    again, created_again = await store.create(Request(session="s"), "r1")
    assert (created, created_again) == (True, False)
    assert first == again
    assert (await store.create(Request(session="s"), "r2"))[0].name != first.name


async def test_of_fifty_concurrent_starts_with_one_request_id_one_creates(etcd: Etcd) -> None:
    stores = [await replica(etcd) for _ in range(5)]
    results = await asyncio.gather(*(stores[n % 5].create(Request(session="s"), "same") for n in range(50)))
    assert sum(created for _, created in results) == 1
    assert len({operation.name for operation, _ in results}) == 1


async def test_room_is_given_away_once_and_back_at_the_end(etcd: Etcd) -> None:
    first, second = await replica(etcd), await replica(etcd)
    assert await second.reservations() == ({}, 0)
    taken, _ = await first.create(Request(), "r1", reservation=Reservation(b"one", 0))
    with pytest.raises(Aborted) as refused:
        await second.create(Request(), "r2", reservation=Reservation(b"two", 0))
    assert refused.value.reason == "CONCURRENT_CHANGE"
    # The same request is no second one, whatever it has read.
    assert await second.create(Request(), "r1", reservation=Reservation(b"one", 0)) == (taken, False)
    contents, revision = await second.reservations()
    assert list(contents.values()) == [b"one"]
    await second.create(Request(), "r2", reservation=Reservation(b"two", revision))
    await second.create(Request(), "r3", reservation=Reservation(b"whatever"))
    # Nor is it changed by who has not seen the newest, or is not its owner.
    assert not await first.reserve(taken.name, Reservation(b"more", revision))
    assert await first.reserve(taken.name, Reservation(b"more", (await first.reservations())[1]))
    with pytest.raises(Aborted):
        await second.reserve(taken.name, Reservation(b"stolen"))
    assert await first.reserve(taken.name, Reservation(b"one"))
    assert sorted((await second.reservations())[0].values()) == [b"one", b"two", b"whatever"]
    await first.fail(taken.name, NotFound("gone", reason="GONE"))
    assert sorted((await second.reservations())[0].values()) == [b"two", b"whatever"]


async def test_a_request_id_cannot_be_used_for_another_request(etcd: Etcd) -> None:
    store = await replica(etcd)
    first, _ = await store.create(Request(session="s"), "r1")
    with pytest.raises(InvalidArgument) as caught:
        await store.create(Request(session="other"), "r1")
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert caught.value.metadata["operation"] == first.name


@pytest.mark.parametrize("request_id", ["-x", "a b", "ä", "x" * 129, "a/b"])
async def test_a_malformed_request_id_is_refused(etcd: Etcd, request_id: str) -> None:
    with pytest.raises(InvalidArgument):
        await (await replica(etcd)).create(Request(), request_id)


@pytest.mark.parametrize("name", ["", "operations/", "operations/../x", "000000000000-00000000", "operations/ABC"])
async def test_a_malformed_name_is_refused(etcd: Etcd, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await (await replica(etcd)).get(name)


async def test_an_unknown_operation_is_not_found(etcd: Etcd) -> None:
    with pytest.raises(NotFound):
        await (await replica(etcd)).get("operations/000000000000-00000000")


def test_the_request_id_of_a_part_names_its_operation() -> None:
    name = "operations/0123456789ab-01234567"
    assert {operation_of(part_request_id(name, part)) for part in (0, 1234)} == {name}
    for other in ("", "r1", "0123456789ab-01234567", "0123456789ab-01234567-", "x0123456789ab-01234567-0"):
        assert operation_of(other) == ""


async def test_pages_cover_all_operations_newest_first_while_new_ones_come(etcd: Etcd) -> None:
    store = await replica(etcd)
    names = []
    for number in range(7):
        names.append((await store.create(Request(session=str(number)), f"r{number}"))[0].name)
        await asyncio.sleep(0.002)
    seen: list[str] = []
    token = ""
    while True:
        page, token = await store.list(3, token)
        assert len(page) <= 3
        seen += [operation.name for operation in page]
        await store.create(Request(), "")
        if not token:
            break
    assert seen == names[::-1]


async def test_a_page_of_large_operations_ends_where_any_client_takes_it(etcd: Etcd) -> None:
    store = await replica(etcd)
    large = [Request(session=f"{number}" * 500_000) for number in range(9)]
    names = [(await store.create(request, ""))[0].name for request in large]
    seen: list[str] = []
    token = ""
    while True:
        page, token = await store.list(1000, token)
        assert 0 < sum(operation.ByteSize() for operation in page) < 4 << 20
        seen += [operation.name for operation in page]
        if not token:
            break
    assert sorted(seen) == sorted(names)


@pytest.mark.parametrize("token", ["x", "!!!", "b3BlcmF0aW9ucw=="])
async def test_a_foreign_page_token_is_refused(etcd: Etcd, token: str) -> None:
    with pytest.raises(InvalidArgument):
        await (await replica(etcd)).list(3, token)


async def test_waiting_ends_when_the_operation_does_or_when_it_changed(etcd: Etcd) -> None:
    store, other = await replica(etcd), await replica(etcd)
    operation, _ = await store.create(Request(), "r")
    changed = asyncio.create_task(other.wait(operation.name, 120, newer_than_ns=operation.update_time.ToNanoseconds()))
    done = asyncio.create_task(other.wait(operation.name, 120))
    await store.update(operation.name, "DECODING", 1, 2, "segments")
    assert (await changed).progress.completed == 1
    assert not done.done()
    await store.finish(operation.name, Result(calls=5))
    result = Result()
    assert (await done).done
    assert (await done).response.Unpack(result)
    assert result.calls == 5


async def test_waiting_returns_the_unfinished_operation_at_the_timeout(etcd: Etcd) -> None:
    store = await replica(etcd)
    operation, _ = await store.create(Request(), "r")
    assert not (await store.wait(operation.name, 0.1)).done


async def test_waiting_ends_when_the_process_drains(etcd: Etcd) -> None:
    draining = asyncio.Event()
    store = await replica(etcd, draining)
    operation, _ = await store.create(Request(), "r")
    waiting = asyncio.create_task(store.wait(operation.name, 120))
    await asyncio.sleep(0)
    draining.set()
    with pytest.raises(Unavailable):
        await waiting


async def test_only_the_owner_may_change_an_operation(etcd: Etcd) -> None:
    store, other = await replica(etcd), await replica(etcd)
    operation, _ = await store.create(Request(), "r")
    for change in (
        other.update(operation.name, "X"),
        other.finish(operation.name, Result()),
        other.save(operation.name, b""),
        other.require_owned(operation.name),
    ):
        with pytest.raises(Aborted, match="owned by another"):
            await change
    await store.require_owned(operation.name)
    await store.finish(operation.name, Result())
    for change in (store.finish(operation.name, Result()), store.require_owned(operation.name)):
        with pytest.raises(Aborted):
            await change


async def test_a_start_after_the_lease_has_run_out_takes_a_new_one(etcd: Etcd) -> None:
    store = await replica(etcd)
    await etcd.revoke(store.lease.id)
    operation, created = await store.create(Request(), "r")
    assert created
    await etcd.revoke(store.lease.id)
    assert await store.claim(operation.name)


async def test_changes_of_one_owner_at_once_all_succeed(etcd: Etcd) -> None:
    store = await replica(etcd)
    operation, _ = await store.create(Request(), "r")
    await asyncio.gather(*(store.update(operation.name, "DECODING", part) for part in range(20)))
    assert not (await store.get(operation.name)).done
    await store.finish(operation.name, Result())


async def test_progress_of_parts_that_end_together_is_told_in_order(etcd: Etcd) -> None:
    store = await replica(etcd)

    async def work(job: Job[Request]) -> Result:
        await asyncio.gather(*(job.progress("DECODING", part + 1, 20, "segments") for part in range(20)))
        return Result()

    operation = await OperationRunner(store, Request, work).start(Request(), "r")
    ended = await store.wait(operation.name, 120)
    assert ended.done and operation_error(ended) is None
    assert ended.progress.completed == 20


async def test_work_that_lost_its_lease_and_gave_up_begins_again(etcd: Etcd) -> None:
    store = await replica(etcd)
    runs: list[str] = []

    async def work(job: Job[Request]) -> Result:
        runs.append(job.name)
        if len(runs) == 1:
            owner = store.keys.owners + operation_id(job.name)
            await etcd.delete(owner)
            while await etcd.get(owner) is None:
                await asyncio.sleep(0.01)
            # As a write that was refused before the runner claimed the operation again.
            raise Aborted("taken", reason="OPERATION_TAKEN")
        return Result(session="second")

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    assert (await store.wait(operation.name, 120)).done
    assert len(runs) == 2
    running.cancel()


async def test_what_is_done_will_vanish_with_its_request_id(etcd: Etcd) -> None:
    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    store = OperationStore(etcd, "decoder", lease=lease, retention_s=2)
    operation, _ = await store.create(Request(), "r")
    await store.finish(operation.name, Result())
    assert (await store.create(Request(), "r"))[0].done
    async for state in etcd.observe_prefix("/permille/v1/"):
        if not [key for key in state if "/decoder/" in key]:
            break


async def test_a_runner_works_finishes_and_fails(etcd: Etcd) -> None:
    store = await replica(etcd)

    async def work(job: Job[Request]) -> Result:
        await job.progress("DECODING", 1, 2, "segments")
        if job.request.session == "bad":
            raise NotFound("no session bad", reason="SESSION_NOT_FOUND", help="look", metadata={"session": "bad"})
        if job.request.session == "defect":
            raise ZeroDivisionError("secret")
        return Result(session=job.request.session)

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    results = {}
    for session in ("good", "bad", "defect"):
        operation = await runner.start(Request(session=session), session)
        results[session] = await store.wait(operation.name, 120)
    good = Result()
    assert results["good"].response.Unpack(good)
    assert good.session == "good"
    error = operation_error(results["bad"])
    assert isinstance(error, NotFound)
    assert (error.reason, error.help, error.metadata) == ("SESSION_NOT_FOUND", "look", {"session": "bad"})
    defect = operation_error(results["defect"])
    assert defect is not None
    assert defect.reason == "UNEXPECTED"
    assert "secret" not in defect.message
    running.cancel()


async def test_an_end_that_etcd_refuses_is_written_later_and_the_work_is_not_done_again(etcd: Etcd) -> None:
    refused = 0

    class Full(OperationStore):
        async def finish(self, name: str, response: Message, *, since: int = 0) -> Operation:
            nonlocal refused
            refused += 1
            if refused < 4:
                raise ResourceExhausted("etcd refuses to write", reason="ETCD_FULL", retry_after_s=30.0)
            return await super().finish(name, response, since=since)

    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    store = Full(etcd, "decoder", lease=lease)
    worked = 0

    async def work(job: Job[Request]) -> Result:
        nonlocal worked
        worked += 1
        return Result()

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    assert (await store.wait(operation.name, 120)).done
    assert (worked, refused) == (1, 4)
    running.cancel()


async def test_a_result_that_etcd_does_not_take_fails_the_operation(etcd: Etcd) -> None:
    store = await replica(etcd)

    async def work(job: Job[Request]) -> Result:
        return Result(session="s" * (2 << 20))

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    error = operation_error(await store.wait(operation.name, 120))
    assert error is not None
    assert error.reason == "ETCD_REQUEST"
    running.cancel()


async def test_work_on_the_largest_request_that_etcd_takes_ends_once_with_what_is_most_important_of_its_error(
    etcd: Etcd,
) -> None:
    store = await replica(etcd)
    worked = 0

    async def work(job: Job[Request]) -> Result:
        nonlocal worked
        worked += 1
        raise NotFound("gone " * 1000, reason="GONE", help="h" * 1000, metadata={"m": "m" * 1000})

    runner = OperationRunner(store, Request, work)
    # Just under what is too large: times and revisions are now and then a few bytes longer.
    takes, refuses = 1 << 20, 2 << 20
    while refuses - takes > 16:
        size = (takes + refuses) // 2
        try:
            operation, _ = await store.create(Request(session="s" * size), f"size-{size}")
            await store.fail(operation.name, NotFound("gone", reason="GONE"), keep_request=False)
            takes = size
        except Internal:
            refuses = size
    request = Request(session="s" * (takes - 32))
    running = asyncio.create_task(runner.run())
    operation = await runner.start(request, f"last-{takes}")
    ended = await store.wait(operation.name, 120)
    error = operation_error(ended)
    assert isinstance(error, NotFound)
    assert error.reason == "GONE"
    assert error.message.startswith("gone gone ")
    assert "no room in etcd" in error.message
    assert worked == 1
    # Who asks again finds it.
    assert await store.find(request, ended.request_id) == ended
    running.cancel()


async def test_work_whose_end_cannot_be_written_rests_before_it_is_done_again(etcd: Etcd) -> None:
    class Broken(OperationStore):
        async def fail(
            self, name: str, error: PermilleError, *, since: int = 0, keep_request: bool = True
        ) -> Operation:
            if len(began) < 3:
                raise Internal("etcd did not accept a request", reason="ETCD_REQUEST")
            return await super().fail(name, error, since=since, keep_request=keep_request)

    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    store = Broken(etcd, "decoder", lease=lease)
    began: list[float] = []

    async def work(job: Job[Request]) -> Result:
        began.append(asyncio.get_running_loop().time())
        raise NotFound("gone", reason="GONE")

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    assert operation_error(await store.wait(operation.name, 120)) is not None
    first, second, third = began
    # However fast the machine: half a second at least, then a second.
    assert second - first > 0.4
    assert third - second > 0.9
    running.cancel()


async def test_a_replica_begins_however_much_is_unfinished(etcd: Etcd) -> None:
    dying, heir = await replica(etcd), await replica(etcd)
    for _ in range(6):
        await dying.create(Request(), "", checkpoint=b"c" * 1_000_000)
    die(dying)

    async def work(job: Job[Request]) -> Result:
        assert len(await job.saved()) == 1_000_000
        return Result()

    running = asyncio.create_task(OperationRunner(heir, Request, work).run())
    for operation in (await heir.list(10))[0]:
        assert not operation_error(await heir.wait(operation.name, 120))
    running.cancel()


async def test_another_replica_goes_on_where_a_killed_one_was(etcd: Etcd) -> None:
    dying, heir = await replica(etcd), await replica(etcd)
    stuck = asyncio.Event()

    async def begin(job: Job[Request]) -> Result:
        await job.save(b"half way")
        stuck.set()
        await asyncio.Event().wait()
        return Result()

    async def go_on(job: Job[Request]) -> Result:
        assert await job.saved() == b"half way"
        return Result(session="by the heir")

    operation = await OperationRunner(dying, Request, begin).start(Request(), "r")
    await stuck.wait()
    runner = asyncio.create_task(OperationRunner(heir, Request, go_on).run())
    die(dying)
    result = Result()
    assert (await heir.wait(operation.name, 120)).response.Unpack(result)
    assert result.session == "by the heir"
    with pytest.raises(Aborted):
        await dying.finish(operation.name, Result(session="by the dead"))
    runner.cancel()


@pytest.mark.parametrize("late", ["save", "finish", "fail"])
async def test_a_replica_that_stood_still_begins_again_with_what_another_has_saved_meanwhile(
    etcd: Etcd, late: str
) -> None:
    stalled, another = await replica(etcd), await replica(etcd)
    begun, goes_on = asyncio.Event(), asyncio.Event()
    found: list[bytes] = []

    async def work(job: Job[Request]) -> Result:
        found.append(await job.saved())
        if len(found) == 1:
            begun.set()
            await goes_on.wait()
            if late == "save":
                await job.save(b"older")
            if late == "fail":
                raise NotFound("gone meanwhile", reason="GONE")
        return Result(session="second" if len(found) > 1 else "first")

    runner = OperationRunner(stalled, Request, work)
    operation = await runner.start(Request(), "r", checkpoint=b"start")
    await begun.wait()
    await etcd.revoke(stalled.lease.id)
    assert await another.claim(operation.name)
    await another.save(operation.name, b"newer")
    await etcd.revoke(another.lease.id)
    assert await stalled.claim(operation.name)
    running = asyncio.create_task(runner.run())
    goes_on.set()
    result = Result()
    assert (await stalled.wait(operation.name, 120)).response.Unpack(result)
    assert (found, result.session) == ([b"start", b"newer"], "second")
    running.cancel()


async def test_a_draining_replica_gives_its_operations_away_at_once(etcd: Etcd) -> None:
    leaving, heir = await replica(etcd), await replica(etcd)
    started = asyncio.Event()

    async def forever(_: Job[Request]) -> Result:
        started.set()
        await asyncio.Event().wait()
        return Result()

    async def quick(_: Job[Request]) -> Result:
        return Result()

    runner = OperationRunner(leaving, Request, forever)
    task = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    heirs = asyncio.create_task(OperationRunner(heir, Request, quick).run())
    assert (await heir.wait(operation.name, 120)).done
    heirs.cancel()


async def test_a_cancel_reaches_the_work_whichever_replica_got_it(etcd: Etcd) -> None:
    store, other = await replica(etcd), await replica(etcd)

    async def until_cancelled(job: Job[Request]) -> Result:
        await job.cancel_requested.wait()
        return Result(session="stopped")

    runner = OperationRunner(store, Request, until_cancelled)
    operation = await runner.start(Request(), "r")
    assert not (await other.cancel(operation.name)).done
    assert (await store.wait(operation.name, 120)).done
    assert (await other.cancel(operation.name)).done
    assert await etcd.prefix("/permille/v1/cancels/") == []


async def test_what_waits_for_its_turn_can_be_cancelled_and_the_most_urgent_comes_first(etcd: Etcd) -> None:
    store = await replica(etcd)
    begun: list[str] = []
    go_on = asyncio.Event()

    async def work(job: Job[Request]) -> Result:
        if job.cancel_requested.is_set():
            raise Cancelled("cancelled", reason="CANCELLED", help="begin again")
        begun.append(job.request.session)
        await go_on.wait()
        return Result()

    runner = OperationRunner(store, Request, work, most_at_once=1, priority=lambda request: request.priority)
    operations = {
        session: await runner.start(Request(session=session, priority=priority), session)
        for session, priority in (("first", 0), ("cancelled", 0), ("later", 0), ("urgent", 1))
    }
    await store.cancel(operations["cancelled"].name)
    assert isinstance(operation_error(await store.wait(operations["cancelled"].name, 120)), Cancelled)
    assert begun == ["first"]
    go_on.set()
    for session in ("first", "later", "urgent"):
        assert operation_error(await store.wait(operations[session].name, 120)) is None
    assert begun == ["first", "urgent", "later"]


async def test_work_survives_the_death_of_etcd(etcd: Etcd, etcd_server: EmbeddedEtcd) -> None:
    store = await replica(etcd)
    runs: list[str] = []
    down = asyncio.Event()

    async def work(job: Job[Request]) -> Result:
        runs.append(job.name)
        await down.wait()
        await job.progress("STORING")
        return Result(session="kept")

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    operation = await runner.start(Request(), "r")
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    down.set()
    with pytest.raises(Unavailable):
        await store.create(Request(), "new")
    await asyncio.sleep(3)
    await etcd_server.start()
    result = Result()
    assert (await store.wait(operation.name, 120)).response.Unpack(result)
    assert result.session == "kept"
    assert runs == [operation.name]
    running.cancel()
