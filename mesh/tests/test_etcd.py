"""The etcd client against a real etcd."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from permille.mesh import certs
from permille.mesh.auth import Role
from permille.mesh.backoff import until_available
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd, etcd_binary
from permille.mesh.errors import FailedPrecondition, Unavailable
from permille.mesh.etcd import Delete, Etcd, Get, Put, connect, exists, missing, rpc, unchanged, value_is


async def test_what_is_put_can_be_read_and_deleted(etcd: Etcd) -> None:
    await etcd.put("/a", b"1")
    found = await etcd.get("/a")
    assert found is not None
    assert (found.key, found.value, found.lease) == ("/a", b"1", 0)
    assert await etcd.delete("/a") is True
    assert await etcd.delete("/a") is False
    assert await etcd.get("/a") is None


async def test_prefix_pages_from_the_newest_back(etcd: Etcd) -> None:
    for number in range(5):
        await etcd.put(f"/list/{number}", b"")
    await etcd.put("/lisu", b"another")
    assert [kv.key for kv in await etcd.prefix("/list/")] == [f"/list/{n}" for n in range(5)]
    first = await etcd.prefix("/list/", limit=2, newest_first=True)
    assert [kv.key for kv in first] == ["/list/4", "/list/3"]
    second = await etcd.prefix("/list/", limit=2, newest_first=True, before=first[-1].key)
    assert [kv.key for kv in second] == ["/list/2", "/list/1"]


async def test_of_many_keys_those_that_are_there_are_read(etcd: Etcd) -> None:
    for number in (1, 99, 100, 249):
        await etcd.put(f"/some/{number}", str(number).encode())
    found = await etcd.values(f"/some/{number}" for number in range(250))
    assert found == {f"/some/{number}": str(number).encode() for number in (1, 99, 100, 249)}
    assert await etcd.values([]) == {}


class Asked(Etcd):
    """Knows how large the answers were; `between`: done once, after the first page."""

    def __init__(self, endpoint: str, between: Callable[[], Awaitable[object]] | None = None) -> None:
        super().__init__([endpoint])
        self.sizes: list[int] = []
        self._between = between

    async def _call(self, method: Callable[..., Any], request: Any) -> Any:
        reply = await super()._call(method, request)
        self.sizes.append(reply.ByteSize())
        between, self._between = self._between, None
        if between:
            await between()
        return reply


async def test_what_is_large_is_read_in_pages_as_it_was_at_one_moment(etcd: Etcd, etcd_server: EmbeddedEtcd) -> None:
    for number in range(50):
        await etcd.put(f"/large/{number:02}", b"v" * 1_000_000)
    keys = [f"/large/{number:02}" for number in range(50)]
    reader = Asked(etcd_server.endpoint, lambda: asyncio.gather(etcd.delete("/large/49"), etcd.put("/large/48a", b"")))
    assert [kv.key for kv in await reader.prefix("/large/")] == keys
    # Of an unknown size is the first page alone.
    assert len(reader.sizes) > 2
    assert max(reader.sizes[1:]) < 4 << 20
    now = [*keys[:49], "/large/48a"]
    assert [kv.key for kv in await reader.prefix("/large/")] == now
    assert [kv.key for kv in await reader.prefix("/large/", newest_first=True)] == now[::-1]
    assert [kv.key for kv in await reader.prefix("/large/", before="/large/40")] == keys[:40]
    await reader.close()


async def test_an_observer_of_several_pages_misses_nothing_that_changes_between_them(
    etcd: Etcd, etcd_server: EmbeddedEtcd
) -> None:
    keys = {f"/many/{number:04}" for number in range(1500)}
    await asyncio.gather(*(etcd.put(key, b"") for key in keys))
    reader = Asked(
        etcd_server.endpoint, lambda: asyncio.gather(etcd.delete("/many/1499"), etcd.put("/many/0000a", b""))
    )
    async with aclosing(reader.observe_prefix("/many/")) as states:
        assert set(await anext(states)) == keys
        assert len(reader.sizes) > 2
        changed = keys - {"/many/1499"} | {"/many/0000a"}
        async for state in states:
            if set(state) == changed:
                break
    await reader.close()


async def test_who_reads_while_etcd_is_compacted_reads_again(etcd: Etcd, etcd_server: EmbeddedEtcd) -> None:
    keys = {f"/compact/{number:03}" for number in range(100)}
    for key in keys:
        await etcd.put(key, b"")

    async def compact() -> None:
        newest = await etcd.put("/compact/new", b"")
        await etcd._call(lambda c: rpc.KVStub(c).Compact, rpc.CompactionRequest(revision=newest))

    reader = Asked(etcd_server.endpoint, compact)
    with pytest.raises(Unavailable) as caught:
        await reader.prefix("/compact/")
    assert caught.value.reason == "ETCD_COMPACTED"
    observer = Asked(etcd_server.endpoint, compact)
    async with aclosing(observer.observe_prefix("/compact/")) as states:
        assert set(await anext(states)) == keys | {"/compact/new"}
    await reader.close()
    await observer.close()


async def test_a_transaction_is_all_or_nothing(etcd: Etcd) -> None:
    both = [Put("/x", b"1"), Put("/y", b"1")]
    assert (await etcd.txn([missing("/x")], both)).succeeded
    again = await etcd.txn([missing("/x")], both, [Get("/x"), Get("/none")])
    assert not again.succeeded
    assert again.reads[0] is not None
    assert again.reads[0].value == b"1"
    assert again.reads[1] is None
    kept = again.reads[0].mod_revision
    assert (await etcd.txn([unchanged("/x", kept), value_is("/y", b"1"), exists("/y")], [Delete("/y")])).succeeded
    assert not (await etcd.txn([unchanged("/x", kept - 1)], [Delete("/x")])).succeeded


async def test_of_many_concurrent_creations_one_wins(etcd: Etcd) -> None:
    results = await asyncio.gather(*(etcd.txn([missing("/one")], [Put("/one", b"%d" % n)]) for n in range(20)))
    assert sum(result.succeeded for result in results) == 1


async def test_an_observer_sees_now_and_later_and_goes_on_after_etcd_was_killed(
    etcd: Etcd, etcd_server: EmbeddedEtcd
) -> None:
    await etcd.put("/watched", b"before")
    seen: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def watch() -> None:
        async for kv in etcd.observe("/watched"):
            seen.put_nowait(kv.value if kv else None)

    task = asyncio.create_task(watch())
    assert await seen.get() == b"before"
    await etcd.put("/watched", b"after")
    assert await seen.get() == b"after"
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    with pytest.raises(Unavailable) as caught:
        await etcd.put("/watched", b"lost")
    assert caught.value.reason == "ETCD_UNAVAILABLE"
    assert "permille up" in caught.value.help
    before = etcd_server.endpoint
    assert await etcd_server.start() == before
    await etcd.put("/watched", b"back")
    while (value := await seen.get()) != b"back":
        assert value == b"after"
    await etcd.delete("/watched")
    assert await seen.get() is None
    task.cancel()


async def test_a_prefix_observer_holds_the_whole_state(etcd: Etcd) -> None:
    states = etcd.observe_prefix("/p/")
    assert await anext(states) == {}
    await etcd.put("/p/a", b"1")
    assert set(await anext(states)) == {"/p/a"}
    await etcd.put("/p/b", b"1")
    assert set(await anext(states)) == {"/p/a", "/p/b"}
    await etcd.delete("/p/a")
    assert set(await anext(states)) == {"/p/b"}


async def test_a_second_endpoint_is_tried_when_the_first_is_dead(etcd_server: EmbeddedEtcd) -> None:
    client = Etcd(["127.0.0.1:1", etcd_server.endpoint])
    with pytest.raises(Unavailable):
        await client.get("/a")
    assert await client.get("/a") is None
    await client.close()


async def test_a_sign_of_life_is_given_up_before_the_lease_is_over(etcd_server: EmbeddedEtcd) -> None:
    silent = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    client = Etcd([etcd_server.endpoint, f"{host}:{port}"], timeout_s=600)
    lease = await client.grant(60)
    client.endpoints = client.endpoints[::-1]
    with pytest.raises(Unavailable):
        await client.keep_alive(lease, within_s=0.2)
    # Another member is asked next.
    assert await client.keep_alive(lease, within_s=60)
    await client.close()
    silent.close()


async def test_an_etcd_with_mutual_tls_is_used_with_a_certificate_alone(tmp_path: Path) -> None:
    certs.create_authority(tmp_path)
    server = certs.issue_service(tmp_path, ["etcd"], node="etcd")
    user = certs.issue_user(tmp_path, "coverage", roles=[Role.AGENT])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        str(etcd_binary()),
        *("--data-dir", str(tmp_path / "data"), "--log-level=error", "--unsafe-no-fsync"),
        *("--listen-client-urls", f"https://{endpoint}", "--advertise-client-urls", f"https://{endpoint}"),
        *("--listen-peer-urls", "http://127.0.0.1:0", "--client-cert-auth"),
        *("--cert-file", str(server.certificate), "--key-file", str(server.key)),
        *("--trusted-ca-file", str(tmp_path / "ca.crt")),
    )
    authority = tmp_path / "ca.crt"
    known = connect(MeshConfig(etcd=(endpoint,), etcd_ca=authority, etcd_cert=user.certificate, etcd_key=user.key))
    stranger = connect(MeshConfig(etcd=(endpoint,), etcd_ca=authority))
    assert await until_available(lambda: known.put("/a", b"1")) > 0
    with pytest.raises(Unavailable):
        await stranger.get("/a")
    await known.close()
    await stranger.close()
    process.terminate()
    await process.wait()


def test_plain_text_to_another_machine_is_refused() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        Etcd(["10.1.2.3:2379"])
    assert caught.value.reason == "TLS_REQUIRED"


async def test_changes_of_one_key_at_once_are_all_kept(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    leases: list[int] = []
    grant = etcd.grant

    async def noted(ttl_s: int) -> int:
        leases.append(await grant(ttl_s))
        return leases[-1]

    async def one_more(before: bytes | None) -> bytes:
        return str(int(before or b"0") + 1).encode()

    monkeypatch.setattr(etcd, "grant", noted)
    await asyncio.gather(*(etcd.replace("/count", one_more) for _ in range(3)))
    kept = await etcd.get("/count")
    assert kept is not None and kept.value == b"3"
    # Whoever was too late with the first value leaves no lease behind.
    assert len(leases) > 1 and [lease for lease in leases if await etcd.keep_alive(lease)] == [kept.lease]


async def test_a_change_to_nothing_writes_nothing(etcd: Etcd) -> None:
    async def nothing(before: bytes | None) -> None:
        assert before is None

    await etcd.replace("/nothing", nothing)
    assert await etcd.get("/nothing") is None


async def test_a_statistic_goes_when_nobody_adds_to_it_any_more(etcd: Etcd) -> None:
    async def one_more(before: bytes | None) -> bytes:
        return (before or b"") + b"1"

    # As an earlier release wrote it: for ever.
    await etcd.put("/learnt", b"1")
    lease, begun = 0, time.monotonic()
    last = begun
    # Longer than a lease lasts without a sign of life.
    while last < begun + 4:
        await etcd.replace("/learnt", one_more, kept_s=3)
        kept, now = await etcd.get("/learnt"), time.monotonic()
        assert kept is not None and kept.lease
        if now > last + 1:
            # On a busy machine it may have gone meanwhile.
            lease, begun = 0, now
        assert lease in {0, kept.lease}
        lease, last = kept.lease, now
        await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        async for left in etcd.observe("/learnt"):
            if left is None:
                break
