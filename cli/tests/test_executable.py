"""What `permille run` starts in the end, and why it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from permille.cli.launching.executable import launch
from permille.cli.launching.named_emulator import named_emulator
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, PermilleError, PermissionDenied

SH = Path("/bin/sh")
ENV = shutil.which("env") or "/usr/bin/env"


def script(folder: Path, first_line: str, name: str = "script") -> Path:
    file = folder / name
    file.write_text(f"{first_line}\n")
    file.chmod(0o755)
    return file


def started(*command: str | Path) -> tuple[str, ...]:
    return launch([str(word) for word in command], os.environ["PATH"], os.geteuid()).arguments


def refused(kind: type[PermilleError], *command: str | Path, user: int | None = None) -> PermilleError:
    with pytest.raises(kind) as raised:
        launch([str(word) for word in command], os.environ["PATH"], os.geteuid() if user is None else user)
    assert raised.value.help
    return raised.value


def test_a_name_is_looked_up_and_keeps_its_link(tmp_path: Path) -> None:
    link = tmp_path / "my-shell"
    link.symlink_to(SH)
    assert launch(["my-shell", "-c", "true"], str(tmp_path), 0).arguments == (str(link), "-c", "true")


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(SH, tmp_path / "prog")
    monkeypatch.chdir(tmp_path)
    assert started("./prog") == (str(tmp_path / "prog"),)


def test_a_script_becomes_its_interpreter_with_one_option(tmp_path: Path) -> None:
    file = script(tmp_path, "#!/bin/sh -e -u")
    assert started(file, "a") == ("/bin/sh", "-e -u", str(file), "a")


@pytest.mark.parametrize("first_line", [f"#!{ENV} sh", f"#!{ENV} -S sh", f"#! {ENV} -S  sh "])
def test_env_is_resolved_because_what_it_starts_would_not_be_traced(tmp_path: Path, first_line: str) -> None:
    file = script(tmp_path, first_line)
    assert started(file, "a") == (shutil.which("sh"), str(file), "a")


def test_env_with_options_for_the_interpreter(tmp_path: Path) -> None:
    file = script(tmp_path, f"#!{ENV} -S sh -e -u")
    assert started(file) == (shutil.which("sh"), "-e", "-u", str(file))


def test_env_that_sets_variables_is_refused(tmp_path: Path) -> None:
    assert refused(InvalidArgument, script(tmp_path, f"#!{ENV} -S A=1 sh")).reason == "ENV_INTERPRETER"


def test_a_script_may_be_the_interpreter_of_a_script(tmp_path: Path) -> None:
    inner = script(tmp_path, "#!/bin/sh", "inner")
    outer = script(tmp_path, f"#!{inner}", "outer")
    assert started(outer, "x") == ("/bin/sh", str(inner), str(outer), "x")


def test_interpreters_without_end_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "loop"
    script(tmp_path, f"#!{file}", "loop")
    assert refused(InvalidArgument, file).reason == "INTERPRETERS"


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    error = refused(NotFound, script(tmp_path, "#!/nonexistent/python9"))
    assert "/nonexistent/python9" in error.message


def test_programs_that_are_not_there() -> None:
    assert refused(NotFound, "no-such-program-here").reason == "PROGRAM_NOT_FOUND"
    assert refused(NotFound, "/no/such/file").reason == "PROGRAM_NOT_FOUND"
    assert refused(NotFound, "cd").help.count("shell")


def test_a_file_without_the_right_to_run_it(tmp_path: Path) -> None:
    file = script(tmp_path, "#!/bin/sh")
    file.chmod(0o644)
    error = refused(PermissionDenied, file)
    assert f"chmod +x {file}" in error.help


def test_folders_and_texts_and_empty_names_are_no_programs(tmp_path: Path) -> None:
    assert refused(InvalidArgument, f"{tmp_path}/").reason == "NOT_A_PROGRAM"
    assert refused(InvalidArgument, script(tmp_path, "echo hello")).reason == "NOT_A_PROGRAM"
    assert refused(InvalidArgument, "").reason == "COMMAND_EMPTY"


@pytest.mark.parametrize(
    ("offset", "value", "named"), [(18, b"\xb7\x00", "AArch64"), (18, b"\x03\x00", "i386"), (18, b"\xf3\x00", "RISC-V")]
)
def test_programs_of_other_processors_are_refused_by_name(
    tmp_path: Path, offset: int, value: bytes, named: str
) -> None:
    file = tmp_path / "foreign"
    content = bytearray(SH.read_bytes()[:64])
    content[offset : offset + len(value)] = value
    file.write_bytes(content)
    file.chmod(0o755)
    error = refused(InvalidArgument, file)
    assert (error.reason, named in error.message) == ("NOT_X86_64", True)


def test_an_object_file_is_no_program(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int a;")
    subprocess.run(["cc", "-c", "-o", tmp_path / "a.o", source], check=True)
    (tmp_path / "a.o").chmod(0o755)
    assert refused(InvalidArgument, tmp_path / "a.o").reason == "NOT_A_PROGRAM"


def test_set_user_id_is_refused_unless_it_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gains"
    shutil.copy(SH, file)
    file.chmod(0o4755)
    owner = file.stat().st_uid
    assert launch([str(file)], "", owner).program == file
    error = refused(FailedPrecondition, file, user=owner + 1)
    assert (error.reason, str(owner) in error.help) == ("SETUID", True)


def test_the_emulator_gets_the_name_of_the_program(tmp_path: Path) -> None:
    link = named_emulator(Path(sys.executable), Path("/usr/bin/redis-server"), tmp_path / "names")
    again = named_emulator(Path(sys.executable), Path("/usr/sbin/redis-server"), tmp_path / "names")
    assert (link.name, link.readlink(), again) == ("redis-server", Path(sys.executable), link)
    assert named_emulator(SH, Path("/usr/bin/redis-server"), tmp_path / "names").readlink() == SH


def test_without_a_place_for_the_name_the_emulator_itself_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert named_emulator(SH, Path("/bin/x"), tmp_path / "file" / "names") == SH
