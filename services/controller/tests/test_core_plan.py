"""Plans by cores: of real processes through a real allocator, and what they are told of their node."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.node_use import core_times
from permille.controller.domain.node_use.core_observations import CoreObservation, CoreWritten, observations
from permille.controller.domain.node_use.core_times import CoreTime
from permille.controller.domain.node_use.use_sample import UseSample, others_shares, own_shares
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.domain.switches.switch_records import IN, OUT, SwitchRecord
from permille.controller.service.buffer_planner import plan_cores
from permille.controller.service.core_rates import CoreRates, binary_of
from permille.controller.service.core_target import Confines, confines, core_target
from permille.mesh.channels import Channels
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from permille.mesh.interceptor import from_rpc_error

MIB = 1 << 20
MS = 1_000_000
BUSY = "print(flush=True)\nwhile True: sum(range(1000))"


@pytest.fixture
def busy_process() -> Iterator[int]:
    """A process that computes on the last core that this one may use, and nowhere else."""
    last = max(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    os.sched_setaffinity(process.pid, {last})
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
async def channels(node: Any) -> AsyncIterator[Channels]:
    channels = Channels(node.config, node.etcd)
    yield channels
    await channels.close()


def samples(*moments: tuple[int, dict[int, tuple[int, int]], dict[int, CoreTime]]) -> list[UseSample]:
    return [UseSample(ms * MS, threads, cores) for ms, threads, cores in moments]


TWO_SLICES = samples(
    (0, {7: (100 * MS, 0)}, {0: CoreTime(0, 0), 1: CoreTime(0, 0)}),
    (50, {7: (125 * MS, 0), 8: (5 * MS, 1)}, {0: CoreTime(4, 5), 1: CoreTime(1, 5)}),
    (100, {7: (125 * MS, 0), 8: (55 * MS, 1)}, {0: CoreTime(8, 10), 1: CoreTime(6, 10)}),
)


def test_a_thread_counts_for_its_core_and_what_is_left_belongs_to_others() -> None:
    own = own_shares(TWO_SLICES)
    assert own == {0: (0.5, 0.0), 1: (0.1, 1.0)}
    assert others_shares(TWO_SLICES, own) == {0: pytest.approx(0.55), 1: pytest.approx(0.05)}


def test_switch_records_say_more_than_samples_of_the_cores_that_they_name() -> None:
    confined = Confines(frozenset({0, 1}), frozenset({1}), threads=2, quota=math.inf)
    records = [SwitchRecord(20 * MS, 0, 7, 8, IN), SwitchRecord(60 * MS, 0, 7, 8, OUT)]
    target = core_target(confined, TWO_SLICES, records, seed=1)
    shares = {use.core: list(use.target_shares) for use in target.cores}
    assert shares == {0: [pytest.approx(0.6), pytest.approx(0.2)], 1: [0.1, 1.0]}
    assert [use.core for use in target.cores if use.current] == [1]
    assert (target.slice_ms, target.threads, target.quota_cores) == (50, 2, 0)


def test_a_real_process_is_confined_to_its_affinity(busy_process: int) -> None:
    found = confines([busy_process], core_times.read())
    assert found.allowed == found.current == {max(os.sched_getaffinity(0))}
    assert found.threads == 1 and found.quota > 0


def test_processes_that_are_gone_are_named() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with pytest.raises(NotFound, match=str(gone.pid)):
        confines([gone.pid], [0])


async def test_a_bound_process_gets_its_core_and_the_plan_says_why(channels: Channels, busy_process: int) -> None:
    core = max(os.sched_getaffinity(0))
    plan = await plan_cores(channels, [busy_process], budget_bytes=64 * MIB, period_ms=500)
    assert set(plan.buffers) == set(plan.reasons) == {core}
    assert 4 * MIB <= plan.buffers[core] <= plan.budget_bytes <= 64 * MIB
    if (os.cpu_count() or 1) > 1:
        assert "CPU set" in plan.reasons[core]


async def test_a_free_process_gets_the_core_that_it_uses_and_every_other_core_has_a_reason(
    channels: Channels, tmp_path: Any
) -> None:
    switches = SwitchRecorder()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            plan = await plan_cores(channels, [process.pid], budget_bytes=500 * MIB, period_ms=500, switches=switches)
        finally:
            process.kill()
            await switches.close()
    allowed = confines([os.getpid()], core_times.read()).allowed
    assert plan.buffers and set(plan.buffers) | set(plan.left_out) == allowed
    assert not set(plan.buffers) & set(plan.left_out)
    assert all("the target" in why or "sampled" in why for why in plan.reasons.values())
    assert plan.expected_bytes > 0 and sum(plan.buffers.values()) <= plan.budget_bytes


async def test_a_budget_below_the_smallest_buffer_is_refused_with_the_smallest_budget(
    channels: Channels, busy_process: int
) -> None:
    with pytest.raises(ResourceExhausted) as refused:
        await plan_cores(channels, [busy_process], budget_bytes=MIB, period_ms=500)
    assert refused.value.metadata["smallest_budget_bytes"] == str(4 * MIB)
    smaller = await plan_cores(channels, [busy_process], budget_bytes=MIB, period_ms=500, min_buffer_bytes=64 << 10)
    assert all(64 << 10 <= size <= MIB for size in smaller.buffers.values())


async def test_a_session_that_was_not_begun_says_how_it_would_divide_its_memory_by_core(
    node: Any, busy_process: int
) -> None:
    request = pb.PlanSessionRequest(pids=[busy_process], period_ms=500, budget_bytes=64 * MIB, unit=pb.BUFFER_UNIT_CORE)
    controller = await node.controller()
    plan = await controller.PlanSession(request)
    (traced,) = [buffer for buffer in plan.buffers if buffer.size_bytes]
    assert traced.unit == max(os.sched_getaffinity(0)) and traced.reason
    assert (plan.unit, plan.budget_bytes, plan.reserve) == (pb.BUFFER_UNIT_CORE, 64 * MIB, 0)
    request.unit = pb.BUFFER_UNIT_THREAD
    by_thread = await controller.PlanSession(request)
    assert by_thread.unit == pb.BUFFER_UNIT_THREAD
    assert [buffer.unit for buffer in by_thread.buffers] == [busy_process] and by_thread.reserve > 0


async def test_what_nobody_specifies_is_planned_as_it_would_be_recorded(
    node: Any, target: subprocess.Popen[bytes], busy_process: int
) -> None:
    controller = await node.controller()
    plan = await controller.PlanSession(pb.PlanSessionRequest(pids=[target.pid], period_ms=300))
    session = await node.trace(target.pid)
    assert (session.backend, plan.unit) == (pb.BACKEND_VPT, pb.BUFFER_UNIT_THREAD)
    assert plan.budget_bytes == session.budget_bytes
    assert {buffer.unit for buffer in plan.buffers} == {
        int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir()
    }
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await controller.PlanSession(pb.PlanSessionRequest(pids=[busy_process], period_ms=300))
    with pytest.raises(FailedPrecondition) as not_begun:
        await node.begin(busy_process)
    assert from_rpc_error(refused.value).reason == not_begun.value.reason == "NOT_RECORDABLE"


async def test_a_dry_run_knows_what_earlier_sessions_wrote(node: Any, channels: Channels, busy_process: int) -> None:
    controller = await node.controller()
    request = pb.PlanSessionRequest(
        pids=[busy_process], period_ms=1000, budget_bytes=500 * MIB, unit=pb.BUFFER_UNIT_CORE, backend=pb.BACKEND_KMOD
    )
    assumed = await controller.PlanSession(request)
    seen = [CoreObservation(0, 100.0, 2 * MIB, full=False)]
    await CoreRates(node.etcd, channels).learn("kmod", await binary_of(busy_process), seen)
    known = await controller.PlanSession(request)
    largest = [max(buffer.size_bytes for buffer in plan.buffers) for plan in (known, assumed)]
    assert largest[0] <= 24 * MIB < largest[1]
    request.unit = pb.BUFFER_UNIT_THREAD
    with pytest.raises(grpc.aio.AioRpcError, match="kmod has no such buffers"):
        await controller.PlanSession(request)


async def test_a_plan_without_a_meaning_is_refused(node: Any) -> None:
    controller = await node.controller()
    for request, field in (
        (pb.PlanSessionRequest(period_ms=500), "pids"),
        (pb.PlanSessionRequest(pids=[1]), "period_ms"),
        (pb.PlanSessionRequest(pids=[1], period_ms=500, unit=7), "unit"),  # type: ignore[arg-type]
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await controller.PlanSession(request)
        error = from_rpc_error(refused.value)
        assert isinstance(error, InvalidArgument) and error.metadata["field"] == field


async def test_what_a_binary_wrote_is_remembered_and_sizes_the_next_plan(
    channels: Channels, node: Any, busy_process: int
) -> None:
    rates = CoreRates(node.etcd, channels)
    binary = await binary_of(busy_process)
    assert binary.startswith("binaries/") and await rates.of("kmod", binary) is None
    assert await rates.learn("kmod", binary, [CoreObservation(0, 0.0, 0, full=False)]) is None
    first = await rates.learn("kmod", binary, [CoreObservation(0, 100.0, 2 * MIB, full=False)])
    assert first is not None and first.bytes_per_busy_second == pytest.approx(20 * MIB)
    learned = await rates.of("kmod", binary)
    assert learned == first and await rates.of("perf", binary) is None
    assumed, known = [
        await plan_cores(channels, [busy_process], budget_bytes=500 * MIB, period_ms=1000, learned=rate)
        for rate in (None, learned)
    ]
    # 256 MiB/s are assumed of whoever is unknown; nothing could fill more than 20 MiB/s and its spread.
    assert max(known.buffers.values()) <= 24 * MIB < max(assumed.buffers.values())


async def test_a_binary_that_is_gone_has_no_name() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert await binary_of(gone.pid) == ""


def test_a_session_is_observed_core_by_core_and_without_records_not_at_all() -> None:
    records = [
        SwitchRecord(900, 0, 7, 7, IN),
        SwitchRecord(3000, 0, 7, 7, OUT),
        SwitchRecord(3500, 1, 7, 7, IN),
    ]
    written = {0: CoreWritten(4000, full=False), 1: CoreWritten(9000, full=True), 2: CoreWritten(5, full=False)}
    assert observations(written, records, 1000, 5000, ticks_per_ms=100) == [
        CoreObservation(0, 20.0, 4000, full=False),
        CoreObservation(1, 15.0, 9000, full=True),
    ]
