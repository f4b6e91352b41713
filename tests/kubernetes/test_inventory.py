"""The inventory by watches on a real API server: what changes arrives, and after a gap nothing is missing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from kubernetes_asyncio import client
from permille.coverage.domain.kubernetes.instances import Container, instances
from permille.coverage.domain.kubernetes.labels import label_selector
from permille.coverage.domain.target import Target
from permille.coverage.service.kubernetes.cluster import Cluster
from permille.coverage.service.kubernetes.pod_inventory import PodInventory
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.errors import InvalidArgument, NotFound, Unavailable

from tests.kubernetes.api_server import Answer, ApiServer, Object, User
from tests.kubernetes.pods import ZONE, made_node, made_pod, started
from tests.processes import PATIENCE_S

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
    versions = [("changes", "Deployment/web sha256:12"), ("comes", version), ("stays", version)]
    expected = [(name, where, "west", version) for name, version in versions]
    # Pods and nodes are watched apart: the zone comes before or after.
    await until(watched, namespace, lambda now: [(*one[:3], one[4]) for one in now] == expected)
    # And the watch goes on.
    gone(admin, namespace, "stays")
    await until(watched, namespace, lambda now: [one[0] for one in now] == ["changes", "comes"])


SELECTORS: list[Object] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web", "tier": "back"}},
    {"matchLabels": {"canary": ""}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "cache"]}]},
    {"matchExpressions": [{"key": "canary", "operator": "In", "values": ["", "no"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}, {"key": "canary", "operator": "Exists"}]},
    {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]},
]
# What nodes are asked for by their users, as kubectl is.
LINES = ["app==web,tier!=back", "app in(web , db), !canary", "tier notin (front,back)", "! tier", "in", "notin in (in)"]
NO_LINES = ["app in web", "app=web,", "!app=web", "a b", "app in (web", "-a=b", "app=a=b"]


async def test_a_selector_means_the_pods_that_it_means_to_the_api_server(
    watched: Watched, admin: User, namespace: str
) -> None:
    where = made_node(admin, "east")
    made_pod(admin, namespace, "plain", node=where)
    made_pod(admin, namespace, "front", node=where, tier="front")
    made_pod(admin, namespace, "back", node=where, tier="back", canary="no")
    made_pod(admin, namespace, "db", node=where, app="db", canary="")
    await until(watched, namespace, lambda found: len(found) == 3)

    def told(line: str) -> Answer:
        return admin.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(line)}")

    for line in [*map(label_selector, SELECTORS), *LINES]:
        answer = told(line)
        assert answer.status == 200, answer
        meant = {one["metadata"]["name"] for one in answer.body["items"]}
        assert await selected(watched, namespace, line) == meant, line
    for line in NO_LINES:
        assert told(line).status == 400, line
        with pytest.raises(InvalidArgument):
            await selected(watched, namespace, line)


async def selected(watched: Watched, namespace: str, line: str) -> set[str]:
    try:
        found = await PodInventory(watched, namespace).nodes(Target(selector=line))
    except NotFound:
        return set()
    return {one.process.pod for one in instances(found) if isinstance(one.process, Container)}


async def test_whoever_may_not_watch_is_told(api_server: ApiServer, admin: User, namespace: str) -> None:
    async with watching(api_server, "token-of-alice", ready_s=0.1) as watched:
        async with asyncio.timeout(PATIENCE_S):
            while "orbidden" not in watched.pods.trouble:
                await asyncio.sleep(0.05)
        with pytest.raises(Unavailable, match=r"[Ff]orbidden") as refused:
            await PodInventory(watched, namespace).nodes(Target(pod=f"{namespace}/a"))
    assert refused.value.reason == "INVENTORY_UNAVAILABLE"
