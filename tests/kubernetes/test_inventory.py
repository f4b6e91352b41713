"""The inventory by watches on a real API server: what changes arrives, and after a gap nothing is missing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes_asyncio import client
from permille.coverage.domain.kubernetes.instances import Container, instances
from permille.coverage.domain.target import Target
from permille.coverage.service.kubernetes.cluster import Cluster
from permille.coverage.service.kubernetes.pod_inventory import PodInventory
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.errors import NotFound, Unavailable

from tests.conftest import PATIENCE_S
from tests.kubernetes.api_server import ApiServer, User
from tests.kubernetes.pods import ZONE, made_node, made_pod, started

pytestmark = pytest.mark.slow
_number = itertools.count()
Places = list[tuple[str, str, str, str, str]]


@asynccontextmanager
async def watching(server: ApiServer, token: str, **options: float) -> AsyncIterator[Watched]:
    configuration = client.Configuration(host=server.url)
    configuration.ssl_ca_cert = str(server.ca)
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    cluster = Cluster(configuration)
    watched = Watched(cluster, **options)
    task = asyncio.create_task(watched.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await cluster.close()


@pytest.fixture
async def watched(api_server: ApiServer) -> AsyncIterator[Watched]:
    """With the rights that the chart gives the operator, and no more."""
    async with watching(api_server, api_server.service_account("permille", "permille-operator")) as running:
        yield running


@pytest.fixture
def namespace(admin: User) -> str:
    """One of this test's own."""
    name = f"inventory-{next(_number)}"
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def gone(admin: User, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"
    assert admin.call("DELETE", path).status == 200


async def places(watched: Watched, namespace: str) -> Places:
    """Pod, node, zone, owner and version of what is there."""
    try:
        found = await PodInventory(watched, namespace).nodes(Target(selector="app=web"))
    except NotFound:
        return []
    return sorted(
        (one.process.pod, one.node.name, one.node.zone, one.process.name, one.process.version)
        for one in instances(found)
        if isinstance(one.process, Container)
    )


async def until(watched: Watched, namespace: str, right: Callable[[Places], bool]) -> Places:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            news = watched.news
            try:
                found = await places(watched, namespace)
                if right(found):
                    return found
            except Unavailable:
                continue
            await news.wait()


async def test_pods_nodes_zones_owners_and_versions_arrive_as_they_change(
    watched: Watched, admin: User, namespace: str
) -> None:
    first = made_node(admin, "east")
    made_pod(admin, namespace, "a", node=first)
    expected = ("a", first, "east", "Deployment/web", "Deployment/web 5d4f")
    assert await until(watched, namespace, lambda found: len(found) == 1) == [expected]
    # A replica of another version on a node that nobody knew.
    second = made_node(admin, "west")
    made_pod(admin, namespace, "b", node=second, revision="6e5a", image="r.example.org/web@sha256:12")
    other = ("b", second, "west", "Deployment/web", "Deployment/web sha256:12")
    assert await until(watched, namespace, lambda found: len(found) == 2) == [expected, other]
    admin.patch("Node", "", second, {"metadata": {"labels": {ZONE: "north"}}})
    await until(watched, namespace, lambda found: [one[2] for one in found] == ["east", "north"])
    gone(admin, namespace, "a")
    await until(watched, namespace, lambda found: [one[0] for one in found] == ["b"])


@pytest.mark.parametrize("gap", ["short", "forgotten"])
async def test_across_a_gap_nothing_is_missed(
    watched: Watched, api_server: ApiServer, admin: User, namespace: str, gap: str
) -> None:
    where = made_node(admin, "east")
    for name in ("stays", "goes", "changes"):
        made_pod(admin, namespace, name, node=where)
    await until(watched, namespace, lambda found: len(found) == 3)

    def change(user: User) -> None:
        gone(user, namespace, "goes")
        started(user, namespace, "changes", "r.example.org/web@sha256:12")
        made_pod(user, namespace, "comes", node=where)
        user.patch("Node", "", where, {"metadata": {"labels": {ZONE: "west"}}})

    # In this thread: with the one that started it the server would end.
    if gap == "forgotten":
        # etcd has forgotten the changes when the server is back: the watch is refused, and all is listed anew.
        with api_server.elsewhere() as other:
            change(other)
    else:
        api_server.kill()
        api_server.start()
        change(admin)
    version = "Deployment/web 5d4f"
    expected = [("changes", "Deployment/web sha256:12"), ("comes", version), ("stays", version)]
    found = await until(watched, namespace, lambda now: [(one[0], one[4]) for one in now] == expected)
    assert {(one[1], one[2]) for one in found} == {(where, "west")}
    # And the watch goes on.
    gone(admin, namespace, "stays")
    await until(watched, namespace, lambda now: [one[0] for one in now] == ["changes", "comes"])


async def test_whoever_may_not_watch_is_told(api_server: ApiServer, admin: User, namespace: str) -> None:
    async with watching(api_server, "token-of-alice", ready_s=0.1) as watched:
        async with asyncio.timeout(PATIENCE_S):
            while "orbidden" not in watched.pods.trouble:
                await asyncio.sleep(0.05)
        with pytest.raises(Unavailable, match=r"[Ff]orbidden") as refused:
            await PodInventory(watched, namespace).nodes(Target(pod=f"{namespace}/a"))
    assert refused.value.reason == "INVENTORY_UNAVAILABLE"
