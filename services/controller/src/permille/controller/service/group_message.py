"""What GetNode says about a cgroup, a container, a pod or a label selector."""

from __future__ import annotations

import asyncio

from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.targets import label_selector
from permille.controller.domain.targets.resolution import Group, Resolved, Roots, resolve
from permille.controller.service.container_runtime import ContainerRuntime, RuntimeSilentError
from permille.mesh.label_selector import parse


async def group_on_node(request: pb.GetNodeRequest, runtime: ContainerRuntime) -> pb.GroupOnNode | None:
    """None when none was asked for. Raises InvalidArgument for a name that cannot be."""
    group = Group(request.cgroup, request.container_id, request.pod, request.selector)
    if not group.given:
        return None
    group.require_one()
    found = await (selected(group.selector, runtime) if group.selector else asyncio.to_thread(resolve, group))
    return pb.GroupOnNode(pids=found.pids, found=found.found, why_not=found.why_not, nearest=found.nearest)


async def selected(selector: str, runtime: ContainerRuntime) -> Resolved:
    parse(selector)
    try:
        pods = await runtime.pods()
    except RuntimeSilentError as error:
        return Resolved(why_not=str(error))
    return await asyncio.to_thread(label_selector.by_selector, selector, pods, Roots())
