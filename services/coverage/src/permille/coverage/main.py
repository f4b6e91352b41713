"""The process of the coverage service."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.coverage.service.adaptive_rounds import AdaptiveRounds
from permille.coverage.service.callers import Callers
from permille.coverage.service.coverage_reader import CoverageReader
from permille.coverage.service.coverage_service import ACCESS, CoverageService
from permille.coverage.service.coverage_work import CoverageWork
from permille.coverage.service.decoding import Decodings
from permille.coverage.service.heavy_nodes import HeavyNodes
from permille.coverage.service.inventory import ControllerInventory
from permille.coverage.service.planner import Planner
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.recording import Recordings
from permille.coverage.service.round_judge import RoundJudge
from permille.coverage.service.session_paths import SessionPaths
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.session_sets import SessionSets
from permille.coverage.service.settings import CoverageSettings
from permille.coverage.service.stability_store import StabilityStore
from permille.coverage.service.table_reader import TableReader
from permille.mesh.config import MeshConfig
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.server import ServerContext, run

# Of a caller who waits for an answer.
QUESTION_PATIENCE_S = 5.0


class CoverageConfig(MeshConfig):
    """The configuration of this process."""

    coverage: CoverageSettings = CoverageSettings()


async def setup(context: ServerContext) -> None:
    """Puts the service together."""
    settings = CoverageSettings()
    if isinstance(context.config, CoverageConfig):
        settings = context.config.coverage
    policy, history = settings.policy(), settings.history_sessions
    rates, stability = RateStore(context.etcd), StabilityStore(context.etcd)
    questions = TableReader(context.channels, patience_s=QUESTION_PATIENCE_S)
    asked = SessionProfiles(questions)
    working = SessionProfiles(TableReader(context.channels, patience_s=settings.patience_s))

    def judge(profiles: SessionProfiles) -> RoundJudge:
        return RoundJudge(profiles, settings.worth(), history=history, longest_ms=settings.longest_period_ms)

    work = CoverageWork(
        Recordings(context.channels, patience_s=settings.patience_s),
        Decodings(context.channels, patience_s=settings.patience_s),
        rates,
        rounds=AdaptiveRounds(judge(working)),
        nodes=HeavyNodes(context.operations),
        profiles=working,
        history=history,
        patience_s=settings.patience_s,
    )
    runner = OperationRunner(context.operations, coverage_pb2.StartCoverageRequest, work)
    inventory = ControllerInventory(context.etcd, context.channels, settings.zones)
    planner = Planner(inventory, rates, stability, asked, policy, history=history, slowdowns=settings.slowdowns)
    callers = Callers(context.operations, policy)
    sets = SessionSets(context.operations, asked, history=history)
    reader = CoverageReader(sets, asked, SessionPaths(questions), judge(asked))
    context.add(
        coverage_pb2_grpc.add_CoverageServiceServicer_to_server,
        CoverageService(
            context.operations, callers=callers, planner=planner, runner=runner, reader=reader, stability=stability
        ),
        coverage_pb2.DESCRIPTOR.services_by_name["CoverageService"],
        ACCESS,
    )
    context.spawn(runner.run())


def main() -> None:
    """The command `permille-coverage`."""
    raise SystemExit(run("coverage", CoverageConfig, setup))


if __name__ == "__main__":
    main()
