"""Which controllers are asked for a target, and what finding them costs."""

from __future__ import annotations

import pytest
from permille.coverage.domain.target import Target
from permille.coverage.service.inventory import ControllerInventory
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import service_key
from permille.mesh.errors import NotFound
from permille.mesh.etcd import Etcd, KeyValue

from .served_controller import Controller, controller_serving


class CountedEtcd(Etcd):
    """Counts the keys that it reads."""

    keys = 0

    async def get(self, key: str) -> KeyValue | None:
        self.keys += 1
        return await super().get(key)

    async def prefix(
        self, prefix: str, *, limit: int = 0, before: str = "", newest_first: bool = False
    ) -> list[KeyValue]:
        found = await super().prefix(prefix, limit=limit, before=before, newest_first=newest_first)
        self.keys += len(found)
        return found


async def test_one_node_is_found_without_looking_at_the_others(mesh_config: MeshConfig) -> None:
    etcd = CountedEtcd(mesh_config.etcd)
    channels = Channels(mesh_config, etcd)
    inventory = ControllerInventory(etcd, channels, {})
    async with controller_serving(mesh_config, Controller("n1")):  # type: ignore[abstract]
        others = [service_key("controller", f"n1-{number}") for number in range(100)]
        for key in others:
            await etcd.put(key, b'{"address": "127.0.0.1:1"}')
        (node,) = (await inventory.nodes(Target(node="n1", process_name="gzip"))).nodes
        assert node.name == "n1"
        # Once to see that it is there, once to call it.
        assert etcd.keys == 2
        with pytest.raises(NotFound, match="no controller of node n2 is running") as unknown:
            await inventory.nodes(Target(node="n2", process_name="gzip"))
        assert "did you mean n1" in unknown.value.help
        for key in others:
            await etcd.delete(key)
    await channels.close()
    await etcd.close()
