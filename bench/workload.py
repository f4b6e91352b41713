"""A mesh of its own and a real redis-server under load, for the demo and the benches."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

READY_S = 120


@contextlib.contextmanager
def mesh() -> Iterator[None]:
    """Ready; who ends the bench by SIGTERM ends it and all that was begun beside it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print("$ permille up", flush=True)
    with process(["permille", "up"], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        for line in up.stdout:
            print(line, end="", flush=True)
            if "ready" in line:
                break
        else:
            raise subprocess.CalledProcessError(up.wait(), ["permille", "up"])
        yield


@contextlib.contextmanager
def redis() -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    options = ["--port", str(port), "--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes"]
    command = ["permille", "run", "--", "redis-server", *options]
    print(f"\n$ {shlex.join(command)}", flush=True)
    with process(command, stdout=subprocess.DEVNULL, text=True) as server:
        wait_for_port(port, server)
        yield server, port


@contextlib.contextmanager
def load(port: int) -> Iterator[None]:
    command = [
        "redis-benchmark",
        "-p",
        str(port),
        "-c",
        "20",
        "-n",
        "100000000",
        "-r",
        "10000",
        "-t",
        "set,get,lpush",
        "-q",
    ]
    print(f"\n$ {shlex.join(command)} &", flush=True)
    with process(command, stdout=subprocess.DEVNULL, text=True):
        time.sleep(2)
        yield


@contextlib.contextmanager
def process(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """A child that does not outlive the block: asked to end, and killed when it does not."""
    child = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def traced(pid: int, period: str) -> str:
    """Records and decodes; the session's id."""
    command = ["permille", "trace", "--pid", str(pid), "--for", period, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["sessions"][0]).rpartition("/")[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for_port(port: int, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise subprocess.CalledProcessError(server.returncode, server.args)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"redis-server did not listen on port {port} within {READY_S} s")
