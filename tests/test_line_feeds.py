"""A program in a path with line feeds, as a file system may have it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh


@pytest.mark.parametrize("name", ["a\nb\n", r"a\012b"])
def test_a_program_is_found_by_its_name(mesh: WholeMesh, tmp_path: Path, busy: Path, name: str) -> None:
    """The kernel shows both names alike (proc_pid_maps(5))."""
    folder = tmp_path / name
    folder.mkdir()
    program = folder / "program"
    shutil.copy(busy, program)
    with mesh.running(str(program), "paced") as process:
        session = mesh.trace(process.pid, "300ms")
    rows = mesh.report(session)["functions"]
    assert str(program) in {row["module"] for row in rows}
    assert not [row["name"] for row in rows if row["name"].startswith("[generated]")]
