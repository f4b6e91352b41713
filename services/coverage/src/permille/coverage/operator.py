"""The process of the Kubernetes operator: `permille-operator`."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import structlog
from permille.coverage.service.kubernetes.cluster import Cluster, configured
from permille.coverage.service.kubernetes.handlers import registry, settings
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.request_work import RequestWork
from permille.coverage.service.kubernetes.user_rights import UserRights
from permille.coverage.service.kubernetes.watched import Watched
from permille.coverage.service.sampling_settings import SamplingSettings
from permille.mesh.config import MeshConfig
from permille.mesh.election import Election
from permille.mesh.errors import Aborted
from permille.mesh.server import ServerContext, run
from pydantic import ConfigDict, Field

_log = structlog.get_logger(__name__)


class OperatorSettings(SamplingSettings):
    """The table `[operator]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    patience_s: float = Field(
        default=60.0, gt=0, le=3600, description="How long one call waits for coverage before it is begun anew."
    )
    min_gain: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Another round must be expected to bring so many new functions for each MiB of trace; "
        "0: coverage's own setting.",
    )
    min_gain_per_core_second: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="And so many for each second of a core; 0: coverage's own setting.",
    )
    node_patience_s: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        description="How long a pod waits for a controller on its node, as in an upgrade.",
    )


class OperatorConfig(MeshConfig):
    """The configuration of this process."""

    operator: OperatorSettings = OperatorSettings()


async def setup(context: ServerContext) -> None:
    """Looks for the API server and waits to lead. Raises `FailedPrecondition` when no API server is known."""
    configuration = await configured()
    chosen = context.config.operator if isinstance(context.config, OperatorConfig) else OperatorSettings()

    async def lead() -> None:
        election = Election(context.etcd, context.lease, "operator", context.instance)
        await election.won()
        _log.info("leads")
        cluster = Cluster(configuration)
        rights = UserRights(cluster, context.etcd)
        watched = Watched(cluster)
        operations = Operations(context.channels, patience_s=chosen.patience_s)
        work = RequestWork(
            cluster,
            rights,
            watched,
            operations,
            sampling=chosen.sampling(),
            min_gain=chosen.min_gain,
            min_gain_per_core_second=chosen.min_gain_per_core_second,
            node_patience_s=chosen.node_patience_s,
        )
        # Without one kopf looks for the user's name, and the user of the image has none.
        identity: Any = context.instance
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry(work), settings=settings(), identity=identity, standalone=True, clusterwide=True
            )
        )
        lost = asyncio.create_task(election.lost())
        watching = [asyncio.create_task(one.run()) for one in (watched, rights)]
        try:
            await asyncio.wait({operator, lost, *watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in watching:
                if task.done():
                    task.result()
            if not operator.done():
                raise Aborted("another operator leads", reason="LEADERSHIP_LOST", help="it is started again by itself")
            operator.result()
            # kopf has seen SIGTERM or SIGINT.
            context.end(0)
        finally:
            for task in (operator, lost, *watching):
                task.cancel()
            await asyncio.gather(operator, lost, *watching, return_exceptions=True)
            await cluster.close()

    context.spawn(lead())


def main() -> None:
    """The command `permille-operator`."""
    raise SystemExit(run("operator", OperatorConfig, setup))


if __name__ == "__main__":
    main()
