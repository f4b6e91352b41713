"""The command in a process that has loaded it already: most of what a short one takes is its start.

As a program this file is that process: for each request it forks one that is the command, with arguments, environment,
folder and output of its own. Tests of how the command starts, of signals and of pipes start it themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

MOST_BYTES = 1 << 20
ALSO = ("permille.cli.client", "permille.mesh.config", "permille.ptcore")


def run_loaded(
    arguments: Sequence[str | Path], environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of the command without input: exit code, standard output and error as text."""
    words = list(map(str, arguments))
    request = json.dumps({"arguments": words, "environment": dict(environment), "folder": str(Path.cwd())}).encode()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with told:
            with tells:
                _loaded().ask(request, [out.fileno(), err.fileno(), tells.fileno()])
            told.settimeout(timeout_s)
            pid = int(told.recv(16))
            try:
                code = int(told.recv(16))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
                raise subprocess.TimeoutExpired(["permille", *words], timeout_s, _text(out), _text(err)) from None
        return subprocess.CompletedProcess(["permille", *words], code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class _Loaded:
    """It ends with whoever asks it."""

    def __init__(self) -> None:
        self._asks, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        command = [sys.executable, __file__, str(asked.fileno())]
        with asked:
            self._process = subprocess.Popen(command, pass_fds=[asked.fileno()], stdin=subprocess.DEVNULL)
        self._one_at_a_time = threading.Lock()

    def ask(self, request: bytes, files: list[int]) -> None:
        with self._one_at_a_time:
            socket.send_fds(self._asks, [request], files)


@cache
def _loaded() -> _Loaded:
    return _Loaded()


def _serve(asked: socket.socket) -> None:
    while True:
        request, files, _, _ = socket.recv_fds(asked, MOST_BYTES, 3)
        if not request:
            return
        # The first child waits for the second, which may become another program, and is left to init.
        if (child := os.fork()) == 0:
            if os.fork() == 0:
                asked.close()
                _wait_for(json.loads(request), *files)
            os._exit(0)
        os.waitpid(child, 0)
        for file in files:
            os.close(file)


def _wait_for(request: dict[str, object], out: int, err: int, tells: int) -> None:
    if (pid := os.fork()) == 0:
        os.close(tells)
        _become(request, out, err)
    with socket.socket(fileno=tells) as teller:
        teller.send(f"{pid}".encode())
        _, status = os.waitpid(pid, 0)
        teller.send(f"{os.waitstatus_to_exitcode(status)}".encode())
    os._exit(0)


def _become(request: dict[str, object], out: int, err: int) -> None:
    from permille.cli.main import main

    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(request["folder"])  # type: ignore[arg-type]
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    tempfile.tempdir = None
    sys.argv = ["permille", *request["arguments"]]  # type: ignore[misc]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from permille.cli.application import COMMANDS

    for module in (*COMMANDS.values(), *ALSO):
        importlib.import_module(module)
    _serve(socket.socket(fileno=int(sys.argv[1])))
