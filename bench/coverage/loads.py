"""The programs that the bench records, each under a load that goes on until it is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workload import free_port, process, wait_for_port

# Several kinds of work in turn, none of which takes longer than a short recording.
PYTHON = """
import json, re, time, zlib
text = "the quick brown fox jumps over the lazy dog " * 20
class Node:
    def __init__(self, key, below): self.key, self.below = key, below
    def total(self): return self.key + sum(one.total() for one in self.below)
def tree(depth): return Node(depth, [tree(depth - 1) for _ in range(3)] if depth else [])
print("begun", flush=True)
while True:
    json.loads(json.dumps({str(n): [n, n * 0.5, None, text[:n]] for n in range(30)}))
    re.sub(r"(\\w+) (\\w+)", r"\\2 \\1", text)
    sorted((word[::-1] for word in text.split()), key=len)
    tree(4).total()
    zlib.crc32(text.encode()); f"{len(text):08.3f} {text!r:.20}"
    {n: n * n for n in range(200)}; set(range(100)) & set(range(50, 150))
    time.sleep(0.0001)  # Beside who never sleeps, Linux 6.18 was seen to leave everyone else next to nothing.
"""
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log {folder}/access.log; gzip on; gzip_min_length 100; types {{ text/html html; }}
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port}; root {folder}/www;
    location /moved {{ return 301 /index.html; }}
    location ~ ^/r/(.*)$ {{ rewrite ^/r/(.*)$ /$1 last; }}
  }}
}}
"""
# A block of pigz's at a time.
PACED = """
import sys, time
data = open(sys.argv[1], "rb").read()
while True:
    for at in range(0, len(data), 32 << 10):
        sys.stdout.buffer.write(data[at : at + (32 << 10)]); sys.stdout.buffer.flush()
        time.sleep(0.03)
"""
# Who is recorded must not starve those who record: all share a few cores here.
_BEHIND = ("nice", "-n", "5")
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass(frozen=True)
class Running:
    """An instance: the process to be recorded, and those that give it work."""

    pid: int
    load: tuple[int, ...] = ()

    def pause(self) -> None:
        """So that what was recorded is decoded without them."""
        for pid in (self.pid, *self.load):
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """As before."""
        for pid in (self.pid, *self.load):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Running]:
    """A server that gets commands of many kinds."""
    port = free_port()
    with (
        recordable(["redis-server", "--port", str(port), "--save", ""]) as server,
        clients("redis", port, server) as load,
    ):
        yield Running(server.pid, load)


@contextlib.contextmanager
def cpython(folder: Path) -> Iterator[Running]:
    """An interpreter with a script of many kinds of work."""
    script = folder / "work.py"
    script.write_text(PYTHON)
    with recordable(["/usr/bin/python3", "-S", str(script)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield Running(server.pid)


@contextlib.contextmanager
def pigz(folder: Path) -> Iterator[Running]:
    """gzip by several threads, of data without an end that comes no faster than two instances can compress it here."""
    data = folder / "data"
    data.write_bytes(Path("/usr/bin/python3").read_bytes()[: 2 << 20] + Path("/etc/services").read_bytes())
    with (
        process([sys.executable, "-c", PACED, str(data)], stdout=subprocess.PIPE) as feeder,
        recordable(["pigz", "-p", "3", "-b", "32", "-c"], stdin=feeder.stdout) as server,
    ):
        # It waits for what it reads and writes.
        yield Running(server.pid)


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[Running]:
    """A server of small and compressed files, redirections and files that are not there."""
    port = free_port()
    (folder / "www").mkdir()
    (folder / "www" / "index.html").write_text("<p>words and more words</p>\n" * 200)
    (folder / "www" / "small").write_text("small")
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port))
    command = ["/usr/sbin/nginx", "-c", str(config), "-p", str(folder)]
    with recordable(command) as server, clients("nginx", port, server) as load:
        yield Running(server.pid, load)


@contextlib.contextmanager
def memcached(folder: Path) -> Iterator[Running]:
    """A cache of two threads that is written, read, counted and emptied."""
    port = free_port()
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = ["/usr/bin/memcached", "-p", str(port), "-U", "0", "-t", "2", *user]
    with recordable(command) as server, clients("memcached", port, server) as load:
        yield Running(server.pid, load)


LOADS = {"redis": redis, "cpython": cpython, "pigz": pigz, "nginx": nginx, "memcached": memcached}
# As the kernel calls the process.
NAMES = {
    "redis": "redis-server",
    "cpython": "python3",
    "pigz": "pigz",
    "nginx": "nginx",
    "memcached": "memcached",
}


@contextlib.contextmanager
def clients(name: str, port: int, server: subprocess.Popen[str]) -> Iterator[tuple[int, ...]]:
    """The pids of those that ask the server, from when it listens."""
    wait_for_port(port, server)
    command = [*_BEHIND, sys.executable, str(Path(__file__).with_name("client.py")), name, str(port)]
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(process([*command, str(seed)], **_QUIET)).pid for seed in range(4))


def recordable(command: list[str], **options: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A program that was started ready to be recorded."""
    return process([*_BEHIND, "permille", "run", "--", *command], **{"text": True, **_QUIET, **options})
