"""Each image is built as deploy/images/Dockerfile says, and permille runs from them as it would in containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from permille.client import Client
from permille.controller.domain.kmod_layout import DEVICE
from permille.controller.domain.pt_model import PMU
from permille.mesh.certs import create_authority, issue_service

from tests.images.builder import ROOT, Builder, building
from tests.processes import PATIENCE_S, Process, await_true, child, free_port
from tests.whole_mesh import new_mesh
from tests.whole_session import assert_did_its_work, assert_whole

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="building root file systems needs root")]
# Those of docs/operations.md for vpt; every other image has none.
CONTROLLER = ("BPF", "DAC_READ_SEARCH", "PERFMON", "SYS_PTRACE")
# Where each container has what all of them share.
SHARED = "/var/lib/permille-shared"
PLUGIN = ROOT / "services/controller/src/permille/controller/vpt/libpermille-vpt.so"
# Not typed by its authors.
health_stub: Callable[[grpc.Channel], Any] = health_pb2_grpc.HealthStub
KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}], users: [{name: u, user: {token: t}}]}
"""


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    for tool in ("buildah", "mmdebstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: deploy/install-system test-all")
    with building() as made:
        yield made


class Pods:
    """Services from their images, on loopback; they end with the block."""

    def __init__(self, folder: Path, builder: Builder, ended: ExitStack) -> None:
        self._folder = folder
        self._builder = builder
        self._ended = ended
        # What all of them see: secrets, and the store where it is a claim.
        self.shared = self.volume("shared")
        self.etcd = f"127.0.0.1:{free_port()}"
        self.coverage = f"127.0.0.1:{free_port()}"
        self.settings: dict[str, str] = {}
        self._started: dict[str, Process] = {}

    def volume(self, name: str) -> Path:
        """A folder as kubelets make it for a pod whose fsGroup is 65532."""
        folder = self._folder / name
        folder.mkdir()
        os.chown(folder, 0, 65532)
        folder.chmod(0o2775)
        return folder

    def start(self, target: str, *arguments: str, capabilities: tuple[str, ...] = (), **settings: str) -> Process:
        """One container."""
        image = self._builder.built(target)
        command = image.command(*arguments, capabilities=capabilities, **self.settings, **settings)
        log = self._ended.enter_context((self._folder / f"{target}.log").open("wb"))
        # umask: as the chart starts who uses a claim.
        options: dict[str, Any] = {"stdout": log, "stderr": log, "umask": 0o002, "env": self.environment(target)}
        process = self._started[target] = self._ended.enter_context(child(command, **options))
        return process

    def assert_alive(self) -> None:
        """Everyone who was started runs."""
        for target, process in self._started.items():
            assert process.poll() is None, self.log(target)

    def environment(self, target: str) -> dict[str, str]:
        return {**os.environ, "STATE": str(self.volume(target)), "SHARED": str(self.shared)}

    def serve(self, target: str, **options: Any) -> None:
        """A service, when gRPC health says that it serves."""
        address = f"127.0.0.1:{free_port()}"
        process = self.start(target, PERMILLE_HEALTH=address, **options)

        def serving() -> bool:
            assert process.poll() is None, self.log(target)
            with grpc.insecure_channel(address) as channel:
                try:
                    answer = health_stub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
                except grpc.RpcError:
                    return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

        await_true(serving, PATIENCE_S, f"{target} to serve")

    def log(self, target: str) -> str:
        """What a container wrote."""
        return (self._folder / f"{target}.log").read_text()[-4000:]


