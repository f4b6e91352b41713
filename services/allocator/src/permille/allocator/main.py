"""The process `permille-allocator`."""

from __future__ import annotations

from permille.allocator.service.allocator_service import AllocatorService
from permille.api.allocator.v1 import allocator_pb2, allocator_pb2_grpc
from permille.mesh.auth import VIEW
from permille.mesh.config import MeshConfig
from permille.mesh.memory import keep_little
from permille.mesh.server import ServerContext, run


async def setup(context: ServerContext) -> None:
    """Adds the API to a server; there is no state to prepare."""
    context.add(
        allocator_pb2_grpc.add_AllocatorServiceServicer_to_server,
        AllocatorService(),
        allocator_pb2.DESCRIPTOR.services_by_name["AllocatorService"],
        {"PlanBuffers": VIEW, "LearnRate": VIEW},
    )


def main() -> None:
    """Serves until it is asked to end."""
    keep_little()
    raise SystemExit(run("allocator", MeshConfig, setup))


if __name__ == "__main__":
    main()
