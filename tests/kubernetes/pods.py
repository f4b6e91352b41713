"""Pods of this machine, as a kubelet with containerd has them."""

from __future__ import annotations

import errno
import itertools
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubernetes.api_server import Object, User

ZONE = "topology.kubernetes.io/zone"
_number = itertools.count()

MOUNT = Path("/sys/fs/cgroup")
# Of all v1 hierarchies the one that does nothing to whoever is in it.
CGROUPS = MOUNT if (MOUNT / "cgroup.controllers").exists() else MOUNT / "freezer"


def made_node(admin: User, zone: str) -> str:
    """A node that only the API server knows; its name."""
    name = f"node-{next(_number)}"
    admin.made({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone}}})
    return name


def made_pod(
    admin: User, namespace: str, name: str, *, node: str, revision: str = "5d4f", image: str = "", **labels: str
) -> None:
    """A running pod of the Deployment `web` that only the API server knows."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{revision}", "uid": "u", "controller": True}
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"app": "web", "pod-template-hash": revision, **labels},
        "ownerReferences": [owner],
    }
    spec = {"nodeName": node, "containers": [{"name": "web", "image": "web"}]}
    admin.made({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    started(admin, namespace, name, image)


def started(admin: User, namespace: str, name: str, image: str = "", container: str = "") -> None:
    """The pod's container runs."""
    status: Object = {
        "name": "web",
        "image": "web",
        "imageID": image,
        "ready": True,
        "restartCount": 0,
        "containerID": f"containerd://{container or secrets.token_hex(32)}",
        "state": {"running": {}},
    }
    body = {"status": {"phase": "Running", "containerStatuses": [status]}}
    assert admin.patch("Pod", namespace, name, body, part="/status").status == 200


@contextmanager
def running_pod(admin: User, namespace: str, name: str, *, app: str, node: str, pid: int) -> Iterator[str]:
    """A pod as a kubelet of this node would report it, with a process in its container; its name."""
    container = secrets.token_hex(32)
    made = admin.made(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}]},
        }
    )
    started(admin, namespace, name, container=container)
    with within_cgroup(pid, made["metadata"]["uid"], container):
        yield name


@contextmanager
def within_cgroup(pid: int, pod_uid: str, container: str) -> Iterator[None]:
    """Puts a process where a kubelet with the cgroupfs driver and containerd have the container's processes."""
    root = CGROUPS / f"permille-test-{secrets.token_hex(4)}"
    folder = root / "kubepods" / f"pod{pod_uid}" / container
    hierarchy = "" if CGROUPS == MOUNT else CGROUPS.name
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    (before,) = [path for _, controllers, path in lines if controllers == hierarchy]
    try:
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        pytest.skip(f"no cgroup can be made at {CGROUPS}: {error}")
    yield
    (CGROUPS / before.lstrip("/") / "cgroup.procs").write_text(str(pid))
    for leaf in (folder, folder.parent, folder.parent.parent, root):
        removed(leaf)


def removed(folder: Path) -> None:
    """A cgroup is busy until the last process has left it."""
    while True:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.05)
        else:
            return
