"""The loads whose schedules are recorded: real programs under real load."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from workload import free_port, wait_for_port

VPT = Path(__file__).resolve().parents[2] / "services" / "controller" / "vpt"
WARM_UP_S = 1.5

POOL = """
import multiprocessing, random
def work(size):
    return sum(n * n % 7 for n in range(size))
if __name__ == "__main__":
    chance = random.Random(1)
    with multiprocessing.Pool(3) as pool:
        while True:
            pool.map(work, [chance.randrange(2_000, 400_000) for _ in range(12)], chunksize=1)
"""

BURSTS = """
import random, time
chance = random.Random(2)
while True:
    time.sleep(chance.expovariate(1 / 0.4))
    end = time.monotonic() + chance.uniform(0.05, 0.4)
    while time.monotonic() < end:
        sum(range(1000))
"""

NGINX = """
daemon off; master_process on; worker_processes 2; pid {folder}/nginx.pid; error_log stderr crit; user root;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fast;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; gzip on; gzip_types *;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


@contextlib.contextmanager
def redis(folder: Path, bound: list[str]) -> Iterator[int]:
    port = free_port()
    with group([*bound, "redis-server", "--port", str(port), "--save", ""]) as server:
        wait_for_port(port, server)
        client = f"redis-benchmark -p {port} -c 20 -n 100000000 -r 10000 -t set,get,lpush -q"
        with group(client.split()):
            yield server.pid


@contextlib.contextmanager
def nginx(folder: Path, bound: list[str]) -> Iterator[int]:
    port = free_port()
    (folder / "page.txt").write_text("every word of this page is sent again and again\n" * 400)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    with group([*bound, "nginx", "-c", str(folder / "nginx.conf")]) as server:
        wait_for_port(port, server)
        client = f"wrk -t 1 -c 8 -d 3600 -H Accept-Encoding:gzip http://127.0.0.1:{port}/page.txt"
        with group(client.split()):
            yield server.pid


@contextlib.contextmanager
def build(folder: Path, bound: list[str]) -> Iterator[int]:
    sources = folder / "sources"
    shutil.copytree(VPT, sources)
    objects = " ".join(f"{source.stem}.o" for source in sorted(sources.glob("*.c")))
    flags = "-O2 -g -std=gnu11 -D_GNU_SOURCE -fPIC -Iinclude"
    command = f"cd {sources}; while make -f /dev/null -s -B -j3 CFLAGS='{flags}' {objects}; do :; done"
    with group([*bound, "sh", "-c", command]) as shell:
        yield shell.pid


@contextlib.contextmanager
def pool(folder: Path, bound: list[str]) -> Iterator[int]:
    (folder / "pool.py").write_text(POOL)
    with group([*bound, sys.executable, str(folder / "pool.py")]) as python:
        yield python.pid


@contextlib.contextmanager
def bursts(folder: Path, bound: list[str]) -> Iterator[int]:
    with group([*bound, sys.executable, "-c", BURSTS]) as python:
        yield python.pid


@contextlib.contextmanager
def group(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that leaves none of its children behind."""
    null = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, text=True)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


LOADS: dict[str, Callable[[Path, list[str]], contextlib.AbstractContextManager[int]]] = {
    "redis": redis,
    "nginx": nginx,
    "build": build,
    "CPython multi-process": pool,
    "idle + burst": bursts,
}
# Who has the machine's cores too, for each load: one that leaves none of them free.
NEIGHBOURS = {load: "CPython multi-process" if load == "build" else "build" for load in LOADS}


@contextlib.contextmanager
def running(name: str, folder: Path, cores: str = "") -> Iterator[int]:
    """The process id of the load's root; `cores` is a list for taskset, empty for all."""
    if missing := [tool for tool in ("redis-server", "nginx", "wrk", "make", "taskset") if not shutil.which(tool)]:
        raise SystemExit(f"missing: {', '.join(missing)}; apt-get install redis-server nginx-light wrk make util-linux")
    folder.mkdir()
    with LOADS[name](folder, ["taskset", "-c", cores] if cores else []) as root:
        time.sleep(WARM_UP_S)
        yield root
