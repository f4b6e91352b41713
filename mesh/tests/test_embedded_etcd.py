"""A private etcd finds its ports itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.mesh import embedded_etcd
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import Unavailable
from permille.mesh.etcd import Etcd


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens at."""
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        yield int(somebody.getsockname()[1])


async def test_a_port_that_somebody_takes_before_etcd_does_is_given_up_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    _finds_first(monkeypatch, taken)
    server = EmbeddedEtcd(tmp_path, durable=False)
    try:
        assert await server.start() != f"127.0.0.1:{taken}"
    finally:
        await server.stop()


async def test_who_finds_taken_ports_alone_is_told_which_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(embedded_etcd, "_free_port", lambda apart_from=0: taken)
    server = EmbeddedEtcd(tmp_path, durable=False)
    with pytest.raises(Unavailable, match=f"did not start: 3 times a port was taken, 127.0.0.1:{taken}") as refused:
        await server.start()
    assert str(tmp_path / "etcd.log") in refused.value.help


async def test_another_etcd_at_its_port_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, server = EmbeddedEtcd(tmp_path / "other", durable=False), EmbeddedEtcd(tmp_path / "own", durable=False)
    try:
        _finds_first(monkeypatch, int((await other.start()).rpartition(":")[2]))
        assert await server.start() != other.endpoint
        assert server.process is not None and server.process.returncode is None
    finally:
        await server.stop()
        await other.stop()


async def test_started_again_it_has_what_it_had(tmp_path: Path) -> None:
    server = EmbeddedEtcd(tmp_path, durable=False)
    for found in (None, b"there"):
        client = Etcd([await server.start()])
        try:
            kept = await client.get("/permille/v1/kept")
            assert (kept.value if kept else None) == found
            await client.put("/permille/v1/kept", b"there")
        finally:
            await client.close()
            await server.stop()


def _finds_first(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    found, first = embedded_etcd._free_port, iter([port])
    monkeypatch.setattr(embedded_etcd, "_free_port", lambda apart_from=0: next(first, None) or found(apart_from))
