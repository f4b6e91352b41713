"""`permille trace --cgroup`, `--container`, `--pod`: a real process in a real cgroup."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Mesh, running

MOUNT = Path("/sys/fs/cgroup")
# Of all v1 hierarchies the one that does nothing to whoever is in it.
ROOT = MOUNT if (MOUNT / "cgroup.controllers").exists() else MOUNT / "freezer"
PLAIN = "plain"
PROGRAM = "permille-pod"


@dataclass(frozen=True)
class Pod:
    """As a kubelet with the cgroupfs driver makes it."""

    uid: str
    container: str
    path: str

    @property
    def folder(self) -> Path:
        return ROOT / self.path.lstrip("/")


@pytest.fixture(scope="module")
def contained(mesh: Mesh, busy_program: Path) -> Iterator[subprocess.Popen[str]]:
    """The busy program under a name of its own."""
    program = busy_program.with_name(PROGRAM)
    shutil.copy(busy_program, program)
    with running(mesh, program) as process:
        yield process


@pytest.fixture(scope="module")
def pod(contained: subprocess.Popen[str]) -> Iterator[Pod]:
    """A pod of one container with the program in it."""
    uid, container = str(uuid.uuid4()), secrets.token_hex(32)
    pod = Pod(uid, container, f"/permille-test-{secrets.token_hex(4)}/kubepods/pod{uid}/{container}")
    if os.geteuid() != 0:
        pytest.skip("cgroups can only be made by root")
    try:
        pod.folder.mkdir(parents=True)
        before = home_of(contained.pid)
        (pod.folder / "cgroup.procs").write_text(str(contained.pid))
    except OSError as error:
        removed(pod.folder)
        pytest.skip(f"no cgroup can be made at {ROOT}: {error}")
    yield pod
    (before / "cgroup.procs").write_text(str(contained.pid))
    removed(pod.folder.parent / PLAIN, pod.folder)


def home_of(pid: int) -> Path:
    """The cgroup that a process is in, of the hierarchy that the test uses."""
    name = "" if ROOT == MOUNT else ROOT.name
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (path,) = [path for _, hierarchy, path in (line.split(":", 2) for line in lines) if hierarchy == name]
    return ROOT / path.lstrip("/")


def removed(*leaves: Path) -> None:
    """Cgroups, and those above the last one. A cgroup is busy until the last process has left it."""
    folders = [*leaves, *(folder for folder in leaves[-1].parents if folder.is_relative_to(ROOT) and folder != ROOT)]
    while folders:
        try:
            folders[0].rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.05)
            continue
        folders.pop(0)


def pids(mesh: Mesh, *target: str) -> list[int]:
    (node,) = mesh.json("trace", *target, "--for", "20ms", "--dry-run")["plan"]["nodes"]
    found: list[int] = node["pids"]
    return found


def test_the_process_is_found_by_its_cgroup_its_container_and_its_pod(
    mesh: Mesh, contained: subprocess.Popen[str], pod: Pod
) -> None:
    assert pids(mesh, "--cgroup", str(pod.folder.parent)) == [contained.pid]
    assert pids(mesh, "--container", pod.container) == [contained.pid]
    assert pids(mesh, "--pod", pod.uid) == [contained.pid]


def test_coverage_takes_the_same_targets(mesh: Mesh, contained: subprocess.Popen[str], pod: Pod) -> None:
    for target in (("--cgroup", str(pod.folder.parent)), ("--container", pod.container), ("--pod", pod.uid)):
        choices = mesh.json("coverage", "plan", *target)["choices"]
        assert [(choice["pid"], choice["chosen"]) for choice in choices] == [(contained.pid, True)]
    failed = mesh.run("coverage", "start", "--selector", "app in web", code=None)
    assert failed.returncode != 0 and "app in web" in failed.stderr


def test_a_container_is_recorded(mesh: Mesh, pod: Pod) -> None:
    (session,) = mesh.json("trace", "--container", pod.container[:12], "--for", "100ms")["sessions"]
    mine = next(one for one in mesh.json("sessions", "--limit", "0")["sessions"] if one["name"] == session)
    assert (mine["state"], mine["target"]) == ("DECODED", PROGRAM)


def test_an_unknown_container_brings_the_likest(mesh: Mesh, pod: Pod) -> None:
    other = pod.container[:11] + ("0" if pod.container[11] != "0" else "1")
    failed = mesh.run("trace", "--container", other, "--dry-run", code=None)
    assert failed.returncode != 0
    assert f"no process is in a container {other}" in failed.stderr
    assert pod.container[:12] in failed.stderr and pod.uid in failed.stderr


def test_an_unknown_cgroup_brings_the_nearest(mesh: Mesh, pod: Pod) -> None:
    failed = mesh.run("trace", "--cgroup", pod.path.replace("kubepods", "kubepod"), "--dry-run", code=None)
    assert failed.returncode != 0 and "there is no cgroup" in failed.stderr and pod.path in failed.stderr


def test_a_cgroup_without_a_recordable_process_says_so(mesh: Mesh, pod: Pod) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    folder = pod.folder.parent / PLAIN
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(child.pid))
        failed = mesh.run("trace", "--cgroup", str(folder), "--dry-run", code=None)
    finally:
        child.kill()
        child.wait()
    assert failed.returncode != 0 and f"only {child.pid} (sleep)" in failed.stderr and "permille run" in failed.stderr


def test_a_target_is_named_in_one_way(mesh: Mesh) -> None:
    failed = mesh.run("trace", "--container", "4f1c9a0b77de", "--pod", "shop/cart-0", code=2)
    assert "--container and --pod exclude each other" in failed.stderr


def test_a_selector_that_cannot_be_is_refused_by_the_node(mesh: Mesh) -> None:
    failed = mesh.run("trace", "--selector", "app in web", "--dry-run", code=None)
    assert failed.returncode != 0 and "app in web" in failed.stderr and "app=web,tier!=front" in failed.stderr
