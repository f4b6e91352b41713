"""Two requests for one process that were both planned before either recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Cancelled
from permille.mesh.etcd import Etcd
from permille.mesh.operations import operation_error

from .coverage_process import Coverage, limited, result_of, wish
from .served_controller import Controller, RecordedByOthers, Session, controller_serving
from .served_decoder import Decoder


@pytest.fixture
async def busy(mesh_config: MeshConfig) -> AsyncIterator[RecordedByOthers]:
    node = RecordedByOthers("n2")  # type: ignore[abstract]
    async with controller_serving(mesh_config, node):
        yield node


async def anomaly(coverage: Coverage, pid: int) -> str:
    meant = wish(pids=(pid,), node="nodes/n2")
    meant.purpose = coverage_pb2.PURPOSE_ANOMALY
    start = coverage_pb2.StartCoverageRequest(coverage=meant)
    return (await coverage._call("StartCoverage", start, coverage_pb2.StartCoverageResponse)).operation.name


async def test_an_anomaly_waits_until_the_others_recording_is_over(
    coverage: Coverage, busy: RecordedByOthers, decoder: Decoder
) -> None:
    name = await anomaly(coverage, 13)
    assert not (await coverage.until(name, "WAITING")).done
    busy.free.set()
    assert list(result_of(await coverage.wait(name)).sessions) == list(busy.sessions)


async def test_one_process_on_demand_is_refused_at_once(
    coverage: Coverage, busy: RecordedByOthers, decoder: Decoder
) -> None:
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,), node="nodes/n2")).name))
    assert error is not None and error.reason == "ALREADY_TRACED"


async def test_one_busy_process_of_several_nodes_is_waited_for_and_stops_nobody(
    coverage: Coverage, controller: Controller, busy: RecordedByOthers, decoder: Decoder
) -> None:
    controller.go_on.set()
    operation = await coverage.begin(name="gzip")
    assert not (await coverage.until(operation.name, "WAITING")).done
    busy.free.set()
    result = result_of(await coverage.wait(operation.name))
    assert set(result.sessions) == {*controller.sessions, *busy.sessions}
    assert (len(result.sessions), list(result.failures), controller.stops) == (2, [], [])


@pytest.mark.usefixtures("decoder")
async def test_after_the_patience_the_node_is_told_and_what_others_recorded_is_the_result(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, busy: RecordedByOthers
) -> None:
    controller.go_on.set()
    async with limited(mesh_config, etcd, tmp_path, "--coverage-patience-s", "1") as coverage:
        result = result_of(await coverage.wait((await coverage.begin(name="gzip")).name))
        assert list(result.sessions) == list(controller.sessions)
        assert [(one.node, one.reason) for one in result.failures] == [("nodes/n2", "ALREADY_TRACED")]
        alone = operation_error(await coverage.wait(await anomaly(coverage, 13)))
        assert alone is not None and alone.reason == "ALREADY_TRACED"


async def test_a_cancel_while_it_waits_keeps_what_has_begun(
    coverage: Coverage, controller: Controller, busy: RecordedByOthers, decoder: Decoder
) -> None:
    async def cancelled(name: str) -> Cancelled:
        assert not (await coverage.until(name, "WAITING")).done
        await coverage.cancel(name)
        error = operation_error(await coverage.wait(name))
        assert isinstance(error, Cancelled)
        return error

    assert "nothing was recorded" in (await cancelled(await anomaly(coverage, 13))).message
    kept = await cancelled((await coverage.begin(name="gzip")).name)
    (session,) = controller.sessions.values()
    assert (kept.metadata, session.state) == ({"sessions": session.name}, Session.STATE_STORED)
