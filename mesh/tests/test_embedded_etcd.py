"""A private etcd finds its ports itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from permille.mesh import embedded_etcd
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import Unavailable


async def test_a_port_that_somebody_takes_before_etcd_does_is_given_up_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = embedded_etcd._free_port
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        taken = int(somebody.getsockname()[1])
        first = iter([taken])
        monkeypatch.setattr(embedded_etcd, "_free_port", lambda apart_from=0: next(first, None) or found(apart_from))
        server = EmbeddedEtcd(tmp_path, durable=False)
        try:
            assert await server.start() != f"127.0.0.1:{taken}"
        finally:
            await server.stop()


async def test_a_port_that_stays_taken_is_told_with_the_log(tmp_path: Path) -> None:
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        server = EmbeddedEtcd(tmp_path, port=int(somebody.getsockname()[1]), durable=False)
        with pytest.raises(Unavailable, match="did not start") as refused:
            await server.start()
    assert str(tmp_path / "etcd.log") in refused.value.help
