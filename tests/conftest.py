"""Fixtures of the tests that speak to a whole mesh: meshes, a small file system, a program to be recorded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh, new_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeMesh]:
    """One mesh that the tests of a module share."""
    started = new_mesh(tmp_path_factory.mktemp("mesh"))
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture
def own_mesh(tmp_path: Path) -> Iterator[WholeMesh]:
    """A mesh of one test, which may break it and has to start it."""
    mesh = new_mesh(tmp_path)
    try:
        yield mesh
    finally:
        mesh.close()


@pytest.fixture
def small_store(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own without room; remount it to make room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "store"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two threads: `busy paced` executes little, `busy spinning` much; `busy PACE SECONDS` ends."""
    program = tmp_path_factory.mktemp("busy") / "busy"
    source = Path(__file__).with_name("busy.c")
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", program, source], check=True)
    return program