@pytest.mark.parametrize("store", ["bundled", "claim"])
def test_permille_runs_from_its_images(
    builder: Builder, tmp_path_factory: pytest.TempPathFactory, busy: Path, short_tmp: Path, store: str
) -> None:
    short_tmp.chmod(0o755)
    with ExitStack() as ended:
        pods = Pods(short_tmp, builder, ended)
        url, peer = f"http://{pods.etcd}", f"http://127.0.0.1:{free_port()}"
        urls = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}"]
        pods.start("etcd", "--data-dir=/var/lib/permille/data", *urls)
        mesh = new_mesh(tmp_path_factory.mktemp("state"), PERMILLE_ETCD=pods.etcd)
        ended.callback(mesh.close)
        pods.settings = {
            "PERMILLE_ETCD": pods.etcd,
            "PERMILLE_STATE_DIR": "/var/lib/permille",
            **(bundled_store(pods) if store == "bundled" else claim(pods)),
        }
        pods.serve("allocator")
        pods.serve("coverage", PERMILLE_LISTEN=pods.coverage)
        pods.serve("decoder")
        pods.serve("controller", capabilities=CONTROLLER, PERMILLE_CONTROLLER_VPT_DIR=str(mesh.vpt_dir))
        (pods.shared / "kubeconfig").write_text(KUBECONFIG)
        pods.serve("operator", KUBECONFIG=f"{SHARED}/kubeconfig")
        # `permille run` wants QEMU where the controller is, which its image leaves to the image of the program.
        # As it does, the emulator is called like the program.
        emulator = short_tmp / busy.name
        emulator.symlink_to(str(shutil.which("qemu-x86_64")))
        program = [str(emulator), "-plugin", f"{PLUGIN},dir={mesh.vpt_dir}", str(busy), "paced"]
        with child(program, stdout=subprocess.DEVNULL) as process:
            await_true(lambda: mesh.recorder(process.pid), PATIENCE_S, "the program")
            session = mesh.trace(process.pid, "300ms")
            # What these back ends miss in the image is the device and the processor, and nothing of the image's own.
            lacking = ("has no Intel PT", "its kernel module is not loaded", "its kernel offers no intel_pt")
            for backend, device in (("kmod", DEVICE), ("perf", PMU)):
                if not Path(device).exists():
                    refused = mesh.refusal("trace", "--pid", str(process.pid), "--backend", backend, code=4)
                    assert refused["reason"] == "BACKEND_UNAVAILABLE"
                    assert refused["message"].endswith(lacking)
            of_alert = alerted(pods)
        assert_did_its_work(assert_whole(mesh, session))
        assert_did_its_work(assert_whole(mesh, of_alert))
        if Path("/sys/kernel/btf/vmlinux").exists():
            # Which core a call ran on is known from switch records alone.
            (seen,) = mesh.rows(f"SELECT max(core) AS core FROM calls WHERE session_id = '{session}'")
            assert seen["core"] >= 0, pods.log("controller")
        # The same from the image of the command.
        cli = builder.built("cli")
        asked = cli.command("report", session, **pods.settings)
        told = subprocess.run(asked, env=pods.environment("cli"), capture_output=True, text=True, check=False)
        assert told.returncode == 0 and "piece_of_work" in told.stdout, told
        pods.assert_alive()
        # Its owner deletes what the others have written.
        stored = short_tmp / {"bundled": "store/data/traces", "claim": "shared/store"}[store]
        assert [file for file in stored.rglob("*") if session in str(file) and file.is_file()]
        mesh.command("delete", session, "--yes")
        assert not [file for file in stored.rglob("*") if session in str(file) and file.is_file()]


def bundled_store(pods: Pods) -> dict[str, str]:
    """What those are told who use the S3 server, which is started from its image as the chart starts it."""
    address = f"127.0.0.1:{free_port()}"
    secrets = issued(pods, "store")
    key = {"ACCESS_KEY_ID": "permille", "SECRET_ACCESS_KEY": "a-secret"}
    options = {"port": address, "cert": f"{secrets}/store.crt", "key": f"{secrets}/store.key", "health": "/health"}
    arguments = ["/var/lib/permille/data", "traces", *(f"--{name}={value}" for name, value in options.items())]
    root: dict[str, Any] = {f"ROOT_{name}": value for name, value in key.items()}
    process = pods.start("store", *arguments, **root)
    await_answer(pods, "store", process, f"https://{address}/health")
    told = {f"AWS_{name}": value for name, value in key.items()}
    told |= dict.fromkeys(("AWS_CA_BUNDLE", "SSL_CERT_FILE"), f"{secrets}/ca.crt")
    return told | {"PERMILLE_STORE": f"s3://traces?endpoint=https://{address}"}


