"""Cgroups, containers and pods: what the nodes found becomes one answer."""

from __future__ import annotations

import pytest
from permille.coverage.domain.node import GroupOnNode, Node, Process
from permille.coverage.domain.target import Target, match
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound

SHOP, SLEEP = Process(11, "shop"), Process(12, "sleep")
ABSENT = Node("n9", group=GroupOnNode(why_not="there is no cgroup /shop", nearest=("/shop.slice",)))


def node(name: str, found: str, *, pids: tuple[int, ...] = (11, 12)) -> Node:
    return Node(
        name, recordable=(SHOP, Process(13, "other")), others=(SLEEP,), group=GroupOnNode(frozenset(pids), found)
    )


def test_what_can_be_recorded_of_a_group_is_recorded_and_nothing_else_of_the_node() -> None:
    (found,) = match(Target(container_id="4f1c9a0b77de"), [node("n1", "4f1c9a0b77de00"), ABSENT])
    assert (found.node.name, found.processes) == ("n1", (SHOP,))


def test_a_cgroup_of_one_path_is_meant_on_every_node() -> None:
    found = match(Target(cgroup="/shop"), [node("n1", "/shop"), node("n2", "/shop")])
    assert [one.node.name for one in found] == ["n1", "n2"]


def test_a_prefix_that_two_nodes_know_in_full_differently_is_ambiguous() -> None:
    with pytest.raises(InvalidArgument, match="4f1c9a0b77de00 or 4f1c9a0b77de11") as refused:
        match(Target(container_id="4f1c9a0b77de"), [node("n1", "4f1c9a0b77de00"), node("n2", "4f1c9a0b77de11")])
    assert "--node" in refused.value.help


def test_a_group_that_nobody_has_brings_the_reasons_and_the_nearest_of_all_nodes() -> None:
    with pytest.raises(NotFound, match=r"^on n9 there is no cgroup /shop$") as refused:
        match(Target(cgroup="/shop"), [ABSENT])
    assert refused.value.help == "did you mean /shop.slice?"


def test_a_group_of_which_nothing_can_be_recorded_names_what_is_in_it() -> None:
    with pytest.raises(FailedPrecondition, match=r"only 12 \(sleep\)"):
        match(Target(pod="shop/cart-0"), [node("n1", "uid", pids=(12,))])


@pytest.mark.parametrize(
    "ways",
    [{"cgroup": "/a", "pod": "a/b"}, {"cgroup": "/a", "process_name": "a"}, {"container_id": "a", "pids": (1,)}],
)
def test_a_target_is_named_in_one_way(ways: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="several ways"):
        Target(**ways)  # type: ignore[arg-type]
