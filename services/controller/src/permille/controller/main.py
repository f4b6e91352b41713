"""The process `permille-controller`: one on each node."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from permille.api.controller.v1 import controller_pb2, controller_pb2_grpc
from permille.controller.domain.backends import Backends
from permille.controller.domain.journal import Journal
from permille.controller.domain.kmod_backend import KmodBackend
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.perf_backend import PerfBackend
from permille.controller.domain.session_budget import SessionBudget
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.domain.vpt_backend import VptBackend
from permille.controller.service.container_runtime import ContainerRuntime
from permille.controller.service.controller_service import ControllerService
from permille.controller.service.core_rates import CoreRates
from permille.controller.service.node_description import NodeDescription
from permille.controller.service.session_planner import SessionPlanner
from permille.controller.service.session_registry import SessionRegistry
from permille.controller.service.session_runner import Parts
from permille.controller.service.sessions import Sessions
from permille.mesh.auth import INTERNAL, OPERATE_LOCAL, VIEW
from permille.mesh.config import MeshConfig
from permille.mesh.memory import keep_little
from permille.mesh.server import ServerContext, run
from pydantic import BaseModel, ConfigDict, Field

PLUGIN = Path(__file__).with_name("vpt") / "libpermille-vpt.so"
ACCESS = {
    "PlanSession": VIEW,
    "StartSession": INTERNAL,
    "StopSession": OPERATE_LOCAL,
    "GetSession": VIEW,
    "ListSessions": VIEW,
    "WatchSession": VIEW,
    "GetNode": VIEW,
}


def default_vpt_dir() -> Path:
    return Path(f"/dev/shm/permille-{os.geteuid()}/vpt")  # noqa: S108 - private to this user, made with mode 0700


class ControllerSettings(BaseModel):
    """The table `[controller]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="Memory for the trace buffers of one session; unset: 500 MiB where cores record, 256 MiB with vpt.",
    )
    max_period_ms: int = Field(default=60_000, ge=1, description="The longest recording that may be asked for.")
    spool_budget_bytes: int = Field(
        default=4 << 30, ge=0, description="Recordings on disk that wait for the object store; more are refused."
    )
    cpu_share: float = Field(
        default=0.035, gt=0, le=1, description="Of one core, for packing what was recorded; 1: as fast as possible."
    )
    vpt_dir: Path = Field(default_factory=default_vpt_dir, description="Where recordable processes are found.")
    backend: Literal["auto", "kmod", "perf", "vpt"] = Field(
        default="auto", description="What records: auto takes the best that works for the processes."
    )
    zone: str = Field(default="", description="Where this node is: a profile's sample is spread over zones.")
    runtime_socket: Path | None = Field(
        default=None, description="The container runtime's CRI socket, for --selector; unset: containerd's or CRI-O's."
    )
    switches: bool = Field(default=True, description="Record when threads come onto a core and leave it (needs root).")


class ControllerConfig(MeshConfig):
    """The mesh's settings and the controller's own."""

    controller: ControllerSettings = ControllerSettings()


async def setup(context: ServerContext) -> None:
    """Finds what an earlier controller left, and serves."""
    config = context.config
    if not isinstance(config, ControllerConfig):
        raise TypeError("the controller needs a ControllerConfig")
    settings = config.controller
    registry = SessionRegistry(context.etcd, context.lease, config.node)
    backends = Backends([VptBackend(settings.vpt_dir), KmodBackend(), PerfBackend()], settings.backend)
    switches = SwitchRecorder(enabled=settings.switches)
    rates = CoreRates(context.etcd, context.channels)
    budget = SessionBudget(settings.budget_bytes)
    parts = Parts(
        registry=registry,
        journal=Journal(config.state_dir / "controller" / config.node / "sessions"),
        backends=backends,
        switches=switches,
        rates=rates,
        binaries=MappedBinaries(),
        planner=SessionPlanner(context.channels, rates, switches),
        store=context.store,
        cpu_share=settings.cpu_share,
    )
    sessions = Sessions(
        parts,
        config.node,
        budget=budget,
        max_period_ms=settings.max_period_ms,
        spool_budget_bytes=settings.spool_budget_bytes,
    )
    description = NodeDescription(
        config.node,
        zone=settings.zone,
        plugin=PLUGIN,
        vpt_dir=settings.vpt_dir,
        budget=budget,
        backends=backends,
        registry=registry,
        switches=switches,
        etcd=context.etcd,
        store=context.store,
        store_url=config.store_url,
    )
    context.add(
        controller_pb2_grpc.add_ControllerServiceServicer_to_server,
        ControllerService(config.node, sessions, description, ContainerRuntime(settings.runtime_socket)),
        controller_pb2.DESCRIPTOR.services_by_name["ControllerService"],
        ACCESS,
    )
    await registry.start(json.dumps({"node": config.node, "cores": os.cpu_count()}).encode())
    context.on_shutdown(registry.close)
    context.on_shutdown(switches.close)
    context.on_shutdown(sessions.close)
    sessions.resume()
    context.spawn(sessions.collect_garbage())
    # Which the first session should not wait for.
    context.spawn(switches.warm_up())


def main() -> None:
    """Serves until it is asked to end."""
    keep_little()
    raise SystemExit(run("controller", ControllerConfig, setup, instance=lambda config: str(config.node)))


if __name__ == "__main__":
    main()
