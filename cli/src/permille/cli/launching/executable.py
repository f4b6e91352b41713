"""Whether a file is a program that QEMU's user emulator can run, and why not."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from permille.mesh.elf_magic import ELF_MAGIC
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, PermilleError, PermissionDenied

# Linux gives up after so many interpreters of interpreters (fs/exec.c).
_MOST_INTERPRETERS = 4
# The kernel reads so much of a first line (BINPRM_BUF_SIZE).
_FIRST_LINE_BYTES = 256
_ELF_CLASS_64, _ELF_LITTLE_ENDIAN = 2, 1
_EM_X86_64 = 62
_ET_EXEC, _ET_DYN = 2, 3
_MACHINES = {3: "i386", 40: "32-bit ARM", 183: "AArch64", 243: "RISC-V", 8: "MIPS", 21: "PowerPC64", 22: "s390x"}


@dataclass(frozen=True)
class Launch:
    """The program to start, and all of its arguments with argv[0]."""

    program: Path
    arguments: tuple[str, ...]


def launch(command: list[str], search_path: str, user: int) -> Launch:
    """What a command line starts in the end: a name is looked up, a script becomes its interpreter.

    `search_path`: as PATH. `user`: the effective user id, for which set-user-id programs change nothing.
    Raises `NotFound`, `PermissionDenied` for a file without the right to run it, `InvalidArgument` for what is no
    x86-64 program, `FailedPrecondition` for one that would need other rights.
    """
    program = find(command[0], search_path)
    arguments = (str(program), *command[1:])
    for _ in range(_MOST_INTERPRETERS):
        head = _head(program)
        if not head.startswith(b"#!"):
            _require_x86_64(program, head)
            _require_own_rights(program, user)
            return Launch(program, arguments)
        interpreter, options = _interpreter(program, head)
        arguments = (interpreter, *options, str(program), *arguments[1:])
        if Path(interpreter).name == "env":
            arguments = _without_env(program, arguments)
        program = find(arguments[0], search_path)
        arguments = (str(program), *arguments[1:])
    raise InvalidArgument(
        f"{command[0]} is a script of a script of a script",
        reason="INTERPRETERS",
        help="start the interpreter itself",
        metadata={"program": command[0]},
    )


def find(name: str, search_path: str) -> Path:
    """The absolute path of a program, symbolic links kept. Raises `NotFound` and `PermissionDenied`."""
    if not name:
        raise InvalidArgument("the command is empty", reason="COMMAND_EMPTY", help="permille run -- CMD ARGUMENTS")
    if "/" in name:
        path = Path(name).absolute()
        if path.is_file() and os.access(path, os.X_OK):
            return path
        raise _unusable(path)
    found = shutil.which(name, path=search_path)
    if found is None:
        raise NotFound(
            f"{name}: no such program in PATH",
            reason="PROGRAM_NOT_FOUND",
            help="check the spelling, or give its path; a shell's own words (cd, alias) are no programs",
            metadata={"program": name},
        )
    return Path(found).absolute()


def _unusable(path: Path) -> PermilleError:
    metadata = {"program": str(path)}
    if path.is_dir():
        return InvalidArgument(f"{path} is a folder", reason="NOT_A_PROGRAM", help="name a program", metadata=metadata)
    if path.exists():
        return PermissionDenied(
            f"{path} may not be run",
            reason="NOT_EXECUTABLE",
            help=f"allow it: chmod +x {path}",
            metadata=metadata,
        )
    return NotFound(f"there is no {path}", reason="PROGRAM_NOT_FOUND", help="check the path", metadata=metadata)


def _head(program: Path) -> bytes:
    try:
        with program.open("rb") as file:
            return file.read(_FIRST_LINE_BYTES)
    except OSError as error:
        kind = PermissionDenied if error.errno in (errno.EACCES, errno.EPERM) else NotFound
        raise kind(
            f"{program} cannot be read: {error.strerror}",
            reason="PROGRAM_UNREADABLE",
            help=f"QEMU has to read the program: chmod +r {program}, or run as its owner",
            metadata={"program": str(program)},
        ) from None


def _interpreter(script: Path, head: bytes) -> tuple[str, list[str]]:
    line = head[2:].partition(b"\n")[0].decode(errors="surrogateescape").strip()
    interpreter, _, option = line.partition(" ")
    if not interpreter:
        raise InvalidArgument(
            f"{script} names no interpreter in its first line",
            reason="NO_INTERPRETER",
            help="write one after #!, for example #!/bin/sh",
            metadata={"program": str(script)},
        )
    return interpreter, [option.strip()] if option.strip() else []


def _without_env(script: Path, arguments: tuple[str, ...]) -> tuple[str, ...]:
    # env would start the interpreter outside QEMU, so its work is done here: env(1), also with -S.
    words = list(arguments[1:])
    option = words[0]
    if option.startswith("-S"):
        words = [*option[2:].split(), *words[1:]] if option != "-S" else words[1:]
        option = words[0]
    elif option.startswith("-S ") or " " in option:
        words = [*option.removeprefix("-S ").split(), *words[1:]]
        option = words[0]
    if option.startswith("-") or "=" in option:
        raise InvalidArgument(
            f"{script} sets an environment in its first line ({' '.join(arguments[:2])})",
            reason="ENV_INTERPRETER",
            help="start its interpreter yourself: permille run -- INTERPRETER " + str(script),
            metadata={"program": str(script)},
        )
    return tuple(words)


def _require_x86_64(program: Path, head: bytes) -> None:
    metadata = {"program": str(program)}
    if not head.startswith(ELF_MAGIC) or len(head) < 20:
        raise InvalidArgument(
            f"{program} is no ELF program and no script with #! in its first line",
            reason="NOT_A_PROGRAM",
            help="give a program; a shell script without #! is started as `permille run -- sh SCRIPT`",
            metadata=metadata,
        )
    kind, machine = int.from_bytes(head[16:18], "little"), int.from_bytes(head[18:20], "little")
    if (head[4], head[5]) != (_ELF_CLASS_64, _ELF_LITTLE_ENDIAN) or machine != _EM_X86_64:
        name = _MACHINES.get(machine, f"machine {machine}")
        raise InvalidArgument(
            f"{program} is not for x86-64 (64 bits): it is for {name}",
            reason="NOT_X86_64",
            help="only x86-64 programs can be traced: take that build of it",
            metadata=metadata,
        )
    if kind not in (_ET_EXEC, _ET_DYN):
        raise InvalidArgument(
            f"{program} is an ELF file, but no program (an object file or a core dump)",
            reason="NOT_A_PROGRAM",
            help="give the linked program",
            metadata=metadata,
        )


def _require_own_rights(program: Path, user: int) -> None:
    status = program.stat()
    gains_user = bool(status.st_mode & stat.S_ISUID) and status.st_uid != user
    gains_group = bool(status.st_mode & stat.S_ISGID) and user != 0
    if gains_user or gains_group:
        raise FailedPrecondition(
            f"{program} is set-user-id or set-group-id: under trace it would run without the rights it needs",
            reason="SETUID",
            help=f"start it as its owner (uid {status.st_uid}), or start a copy without that bit",
            metadata={"program": str(program), "owner": str(status.st_uid)},
        )
