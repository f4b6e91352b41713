"""What a plan says beforehand: how much slower its targets get, and what will be missing after all its sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.outlook import expected_slowdown, further_sessions
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd

from .coverage_process import Coverage, result_of, wish
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, decoder_serving, with_rare


def test_the_slowdown_grows_with_the_trace_and_is_unknown_where_nobody_measured_it() -> None:
    assert expected_slowdown("kmod", 20e6, {"kmod": 0.001}) == pytest.approx(0.02)
    assert expected_slowdown("kmod", 0, {"kmod": 0.001}) == 0
    assert expected_slowdown("perf", 20e6, {"kmod": 0.001}) is None


def test_a_session_counts_by_its_length() -> None:
    assert further_sessions([100, 100], [100]) == 2
    assert further_sessions([1000], [100, 300]) == 5
    # Nothing is known of earlier ones: each is one.
    assert further_sessions([1000, 500], [0]) == further_sessions([1000, 500], []) == 2


async def planned(coverage: Coverage, wanted: coverage_pb2.CoverageRequest) -> coverage_pb2.Plan:
    request = coverage_pb2.PlanCoverageRequest(coverage=wanted, outlook=True)
    return (await coverage._call("PlanCoverage", request, coverage_pb2.PlanCoverageResponse)).plan


def profile(*, period_ms: int = 100, rounds: int = 0) -> coverage_pb2.CoverageRequest:
    found = wish(name="redis-server", period_ms=period_ms)
    found.purpose = coverage_pb2.PURPOSE_PROFILING
    if rounds:
        found.rounds.limit = rounds
    return found


async def test_a_plan_tells_what_is_missing_after_all_its_sessions_and_how_slow_they_make_it(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    node, decoder = Controller("n1"), Decoder()  # type: ignore[abstract]
    for number in range(1, 5):
        decoder.tables.add(f"nodes/n1/sessions/s{number}", with_rare(number))
    coverage = Coverage(mesh_config, etcd, tmp_path / "a.log", "--coverage-slowdowns", '{"vpt": 0.002}')
    async with controller_serving(mesh_config, node), decoder_serving(mesh_config, decoder):
        await coverage.start()
        try:
            once = await planned(coverage, profile())
            longer = await planned(coverage, profile(period_ms=1000))
            rounds = await planned(coverage, profile(rounds=6))
            (session,) = once.nodes
            assert session.expected_slowdown == pytest.approx(0.002 * session.expected_bytes_per_second / 1e6) != 0
            # Chao2 of eight of one session and none of two, of four.
            missing = [plan.coverage[0].missing_after for plan in (once, rounds, longer)]
            stays = 1 - 8 / (4 * 21 + 8)
            assert missing == pytest.approx([21 * stays**1, 21 * stays**6, 21 * stays**10])
            # What is measured replaces the guess.
            operation = await coverage.begin(pids=(13,))
            await coverage.until(operation.name, "RECORDING")
            node.go_on.set()
            result_of(await coverage.wait(operation.name))
            measured = (await coverage.plan(pids=(13,))).nodes[0]
            assert measured.expected_bytes_per_second != session.expected_bytes_per_second
        finally:
            await coverage.channels.close()
            await coverage.stop()
