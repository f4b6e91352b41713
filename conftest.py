"""Fixtures for the tests of every package: a real etcd, private to the test session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.etcd import Etcd


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A temporary folder whose name is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="permille-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def etcd_server(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    """A real etcd with an empty folder; a test may stop, kill and start it."""
    server = EmbeddedEtcd(tmp_path / "etcd", durable=False)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def etcd(etcd_server: EmbeddedEtcd) -> AsyncIterator[Etcd]:
    """A client of `etcd_server`."""
    client = Etcd([etcd_server.endpoint])
    yield client
    await client.close()


@pytest.fixture
def mesh_config(etcd_server: EmbeddedEtcd, tmp_path: Path) -> MeshConfig:
    """The configuration of a mesh on `etcd_server`, with short leases, so that a death is noticed soon."""
    return MeshConfig(
        state_dir=tmp_path / "state", node="n1", etcd=(etcd_server.endpoint,), lease_ttl_s=2, drain_s=2, metrics="off"
    )
