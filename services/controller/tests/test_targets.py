"""Which processes a cgroup, a container and a pod mean, on the trees that runtimes and kubelets make."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.cgroup_tree import CgroupTree
from permille.controller.domain.targets import cgroup_folders
from permille.controller.domain.targets.container_names import Container, containers_of, pods_of
from permille.controller.domain.targets.group_members import LOOK_S, GroupMembers
from permille.controller.domain.targets.process_cgroups import is_within, parse
from permille.controller.domain.targets.resolution import Group, Resolved, Roots, resolve
from permille.mesh.errors import InvalidArgument

ID = "4f1c9a0b77de" + "0" * 52
OTHER = "4f1c9a0b77df" + "1" * 52
UID = "6e1c1b1e-58d5-4a06-b7cd-0a8d3f4d2a11"
STATIC_UID = "d3d0c1a9b5f24f0c8e7a6b5c4d3e2f10"
SLICE = "kubepods-burstable-pod" + UID.replace("-", "_") + ".slice"

POD_LAYOUTS = {
    "v1 or v2, cgroupfs, Burstable": f"/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, Guaranteed": f"/kubepods/pod{UID}/{ID}",
    "systemd, containerd": f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope",
    "systemd, CRI-O": f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope",
    "systemd, CRI-O, v2 with a cgroup of its own inside": f"/kubepods.slice/{SLICE}/crio-{ID}.scope/container",
    "systemd, cri-dockerd": f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/docker-{ID}.scope",
    "systemd, Guaranteed": f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
    "containerd with systemd, kubelet without": f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}",
    "a kubelet with a root of its own": f"/kubelet.slice/kubelet-kubepods.slice/kubelet-{SLICE}/crio-{ID}.scope",
}
CONTAINER_LAYOUTS = {
    "Docker, cgroupfs": f"/docker/{ID}",
    "Docker, systemd": f"/system.slice/docker-{ID}.scope",
    "Docker, with its own init inside": f"/docker/{ID}/init.scope",
    "containerd": f"/default/{ID}",
    "Podman": f"/machine.slice/libpod-{ID}.scope/container",
}


@pytest.mark.parametrize("path", POD_LAYOUTS.values(), ids=POD_LAYOUTS)
def test_the_container_and_the_pod_of_every_layout_are_read(path: str) -> None:
    assert containers_of(path) == (Container(ID, UID),)
    assert set(pods_of(path)) == {UID}


@pytest.mark.parametrize("path", CONTAINER_LAYOUTS.values(), ids=CONTAINER_LAYOUTS)
def test_a_container_without_a_pod_is_read(path: str) -> None:
    assert containers_of(path) == (Container(ID, ""),)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/system.slice/nginx.service",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/x/crio-conmon-{ID}.scope",
        f"/{ID[:40]}",
    ],
)
def test_what_is_no_container_is_none(path: str) -> None:
    assert containers_of(path) == ()


def test_a_static_pod_has_a_digest_for_a_uid() -> None:
    assert pods_of(f"/kubepods/besteffort/pod{STATIC_UID}/{ID}") == (STATIC_UID,)


def test_a_cluster_within_a_container_has_both() -> None:
    path = f"/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}"
    assert containers_of(path) == (Container(OTHER, ""), Container(ID, UID))


def test_what_lies_outside_of_a_cgroup_namespace_is_seen_from_the_root() -> None:
    (seen,) = parse(f"0::/../../kubepods/pod{UID}/{ID}", CgroupTree())
    assert (seen.hierarchy, seen.path) == ("", f"/kubepods/pod{UID}/{ID}")


@given(st.lists(st.sampled_from(["a", "ab", "b"]), max_size=4), st.lists(st.sampled_from(["a", "ab", "b"]), max_size=4))
def test_one_cgroup_is_within_another_when_its_components_begin_with_the_others(
    one: list[str], other: list[str]
) -> None:
    assert is_within("/" + "/".join(one), "/" + "/".join(other)) == (one[: len(other)] == other)


class Tree:
    """A /proc, a /sys/fs/cgroup and a /var/log/pods."""

    def __init__(self, folder: Path, *, v2: bool) -> None:
        self.roots = Roots(folder / "proc", folder / "cgroup", folder / "pods")
        self.roots.proc.mkdir()
        (self.roots.proc / "self").mkdir()
        self.mount = self.roots.cgroups if v2 else self.roots.cgroups / "cpu,cpuacct"
        self.mount.mkdir(parents=True)
        (self.mount / ("cgroup.controllers" if v2 else "cgroup.procs")).touch()
        self.v2 = v2

    def process(self, pid: int, path: str) -> None:
        (self.roots.proc / str(pid)).mkdir()
        self.moved(pid, path)

    def moved(self, pid: int, path: str) -> None:
        first = "0::" if self.v2 else "3:cpu,cpuacct:"
        rest = "" if self.v2 else "2:pids:/\n0::/\n"
        (self.roots.proc / str(pid) / "cgroup").write_text(f"{first}{path}\n{rest}")
        (self.mount / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def log_of(self, namespace: str, name: str, uid: str) -> None:
        (self.roots.pod_logs / f"{namespace}_{name}_{uid}").mkdir(parents=True)

    def resolve(self, **group: str) -> Resolved:
        return resolve(Group(**group), self.roots)


@pytest.fixture(params=[False, True], ids=["cgroup v1", "cgroup v2"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Tree:
    tree = Tree(tmp_path, v2=request.param)
    for pid, path in enumerate(
        ["/", "/", POD_LAYOUTS["systemd, containerd"], f"/kubepods/besteffort/pod{STATIC_UID}/{OTHER}"]
    ):
        tree.process(pid + 1, path)
    tree.process(7, "/system.slice/nginx.service")
    tree.process(8, "/system.slice/nginx.service/worker")
    return tree


def test_a_cgroup_means_the_processes_in_it_and_below(tree: Tree) -> None:
    for name in (
        "/system.slice/nginx.service",
        "system.slice/nginx.service/",
        str(tree.mount / "system.slice/nginx.service"),
    ):
        assert tree.resolve(cgroup=name) == Resolved((7, 8), "/system.slice/nginx.service")
    assert tree.resolve(cgroup="/system.slice/nginx.service/worker").pids == (8,)


def test_an_unknown_cgroup_brings_the_nearest_and_an_empty_one_says_so(tree: Tree) -> None:
    unknown = tree.resolve(cgroup="/system.slice/ngin.service")
    assert unknown.pids == () and unknown.why_not == "there is no cgroup /system.slice/ngin.service"
    assert unknown.nearest[0] == "/system.slice/nginx.service"
    (tree.mount / "idle.slice").mkdir()
    assert tree.resolve(cgroup="/idle.slice").why_not == "the cgroup /idle.slice has no process now"


@pytest.mark.parametrize("name", ["/", "//.", "/a/../b"])
def test_the_whole_machine_and_ways_around_are_refused(tree: Tree, name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        tree.resolve(cgroup=name)
    assert refused.value.reason == "CGROUP_INVALID"


def test_a_cgroup_named_by_its_hierarchy_counts_there_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path, v2=False)
    tree.process(5, "/a")
    (tree.roots.cgroups / "pids" / "a").mkdir(parents=True)
    assert cgroup_folders.named(str(tree.roots.cgroups / "pids/a"), tree.roots.cgroups).hierarchy == "pids"
    assert tree.resolve(cgroup=str(tree.mount / "a")).pids == (5,)
    assert tree.resolve(cgroup=str(tree.roots.cgroups / "pids/a")).why_not == "the cgroup /a has no process now"


def test_a_container_is_found_by_its_id_or_a_prefix_that_no_other_has(tree: Tree) -> None:
    for name in (ID, ID[:12], f"containerd://{ID}", ID[:13].upper()):
        assert tree.resolve(container_id=name) == Resolved((3,), ID)


def test_a_prefix_of_several_ids_names_them(tree: Tree) -> None:
    tree.process(9, f"/docker/{ID[:13]}{'f' * 51}")
    ambiguous = tree.resolve(container_id=ID[:12])
    assert ambiguous.pids == () and ambiguous.why_not == f"2 containers' ids begin with {ID[:12]}"
    assert set(ambiguous.nearest) == {ID, ID[:13] + "f" * 51}


def test_an_unknown_container_brings_the_likest_with_their_pods(tree: Tree) -> None:
    tree.log_of("shop", "cart-0", UID)
    unknown = tree.resolve(container_id=ID[:11] + "0")
    assert unknown.pids == () and "no process is in a container" in unknown.why_not
    assert unknown.nearest == (f"{ID[:12]} (pod shop/cart-0)", f"{OTHER[:12]} (pod {STATIC_UID})")


@pytest.mark.parametrize("name", ["4f1c9a0b77d", "nginx", ID + "0", "4f1c9a0b77dz"])
def test_what_cannot_be_a_container_is_refused(tree: Tree, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is no container id"):
        tree.resolve(container_id=name)


def test_a_pod_is_found_by_its_uid_and_by_its_name_where_a_kubelet_keeps_logs(tree: Tree) -> None:
    assert tree.resolve(pod=UID) == Resolved((3,), UID)
    assert tree.resolve(pod=STATIC_UID) == Resolved((4,), STATIC_UID)
    without_logs = tree.resolve(pod="shop/cart-0")
    assert "name its UID" in without_logs.why_not and UID in without_logs.nearest
    tree.log_of("shop", "cart-0", "00000000-0000-4000-8000-000000000000")
    assert tree.resolve(pod="shop/cart-0").why_not == "no process of the pod shop/cart-0 is here now"
    tree.log_of("shop", "cart-0", UID)
    assert tree.resolve(pod="shop/cart-0") == Resolved((3,), UID)


def test_an_unknown_pod_brings_the_nearest_that_runs(tree: Tree) -> None:
    tree.log_of("shop", "cart-0", UID)
    tree.log_of("shop", "cart-1", "00000000-0000-4000-8000-000000000000")
    assert tree.resolve(pod="shop/cart-2").nearest == ("shop/cart-0",)


@pytest.mark.parametrize("name", ["cart-0", "Shop/cart", "a/b/c", "shop/"])
def test_what_cannot_be_a_pod_is_refused(tree: Tree, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is no pod"):
        tree.resolve(pod=name)


def test_a_target_has_one_name(tree: Tree) -> None:
    for group in ({"cgroup": "/a", "pod": UID}, {}):
        with pytest.raises(InvalidArgument) as refused:
            tree.resolve(**group)
        assert refused.value.reason == "TARGET_AMBIGUOUS"


def test_processes_that_come_later_are_in_the_group_and_those_that_went_are_not(tree: Tree) -> None:
    path = f"/docker/{secrets.token_hex(32)}"
    name = path.rpartition("/")[2][:12]
    assert tree.resolve(container_id=name).pids == ()
    tree.process(20, path)
    tree.process(21, path)
    assert tree.resolve(container_id=name).pids == (20, 21)
    (tree.roots.proc / "20" / "cgroup").unlink()
    assert tree.resolve(container_id=name).pids == (21,)


class Joining:
    """Members of a group of the tree, with a clock that only goes when it is told to."""

    def __init__(self, tree: Tree, pids: list[int], **group: str) -> None:
        self.now = 0.0
        self._members = GroupMembers(Group(**group), pids, tree.roots, lambda: self.now)

    def newcomers(self) -> list[int]:
        self.now += LOOK_S
        return self._members.newcomers()


def test_who_joins_a_cgroup_is_told_once(tree: Tree) -> None:
    tree.process(50, "/web.slice/a")
    joining = Joining(tree, [50], cgroup="/web.slice")
    assert joining.newcomers() == []
    tree.process(51, "/web.slice/b")
    tree.process(52, "/elsewhere")
    assert joining.newcomers() == [51]
    assert joining.newcomers() == []
    tree.moved(52, "/web.slice")
    assert joining.newcomers() == [52]


def test_who_was_there_before_the_recording_began_and_is_no_target_joins_at_once(tree: Tree) -> None:
    tree.process(50, "/web.slice")
    tree.process(51, "/web.slice")
    members = GroupMembers(Group(cgroup="/web.slice"), [50], tree.roots, lambda: 0.0)
    assert members.newcomers() == [51]


def test_the_group_is_looked_at_no_more_often_than_it_has_to_be(tree: Tree) -> None:
    tree.process(50, "/web.slice")
    ticks = iter([0.0, 0.0, 0.01, LOOK_S, 0.49, 0.51, 0.52])
    members = GroupMembers(Group(cgroup="/web.slice"), [50], tree.roots, lambda: next(ticks))
    assert members.newcomers() == []
    tree.process(51, "/web.slice")
    # The look took 10 ms, so that the next one is due in half a second.
    assert members.newcomers() == members.newcomers() == []
    assert members.newcomers() == [51]


def test_who_joins_a_container_or_a_pod_is_told_by_where_its_processes_are(tree: Tree) -> None:
    path = POD_LAYOUTS["systemd, containerd"]
    tree.process(50, path)
    pods = path.rpartition("/")[0]
    by_container = Joining(tree, [50], container_id=ID[:12])
    by_name = Joining(tree, [50], pod="default/web-0")
    by_labels = Joining(tree, [50], selector="app=web")
    for joining in (by_container, by_name, by_labels):
        joining.newcomers()
    tree.process(51, path)
    tree.process(52, f"{pods}/cri-containerd-{OTHER}.scope")
    tree.process(53, f"/kubepods/besteffort/pod{STATIC_UID}/{OTHER}")
    assert by_container.newcomers() == [51]
    assert by_name.newcomers() == by_labels.newcomers() == [51, 52]


def test_nobody_joins_processes_that_were_named_one_by_one(tree: Tree) -> None:
    tree.process(50, "/web.slice")
    joining = Joining(tree, [50])
    tree.process(51, "/web.slice")
    assert joining.newcomers() == []
