"""The process of the coverage service."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.coverage.domain.period import LONGEST_MS, SHORTEST_MS
from permille.coverage.service.coverage_reader import CoverageReader
from permille.coverage.service.coverage_service import ACCESS, CoverageService
from permille.coverage.service.coverage_work import CoverageWork
from permille.coverage.service.decoding import Decodings
from permille.coverage.service.planner import Planner
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.recording import Recordings
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.session_sets import SessionSets
from permille.coverage.service.table_reader import TableReader
from permille.mesh.config import MeshConfig
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.server import ServerContext, run
from pydantic import BaseModel, ConfigDict, Field

# Of a caller who waits for an answer.
QUESTION_PATIENCE_S = 5.0


class CoverageSettings(BaseModel):
    """The table `[coverage]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    longest_period_ms: int = Field(
        default=LONGEST_MS, ge=SHORTEST_MS, le=LONGEST_MS, description="The longest recording that may be asked for."
    )
    patience_s: float = Field(
        default=120.0, gt=0, le=3600, description="How long an operation waits for a service that is away."
    )
    history_sessions: int = Field(
        default=20, ge=2, le=100, description="So many of a program's newest sessions say what has been seen of it."
    )


class CoverageConfig(MeshConfig):
    """The configuration of this process."""

    coverage: CoverageSettings = CoverageSettings()


async def setup(context: ServerContext) -> None:
    """Puts the service together."""
    settings = CoverageSettings()
    if isinstance(context.config, CoverageConfig):
        settings = context.config.coverage
    rates = RateStore(context.etcd)
    work = CoverageWork(
        Recordings(context.channels, patience_s=settings.patience_s),
        Decodings(context.channels, patience_s=settings.patience_s),
        rates,
    )
    profiles = SessionProfiles(TableReader(context.channels, patience_s=QUESTION_PATIENCE_S))
    sets = SessionSets(context.operations, profiles, history=settings.history_sessions)
    runner = OperationRunner(context.operations, coverage_pb2.StartCoverageRequest, work)
    planner = Planner(context.etcd, context.channels, rates, longest_ms=settings.longest_period_ms)
    context.add(
        coverage_pb2_grpc.add_CoverageServiceServicer_to_server,
        CoverageService(context.operations, planner, runner, CoverageReader(sets, profiles)),
        coverage_pb2.DESCRIPTOR.services_by_name["CoverageService"],
        ACCESS,
    )
    context.spawn(runner.run())


def main() -> None:
    """The command `permille-coverage`."""
    raise SystemExit(run("coverage", CoverageConfig, setup))


if __name__ == "__main__":
    main()
