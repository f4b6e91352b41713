"""Fixtures for the tests of every package: a real etcd and a real S3 server, private to the test session.

The S3 server is OpenStack Swift with its s3api, on one node, on loopback.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from hypothesis import settings
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.etcd import Etcd

settings.register_profile("permille", deadline=None)  # no test fails because a machine is slow
settings.load_profile("permille")

# A shell has what it starts in the background ignore Ctrl-C, and nohup SIGHUP, with everything started by that:
# programs under test would not see the one that a test sends.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# A node's controller packs slowly on purpose; tests wait for it.
os.environ.setdefault("PERMILLE_CONTROLLER_CPU_SHARE", "1")
BIN = Path(sys.executable).parent
# An etcd that is away refuses at once; one on a busy machine answers late.
ETCD_TIMEOUT_S = 60.0
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
# The order of the proxy's filters matters: s3api before the authentication that it translates to.
PIPELINE = (
    "catch_errors gatekeeper listing_formats bulk s3api tempauth copy container_quotas slo dlo versioned_writes symlink"
)
SWIFT_CONF = """
[swift-hash]
swift_hash_path_suffix = permille
[storage-policy:0]
name = one
default = yes
[swift-constraints]
max_header_size = 16384
"""
PROXY_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
workers = 0
log_level = WARNING
log_udp_host = 127.0.0.1
log_udp_port = 9
[pipeline:main]
pipeline = {pipeline} proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
node_timeout = 60
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
min_segment_size = 65536
s3_acl = false
location = us-east-1
"""
STORAGE_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
max_clients = {clients}
log_level = WARNING
log_udp_host = 127.0.0.1
log_udp_port = 9
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
STORAGE = ("account", "container", "object")
# One device each, in one process: loading Swift is most of what a ring takes.
RINGS = """
import sys
from swift.common.ring import RingBuilder
folder, *servers = sys.argv[1:]
for server in servers:
    kind, port = server.split(":")
    builder = RingBuilder(4, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1", "weight": 1.0})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{kind}.ring.gz")
"""
# In a process of its own, because Swift keeps its configuration in global variables.
LIMIT = """
import sys
from swift.common.direct_client import direct_post_container, direct_put_container
from swift.common.ring import Ring
from swift.common.utils import set_swift_dir
folder, container, most_bytes = sys.argv[1:]
set_swift_dir(folder)
partition, nodes = Ring(folder, ring_name="container").get_nodes("AUTH_test", container)
direct_put_container(nodes[0], partition, "AUTH_test", container, headers={"X-Backend-Storage-Policy-Index": "0"})
headers = {"X-Container-Meta-Quota-Bytes": most_bytes}
direct_post_container(nodes[0], partition, "AUTH_test", container, headers=headers)
"""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Ends what the tests of a worker that crashed had started: meshes under load would slow down all tests to come."""
    if error is None:
        return
    told = {"PYTEST_XDIST_WORKER": "workerid", "PYTEST_XDIST_TESTRUNUID": "testrunuid"}
    mark = {name: node.workerinput[value] for name, value in told.items()}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark.items() <= process.environ().items():
                process.kill()


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A temporary folder whose name is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="permille-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def etcd_server(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    """A real etcd with an empty folder; a test may stop, kill and start it."""
    server = EmbeddedEtcd(tmp_path / "etcd", durable=False)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def etcd(etcd_server: EmbeddedEtcd) -> AsyncIterator[Etcd]:
    """A client of `etcd_server`."""
    client = Etcd([etcd_server.endpoint], timeout_s=ETCD_TIMEOUT_S)
    yield client
    await client.close()


@pytest.fixture
def mesh_config(etcd_server: EmbeddedEtcd, tmp_path: Path) -> MeshConfig:
    """The configuration of a mesh on `etcd_server`, with short leases, so that a death is noticed soon."""
    return MeshConfig(
        state_dir=tmp_path / "state",
        node="n1",
        etcd=(etcd_server.endpoint,),
        etcd_timeout_s=ETCD_TIMEOUT_S,
        lease_ttl_s=2,
        drain_s=2,
        metrics="off",
    )


class SwiftServer:
    """Four processes: proxy (which speaks S3), account, container and object server.

    `one_at_a_time`: Swift looks whether an object exists, and writes it later, so two conditional puts at once both
    succeed. Where the object server takes one request at a time they do not, at the price of slow large objects.
    """

    def __init__(self, folder: Path, *, one_at_a_time: bool = False) -> None:
        self.folder = folder
        self._one_at_a_time = one_at_a_time
        self.endpoint = ""
        self._proxy_port = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Returns when all four listen."""
        (self.folder / "devices" / "d1").mkdir(parents=True, exist_ok=True)
        (self.folder / "swift.conf").write_text(SWIFT_CONF)
        ports = {kind: free_port() for kind in STORAGE}
        rings = [sys.executable, "-c", RINGS, str(self.folder), *(f"{kind}:{port}" for kind, port in ports.items())]
        subprocess.run(rings, check=True, capture_output=True)
        for kind, port in ports.items():
            clients = 1 if self._one_at_a_time and kind == "object" else 1024
            conf = STORAGE_CONF.format(port=port, folder=self.folder, kind=kind, clients=clients)
            self._run(kind, conf)
        for kind, port in ports.items():
            self._await(kind, port)
        port = free_port()
        filters = "".join(
            f"[filter:{name}]\nuse = egg:swift#{name}\n"
            for name in PIPELINE.split()
            if name not in ("s3api", "tempauth")
        )
        self._run("proxy", PROXY_CONF.format(port=port, folder=self.folder, pipeline=PIPELINE) + filters)
        self._await("proxy", port)
        self.endpoint = f"http://127.0.0.1:{port}"
        self._proxy_port = port

    def stop(self) -> None:
        """Nothing of it is needed any more."""
        for kind in list(self._processes):
            self._kill(kind)

    def refuse(self) -> None:
        """Nobody answers at the endpoint until `answer_again`; what is stored stays."""
        self._kill("proxy")

    def answer_again(self) -> None:
        """Ends what `refuse` began; returns when it listens."""
        self._start("proxy")
        self._await("proxy", self._proxy_port)

    def limit(self, bucket: str, most_bytes: int) -> None:
        """Gives a bucket a quota, as a Swift operator does."""
        for container in (bucket, f"{bucket}+segments"):
            limited = [sys.executable, "-c", LIMIT, str(self.folder), container, str(most_bytes)]
            subprocess.run(limited, check=True, capture_output=True)

    def _run(self, kind: str, text: str) -> None:
        (self.folder / f"{kind}-server.conf").write_text(text)
        self._start(kind)

    def _start(self, kind: str) -> None:
        log = (self.folder / f"{kind}.log").open("wb")
        # PYTHONWARNINGS: its own deprecations are not ours to read.
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "EVENTLET_NO_GREENDNS": "yes"}
        command = [str(BIN / f"swift-{kind}-server"), str(self.folder / f"{kind}-server.conf")]
        self._processes[kind] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _await(self, kind: str, port: int) -> None:
        process = self._processes[kind]
        await_true(lambda: process.poll() is not None or connects(port), 60, f"swift-{kind}-server")
        if process.poll() is not None:
            pytest.fail((self.folder / f"{kind}.log").read_text())

    def _kill(self, kind: str) -> None:
        process = self._processes.pop(kind)
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def running_swift(*, one_at_a_time: bool) -> Iterator[SwiftServer]:
    folder = Path(tempfile.mkdtemp(prefix="permille-swift-"))
    server = SwiftServer(folder, one_at_a_time=one_at_a_time)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def swift_server() -> Iterator[SwiftServer]:
    """One server for the whole test run; each test takes a bucket of its own."""
    with running_swift(one_at_a_time=False) as server:
        yield server


@pytest.fixture(scope="session")
def conditional_swift_server() -> Iterator[SwiftServer]:
    """One whose conditional put is atomic, as that of Amazon's S3 is: what Delta's commits need."""
    with running_swift(one_at_a_time=True) as server:
        yield server


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the test server, where AWS tools look for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3_client(swift_server: SwiftServer, s3_credentials: None) -> Any:
    """A plain boto3 client, to look at and spoil what the store wrote."""
    return client_of(swift_server)


@pytest.fixture
def s3_url(swift_server: SwiftServer, s3_credentials: None) -> str:
    """The URL of a store in a new bucket."""
    return new_bucket(swift_server)


@pytest.fixture
def conditional_s3_url(conditional_swift_server: SwiftServer, s3_credentials: None) -> str:
    """The URL of a store in a new bucket of a server that Delta tables can be on."""
    return new_bucket(conditional_swift_server)


def client_of(server: SwiftServer) -> Any:
    config = Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required")
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", config=config)


def new_bucket(server: SwiftServer) -> str:
    bucket = f"test-{secrets.token_hex(8)}"
    client_of(server).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/some/prefix?endpoint={server.endpoint}"


def await_true(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
