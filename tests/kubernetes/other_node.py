"""Further nodes of a mesh, with controllers and programs of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permille.mesh.discovery import resolve
from permille.mesh.etcd import Etcd

from tests.kubernetes.api_server import eventually
from tests.kubernetes.asked_mesh import AskedMesh, new_asked_mesh
from tests.processes import BIN, child


@contextmanager
def another_node(mesh: AskedMesh, node: str, state: Path) -> Iterator[AskedMesh]:
    """A node of the same mesh: a controller with programs of its own."""
    with without_controller(mesh, node, state) as other, controller(other):
        yield other


@contextmanager
def without_controller(mesh: AskedMesh, node: str, state: Path) -> Iterator[AskedMesh]:
    """A node of the same mesh with programs of its own."""
    etcd = (mesh.state / "etcd" / "endpoint").read_text().strip()
    other = new_asked_mesh(
        state, PERMILLE_NODE=node, PERMILLE_ETCD=etcd, PERMILLE_STORE=f"file://{mesh.state / 'store'}"
    )
    try:
        yield other
    finally:
        other.close()


@contextmanager
def controller(node: AskedMesh) -> Iterator[None]:
    """The controller of such a node, when it is known."""
    command = [str(BIN / "permille-controller"), "--state-dir", str(node.state)]
    with (
        (node.state / "controller.log").open("a") as log,
        child(command, env=node.environment, stdout=log, stderr=log),
    ):
        name = node.variables["PERMILLE_NODE"]
        eventually(lambda: name in asyncio.run(controllers(node)), f"the controller of {name}")
        yield


async def controllers(node: AskedMesh) -> set[str]:
    """The nodes whose controllers etcd knows."""
    etcd = Etcd([node.variables["PERMILLE_ETCD"]])
    try:
        return {endpoint.instance for endpoint in await resolve(etcd, "controller")}
    finally:
        await etcd.close()
