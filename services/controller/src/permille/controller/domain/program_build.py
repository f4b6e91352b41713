"""Which build of a program a process runs, and how large it is."""

from __future__ import annotations

from pathlib import Path

from permille.controller.domain import elf_notes
from permille.controller.domain.capabilities import QEMU
from permille.controller.domain.recording import RecordableProcess


def build_id(process: RecordableProcess) -> str:
    """Hex; "" for a kernel thread, a file without one, or when nobody may look."""
    try:
        return elf_notes.names(program(process))[0]
    except OSError:
        return ""


def size_bytes(process: RecordableProcess) -> int:
    """Of its file; 0 for a kernel thread, or when nobody may look."""
    try:
        return program(process).stat().st_size
    except OSError:
        return 0


def build_and_size(process: RecordableProcess) -> tuple[str, int]:
    """Both."""
    return build_id(process), size_bytes(process)


def program(process: RecordableProcess) -> Path:
    """What it executes; under QEMU the program behind the plugin in the command line."""
    folder, words = Path(f"/proc/{process.pid}"), process.command_line
    if words and Path(words[0]).name == QEMU and "-plugin" in words[:-2]:
        return folder / "cwd" / words[words.index("-plugin") + 2]
    return folder / "exe"
