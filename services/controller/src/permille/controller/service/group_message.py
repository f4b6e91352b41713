"""What GetNode says about a cgroup, a container or a pod."""

from __future__ import annotations

import asyncio

from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.targets.resolution import Group, resolve


async def group_on_node(request: pb.GetNodeRequest) -> pb.GroupOnNode | None:
    """None when none was asked for. Raises InvalidArgument for a name that cannot be."""
    group = Group(request.cgroup, request.container_id, request.pod)
    if not group.given:
        return None
    found = await asyncio.to_thread(resolve, group)
    return pb.GroupOnNode(pids=found.pids, found=found.found, why_not=found.why_not, nearest=found.nearest)
