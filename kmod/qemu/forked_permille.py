"""In the guest: the command `permille` in a process of its own, forked from one that has imported it already: emulated,
imports take longer than most of what a command does.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback

from mesh_in_guest import SETTINGS, say, say_logs
from permille.cli.application import run
from permille.cli.commands import query, report, trace

# Loaded when they are named: here once, and not in each process.
_COMMANDS = (query, report, trace)


class Permille:
    """A command that runs; `returncode` once it has ended."""

    def __init__(self, *arguments: str) -> None:
        self.returncode: int | None = None
        self._told, self._complained = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(self._told.fileno(), 1)
            os.dup2(self._complained.fileno(), 2)
            _run(["permille", *arguments, *SETTINGS])

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.returncode

    def told(self) -> str:
        """What it has written to its standard output."""
        return _text(self._told)

    def complained(self) -> str:
        return _text(self._complained)


def _text(file: tempfile._TemporaryFileWrapper[str]) -> str:
    file.seek(0)
    return file.read()


def _run(arguments: list[str]) -> None:
    """Never comes back: the rest of the script is the parent's."""
    code: object = 1
    try:
        sys.argv = arguments
        run()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def asked(*arguments: str) -> str:
    """What a command says that has to succeed."""
    begun = time.monotonic()
    command = Permille(*arguments)
    code = command.wait()
    say(f"permille {' '.join(arguments)}: exit code {code}, {time.monotonic() - begun:.0f} s")
    if code != 0:
        say(command.told() + command.complained())
        say_logs()
        raise SystemExit(1)
    return command.told()
