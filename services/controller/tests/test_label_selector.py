"""Which pods a label selector means: by their labels, and with a real containerd."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from permille.api.controller.v1 import controller_pb2 as pb
from permille.api.controller.v1 import controller_pb2_grpc as rpc
from permille.controller.domain.targets.cgroup_folders import MOUNT
from permille.controller.domain.targets.label_selector import Pod, by_selector
from permille.controller.domain.targets.resolution import Roots
from permille.mesh.errors import InvalidArgument

from .conftest import Node, converted

CGROUPS = f"/permille-test-{secrets.token_hex(4)}"
UIDS = [str(uuid.UUID(int=number)) for number in (1, 2, 3)]
PODS = [
    Pod(UIDS[0], "shop/web-0", {"app": "web", "tier": "front"}),
    Pod(UIDS[1], "shop/web-1", {"app": "web", "tier": "back", "example.org/canary": ""}),
    Pod(UIDS[2], "shop/db-0", {"app": "db"}),
]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Process 1 in the first pod, 2 in the second; the third has none."""
    for pid, uid in enumerate(UIDS[:2], 1):
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/{'0' * 63}{pid}\n")
    return Roots(proc=tmp_path / "proc")


@pytest.mark.parametrize(
    ("selector", "pids"),
    [
        ("app=web", (1, 2)),
        ("app==web,tier!=front", (2,)),
        (" app = web , tier = front ", (1,)),
        # A pod without the label does not have the value.
        ("example.org/canary!=", (1,)),
        ("example.org/canary=", (2,)),
        ("app in (web, db),tier notin (front)", (2,)),
        ("tier,!example.org/canary", (1,)),
    ],
)
def test_all_terms_must_hold(selector: str, pids: tuple[int, ...], roots: Roots) -> None:
    assert by_selector(selector, PODS, roots).pids == pids


def test_labels_that_no_pod_has_name_the_nearest(roots: Roots) -> None:
    for selector in ("app=wep", "app in (wep)"):
        assert by_selector(selector, PODS, roots).nearest[0] == "app=web"


def test_pods_without_a_process_here_are_named(roots: Roots) -> None:
    assert "shop/db-0" in by_selector("app=db", PODS, roots).why_not


async def asking(node: Node, socket: Path) -> rpc.ControllerServiceAsyncStub:
    """Its controller, which asks the runtime that listens there."""
    await node.kill("controller")
    node.settings.append(f"--controller-runtime-socket={socket}")
    await node.start("controller")
    return await node.controller()


async def test_without_a_container_runtime_it_is_said(node: Node, tmp_path: Path) -> None:
    answer = await (await asking(node, tmp_path / "absent.sock")).GetNode(pb.GetNodeRequest(selector="app=web"))
    assert not answer.node.group.pids and "absent.sock" in answer.node.group.why_not


@dataclass(frozen=True)
class Containerd:
    """One that runs, with pods of one process that sleeps; messages by the numbers of their fields (runtime.v1)."""

    socket: Path

    def run_pod(self, name: str, labels: dict[str, str]) -> str:
        uid = str(uuid.uuid4()).encode()
        host = message(varint(1, 2), varint(2, 2), varint(3, 2))
        config = message(
            part(1, message(part(1, name.encode()), part(2, uid), part(3, b"shop"))),
            *(part(6, message(part(1, key.encode()), part(2, value.encode()))) for key, value in labels.items()),
            part(8, message(part(1, CGROUPS.encode() + b"/kubepods/pod" + uid), part(2, message(part(1, host))))),
        )
        sandbox = self._call("RunPodSandbox", part(1, config))
        return sandbox[2:].decode()

    def remove_pod(self, sandbox: str) -> None:
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            self._call(method, part(1, sandbox.encode()))

    def _call(self, method: str, request: bytes) -> bytes:
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:
            call: Callable[..., bytes] = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
            return call(request, timeout=300, wait_for_ready=True)


def message(*fields: bytes) -> bytes:
    return b"".join(fields)


def varint(number: int, value: int) -> bytes:
    return bytes([number << 3, value])


def part(number: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + content


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[Containerd]:
    if os.geteuid() != 0 or not (shutil.which("containerd") and shutil.which("runc")):
        pytest.skip("needs root, containerd and runc")
    socket = tmp_path / "containerd.sock"
    (tmp_path / "config.toml").write_text(f"""
version = 2
root = "{tmp_path}/root"
state = "{tmp_path}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/permille-pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
""")
    command = ["containerd", "--config", str(tmp_path / "config.toml"), "--log-level", "warn"]
    with subprocess.Popen(command) as daemon:
        try:
            runtime = Containerd(socket)
            runtime._call("Status", b"")
            imported = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import"]
            subprocess.run([*imported, pause_image(tmp_path)], check=True, stdout=subprocess.DEVNULL)
            yield runtime
        finally:
            daemon.terminate()
    for cgroup in (*MOUNT.glob(f"*{CGROUPS}"), *MOUNT.glob(CGROUPS[1:])):
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def pause_image(folder: Path) -> Path:
    """An image of one static program that waits, in Docker's archive format."""
    (folder / "pause.c").write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    subprocess.run(["gcc", "-static", "-o", folder / "pause", folder / "pause.c"], check=True)
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(folder / "pause", "pause")
    digest = hashlib.sha256((folder / "layer.tar").read_bytes()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/permille-pause:1"], "Layers": ["layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(folder / "image.tar", "w") as image:
        for name in ("manifest.json", "config.json", "layer.tar"):
            image.add(folder / name, name)
    return folder / "image.tar"


@pytest.mark.slow
async def test_a_real_containerds_pods_are_found_by_their_labels(node: Node, containerd: Containerd) -> None:
    controller = await asking(node, containerd.socket)

    async def pods_of(selector: str) -> pb.Node:
        return (await controller.GetNode(pb.GetNodeRequest(selector=selector))).node

    with contextlib.ExitStack() as pods:
        for name, labels in (("web-0", {"app": "web", "tier": "front"}), ("web-1", {"app": "web", "tier": "back"})):
            pods.callback(containerd.remove_pod, containerd.run_pod(name, labels))
        # A pod that was just started need not execute its program yet.
        async with asyncio.timeout(60):
            while {process.name for process in (await pods_of("app=web")).other_processes} != {"pause"}:
                await asyncio.sleep(0.1)
        both, front, back = [
            await pods_of(selector) for selector in ("app=web", "app=web,tier in (front)", "app,tier notin (front)")
        ]
        assert {process.name for process in both.other_processes} == {"pause"}
        assert len(both.group.pids) == 2 and len(front.group.pids) == len(back.group.pids) == 1
        assert {*front.group.pids, *back.group.pids} == set(both.group.pids)
        missed = (await pods_of("app=db")).group
        assert "none of 2 pods" in missed.why_not
        with pytest.raises(InvalidArgument, match="one of"), converted():
            await controller.GetNode(pb.GetNodeRequest(selector="app=web", pod="shop/web-0"))
