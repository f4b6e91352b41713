"""A redis-server to be recorded, and a load on it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator

from tests.processes import PATIENCE_S, Process, await_true, child, connects, free_port
from tests.whole_mesh import WholeMesh


@contextlib.contextmanager
def redis_server(mesh: WholeMesh) -> Iterator[tuple[Process, int]]:
    """A redis-server with an I/O thread, started by `permille run`, and its port."""
    port = free_port()
    options = ["--port", str(port), "--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes"]
    with mesh.running("redis-server", *options) as server:
        await_true(lambda: connects(port), PATIENCE_S, "redis-server")
        yield server, port


@contextlib.contextmanager
def load_on_redis(port: int) -> Iterator[None]:
    """Twenty clients that do nothing but SET."""
    load = ["redis-benchmark", "-p", str(port), "-c", "20", "-n", "100000000", "-r", "10000", "-t", "set", "-q"]
    with child(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        await_true(lambda: redis_commands(port) > 1000, PATIENCE_S, "load on redis-server")
        yield


def redis_commands(port: int) -> int:
    """How many commands a redis-server has executed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(b"INFO stats\r\n")
        told = b""
        while b"total_commands_processed:" not in told or not told.endswith(b"\r\n"):
            told += connection.recv(65536)
    return int(told.partition(b"total_commands_processed:")[2].split()[0])
