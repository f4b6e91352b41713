"""Files and folders that options name: wrong ones are refused as recordings are, with what the option wants."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from permille.cli.option_files import check_image
from permille.mesh.errors import NotFound

from .conftest import permille_alone
from .test_pt import ROUND

FILES = ["--sideband", "--vmlinux", "--kallsyms", "--kcore", "--image"]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    file = tmp_path / "trace.pt"
    file.write_bytes(ROUND)
    return file


def refused(raw: Path, option: str, value: str | Path, *command: str) -> tuple[int, str, str, str]:
    """Exit code, reason, message, way out."""
    value = f"{value}:0x1000" if option == "--image" else value
    done = permille_alone("pt", *(command or ("stat",)), raw, option, value, "--json")
    error = json.loads(done.stderr)["error"]
    return done.returncode, error["reason"], error["message"], error["help"]


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_is_not_there_is_named_once(raw: Path, option: str) -> None:
    none = raw.parent / "none"
    assert refused(raw, option, none) == (3, "NO_SUCH_FILE", f"there is no file {none}", "check the path")


@pytest.mark.parametrize("option", [*FILES, "--symbols", "--categories"])
def test_nothing_is_behind_a_file(raw: Path, option: str) -> None:
    command = ["calls", "--table"] if option == "--categories" else ["stat"]
    code, reason, message, way_out = refused(raw, option, raw / "x", *command)
    what = "folder" if option == "--symbols" else "file"
    assert (code, reason, way_out) == (3, f"NO_SUCH_{what.upper()}", "check the path")
    assert message == f"there is no {what} {raw / 'x'}: Not a directory"


@pytest.mark.parametrize("option", [*FILES, "--categories"])
def test_a_folder_in_place_of_a_file_is_not_taken_for_the_recording(raw: Path, option: str) -> None:
    command = ["calls", "--table"] if option == "--categories" else ["stat"]
    code, reason, message, way_out = refused(raw, option, raw.parent, *command)
    assert (code, reason, message) == (2, "FOLDER", f"{option}: {raw.parent} is a folder")
    assert way_out.startswith("give a file: ")
    assert "perf.data" not in way_out


@pytest.mark.parametrize("option", FILES)
def test_a_pipe_or_a_device_in_place_of_a_file_is_not_taken_for_a_damaged_one(raw: Path, option: str) -> None:
    pipe = raw.parent / "pipe"
    os.mkfifo(pipe)
    for given in (pipe, Path("/dev/null")):
        code, reason, message, way_out = refused(raw, option, given)
        assert (code, reason, message) == (2, "NO_FILE", f"{option}: {given} is a pipe or a device")
        assert way_out.startswith("give a regular file: ")


def test_a_folder_of_binaries_that_is_none_is_refused(raw: Path) -> None:
    none = raw.parent / "none"
    assert refused(raw, "--symbols", none)[:3] == (3, "NO_SUCH_FOLDER", f"there is no folder {none}")
    assert refused(raw, "--symbols", raw)[:3] == (2, "NO_FOLDER", f"--symbols: {raw} is no folder")
    assert permille_alone("pt", "stat", raw, "--symbols", raw.parent).returncode == 0


def test_an_image_whose_name_is_no_utf_8_is_told_what_helps(raw: Path) -> None:
    code, reason, _, way_out = refused(raw, "--image", "\udcff")
    assert (code, reason) == (2, "NOT_UTF8")
    assert "ln -s" in way_out and "--pid" not in way_out


@pytest.mark.parametrize("image", ["none:1", "none:0x10:1", "none:1:2:0X3", "none:1:1:2:3", "none:x:1"])
def test_the_file_of_an_image_stands_before_up_to_three_numbers(image: str) -> None:
    file = {"none:1:1:2:3": "none:1", "none:x:1": "none:x"}.get(image, "none")
    with pytest.raises(NotFound, match=f"^there is no file {file}$"):
        check_image(image)


@pytest.mark.parametrize("text", ["a.out", ":0x10", "a.out:x"])
def test_what_is_no_image_is_left_to_the_decoder(text: str) -> None:
    check_image(text)
