"""Files that a command writes: what is told where one finds no room."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from permille.cli.output_file import write_file
from permille.mesh.errors import ResourceExhausted


def test_a_file_that_ulimit_does_not_let_grow_has_no_room(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        with pytest.raises(ResourceExhausted) as error:
            write_file(tmp_path / "out", [bytes(1 << 12), b"more"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.reason == "DISK_FULL"
    assert list(tmp_path.iterdir()) == []