def claim(pods: Pods) -> dict[str, str]:
    """The same of a folder that all see."""
    pods.volume("shared/store")
    return {"PERMILLE_STORE": f"file://{SHARED}/store"}


def issued(pods: Pods, name: str) -> str:
    """Where pods see a certificate, its key and their authority."""
    folder = pods.shared / name
    create_authority(folder)
    # As a kubelet has a secret: of the volume's group, which reads it.
    folder.chmod(0o2750)
    issue_service(folder, [name], node=name).key.chmod(0o440)
    return f"{SHARED}/{name}"


def trusting(pods: Pods, name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pods.shared / name / "ca.crt")


def await_answer(pods: Pods, name: str, process: Process, url: str) -> None:
    """Returns when a probe of the chart is answered."""

    def healthy() -> bool:
        assert process.poll() is None, pods.log(name)
        try:
            with urllib.request.urlopen(url, context=trusting(pods, name), timeout=60) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    await_true(healthy, PATIENCE_S, url)


def alerted(pods: Pods) -> str:
    """The id of the session of an alert that `permille-alertmanager` gets from its image, as the chart starts it."""
    address = f"127.0.0.1:{free_port()}"
    secrets = issued(pods, "alertmanager")
    (pods.shared / "alertmanager" / "token").write_text("a-token")
    files = {"https-cert": "alertmanager.crt", "https-key": "alertmanager.key", "token-file": "token"}
    arguments = {name: f"{secrets}/{file}" for name, file in files.items()}
    arguments |= {"coverage": pods.coverage, "listen": address, "period-ms": "300"}
    process = pods.start("alertmanager", *(f"--{name}={value}" for name, value in arguments.items()))
    await_answer(pods, "alertmanager", process, f"https://{address}/healthz")
    alert = {
        "status": "firing",
        "labels": {"process_name": "busy"},
        "fingerprint": "a1",
        "startsAt": "2026-03-01T10:00:00Z",
    }
    request = urllib.request.Request(
        f"https://{address}/alerts",
        data=json.dumps({"version": "4", "alerts": [alert]}).encode(),
        headers={"Authorization": "Bearer a-token", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, context=trusting(pods, "alertmanager"), timeout=60) as answer:
            (outcome,) = json.load(answer)["alerts"]
    except urllib.error.HTTPError as refused:
        pytest.fail(refused.read().decode())
    with Client(pods.coverage) as client:
        (session,) = client.wait(outcome["operation"]).sessions
    return session.rpartition("/")[2]


def test_etcd_is_of_the_version_that_is_pinned(builder: Builder) -> None:
    root = builder.built("etcd").root
    (pinned,) = re.findall(r"go\.etcd\.io/etcd/server/v3 v(\S+)", (ROOT / "deploy/images/etcd/go.mod").read_text())
    for command, *asks in (("etcd", "--version"), ("etcdctl", "version"), ("etcdutl", "version")):
        told = subprocess.run(["chroot", root, command, *asks], capture_output=True, text=True, check=True).stdout
        assert re.search(rf"version: {re.escape(pinned)}$", told, re.IGNORECASE | re.MULTILINE), (command, told)
    assert (root / "usr/local/share/doc/etcd/go.etcd.io/etcd/server/v3/LICENSE").is_file()


def test_what_runs_has_nothing_to_build_with(builder: Builder) -> None:
    for target in ("allocator", "alertmanager", "controller", "store"):
        root = builder.built(target).root
        for tool in ("gcc", "make", "pip", "pip3", "cargo", "git", "go"):
            assert not list(root.glob(f"usr/bin/{tool}")) and not list(root.glob(f"opt/permille/bin/{tool}")), tool


def test_the_store_comes_with_the_licences_of_what_is_in_it(builder: Builder) -> None:
    licences = builder.built("store").root / "usr/local/share/doc/versitygw"
    for name in (
        "github.com/versity/versitygw/LICENSE",
        "github.com/versity/versitygw/NOTICE",
        "golang.org/x/sys/LICENSE",
    ):
        assert (licences / name).read_text()
