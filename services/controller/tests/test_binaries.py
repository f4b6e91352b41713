from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from permille.controller.domain import elf_notes
from permille.controller.domain.binaries import identify

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return built(tmp_path, "-Wl,--build-id=sha1")


def built(folder: Path, *options: str) -> Path:
    source, program = folder / "program.c", folder / "program"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-g", *options, "-o", program, source], check=True)
    return program


def readelf_build_id(path: Path) -> str:
    notes = subprocess.run(["readelf", "-n", path], check=True, capture_output=True, text=True).stdout
    return notes.split("Build ID: ")[1].split()[0]


def test_a_binary_is_named_by_its_build_id(program: Path) -> None:
    identity = identify(program)
    assert identity.build_id == readelf_build_id(program)
    assert identity.key == f"binaries/{identity.build_id}"
    assert identity.debug is None


@pytest.mark.parametrize("content", ["elf", "text", "torn"])
def test_without_a_build_id_it_is_named_by_its_content(tmp_path: Path, content: str) -> None:
    program = built(tmp_path, "-Wl,--build-id=none")
    if content == "text":
        program.write_text("#!/bin/sh\n")
    if content == "torn":
        program.write_bytes(program.read_bytes()[:100])
    assert identify(program).key == f"binaries/sha256-{hashlib.sha256(program.read_bytes()).hexdigest()}"
    assert identify(program).build_id == ""


@pytest.mark.parametrize("damage", ["cut off", "nowhere", "beyond any file", "no names"])
def test_a_binary_with_damaged_section_headers_is_named_by_its_build_id(program: Path, damage: str) -> None:
    build_id, data = readelf_build_id(program), bytearray(program.read_bytes())
    if damage == "cut off":
        del data[-100:]
    elif damage == "no names":
        data[0x3E:0x40] = b"\xfe\xfe"
    else:
        data[0x28:0x30] = b"\xff" * 7 + (b"\x7f" if damage == "beyond any file" else b"\xff")
    program.write_bytes(data)
    assert identify(program).build_id == build_id


def test_the_debug_file_is_found_by_build_id(program: Path, tmp_path: Path) -> None:
    build_id = readelf_build_id(program)
    debug = tmp_path / "debug" / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", program], check=True)
    identity = identify(program, (tmp_path / "debug",))
    assert identity.debug == debug
    assert identity.debug_key == f"binaries/{build_id}.debug"


def test_the_debug_file_is_found_by_its_link_beside_the_program(program: Path, tmp_path: Path) -> None:
    (tmp_path / ".debug").mkdir()
    debug = tmp_path / ".debug" / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", program], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
    assert identify(program, (tmp_path / "none",)).debug == debug


def test_a_debug_file_of_another_build_is_not_taken(program: Path, tmp_path: Path) -> None:
    (tmp_path / ".debug").mkdir()
    debug = tmp_path / ".debug" / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(built(other, "-DX", "-O2", "-Wl,--build-id=0x1234"), debug)
    assert identify(program, (tmp_path / "none",)).debug is None


def test_of_a_program_without_build_id_only_the_global_folders_have_the_debug_file(tmp_path: Path) -> None:
    """Its link may name anything, and what stands beside it is its own."""
    program = built(tmp_path, "-Wl,--build-id=none")
    (tmp_path / "secret").write_text("what the program itself may not read")
    subprocess.run(["objcopy", f"--add-gnu-debuglink={tmp_path / 'secret'}", program], check=True)
    globally = tmp_path / "debug" / tmp_path.relative_to("/") / "secret"
    globally.parent.mkdir(parents=True)
    assert identify(program, (tmp_path / "debug",)).debug is None
    shutil.copy(tmp_path / "secret", globally)
    assert identify(program, (tmp_path / "debug",)).debug == globally


def test_of_a_program_without_build_id_the_debug_file_is_the_one_of_the_checksum(tmp_path: Path) -> None:
    program, debug = built(tmp_path, "-Wl,--build-id=none"), tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
    globally = tmp_path / "debug" / tmp_path.relative_to("/") / debug.name
    globally.parent.mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(built(other, "-O2", "-DX", "-Wl,--build-id=none"), globally)
    assert identify(program, (tmp_path / "debug",)).debug is None
    shutil.copy(debug, globally)
    assert identify(program, (tmp_path / "debug",)).debug == globally


def test_a_debug_link_is_the_name_of_a_file_and_no_way_to_one(program: Path, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    debug, lying = tmp_path / "xx-debug", tmp_path / "below" / "program"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
    lying.write_bytes(program.read_bytes().replace(b"xx-debug", b"../debug"))
    assert elf_notes.names(lying)[1] == "../debug"
    assert identify(program, (tmp_path / "none",)).debug == debug
    debug.rename(tmp_path / "debug")
    assert identify(lying, (tmp_path / "none",)).debug is None
