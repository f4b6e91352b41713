"""Files that a command writes: what is told where one finds no room."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest
from permille.cli.output_file import write_file
from permille.mesh.errors import InvalidArgument, NotFound, PermissionDenied, ResourceExhausted


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


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert write_file(pipe, [b"all ", b"of it"]) == 9
        assert os.read(reader, 100) == b"all of it"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Root might otherwise have a file in the place of /dev/null."""
    device = tmp_path / "device"
    device.symlink_to("/dev/full")
    with pytest.raises(ResourceExhausted):
        write_file(device, [b"more"])
    assert device.readlink() == Path("/dev/full")


def test_where_a_folder_is_a_file_in_it_is_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as error:
        write_file(tmp_path, [b"page"])
    assert "mkdir" not in error.value.help and str(tmp_path / "NAME") in error.value.help


def test_a_folder_is_to_be_made_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as error:
        write_file(tmp_path / "none" / "out", [b"page"])
    assert f"mkdir -p {tmp_path / 'none'}" in error.value.help
    with pytest.raises(PermissionDenied) as denied:
        write_file(Path("/proc/out"), [b"page"])
    assert "mkdir" not in denied.value.help


def test_the_way_out_of_a_full_disk_names_no_option(tmp_path: Path) -> None:
    """Commands call theirs differently."""
    with pytest.raises(ResourceExhausted) as error:
        write_file(Path("/dev/full"), [b"page"])
    assert " -o" not in error.value.help


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept" / "out")
    for text in (b"new", b"newer"):
        write_file(link, [text])
        assert link.is_symlink()
        assert (tmp_path / "kept" / "out").read_bytes() == text


def test_a_name_may_be_as_long_as_the_folder_takes_it(tmp_path: Path) -> None:
    write_file(tmp_path / ("x" * 255), [b"page"])
    with pytest.raises(InvalidArgument, match="too long") as error:
        write_file(tmp_path / ("x" * 256), [b"page"])
    assert "shorter" in error.value.help
