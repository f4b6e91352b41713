"""CoverageService as a process, with a controller and a decoder of the test behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd

from .coverage_process import Coverage
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, decoder_serving


@pytest.fixture
async def controller(mesh_config: MeshConfig) -> AsyncIterator[Controller]:
    node = Controller("n1")  # type: ignore[abstract]
    async with controller_serving(mesh_config, node):
        yield node


@pytest.fixture
async def decoder(mesh_config: MeshConfig) -> AsyncIterator[Decoder]:
    decoding = Decoder()
    async with decoder_serving(mesh_config, decoding):
        yield decoding


@pytest.fixture
async def coverage(mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path) -> AsyncIterator[Coverage]:
    service = Coverage(mesh_config, etcd, tmp_path / "coverage.log")
    await service.start()
    yield service
    await service.channels.close()
    await service.stop()


@pytest.fixture
async def another(mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path) -> AsyncIterator[Coverage]:
    """A second replica, not started yet."""
    service = Coverage(mesh_config, etcd, tmp_path / "another.log")
    yield service
    await service.channels.close()
    await service.stop()
