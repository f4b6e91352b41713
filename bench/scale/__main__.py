"""What management costs at 10, 100 and 1,000 nodes, and how long a request takes to be recording everywhere.

Real etcd, allocator, coverage and decoder, one process each; the nodes are simulated (`node_agent.py`): real leases,
calls, streams and stored sessions, but no tracing. All of it shares this machine's cores, so latencies are those of a
machine that also is its own cluster. PERMILLE_BENCH_NODES=10,100 chooses other sizes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from figures import Figure, publish
from permille.api.coverage.v1 import coverage_pb2 as pb
from permille.api.coverage.v1 import coverage_pb2_grpc as rpc
from permille.api.operation.v1 import operation_pb2
from permille.controller.domain.session import Session, from_json
from permille.mesh.operations import operation_id
from scale.cluster import Cluster
from scale.node_agent import EVERYWHERE
from workload import mesh, redis, traced

SIZES = tuple(int(size) for size in os.environ.get("PERMILLE_BENCH_NODES", "10,100,1000").split(","))
IDLE_S = 30.0
SINGLE = 30
AT_ONCE = 100
PERIOD_MS = 500


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="permille-bench-") as folder:
        session_id = recorded(folder)
        figures: dict[str, Figure] = {}
        for size in SIZES:
            figures |= asyncio.run(measured(Cluster(Path(folder), size, session_id)))
    publish("scale", figures)


def recorded(folder: str) -> str:
    """A small real session: what an idle redis-server does in a tenth of a second."""
    os.environ["PERMILLE_STATE_DIR"] = folder
    with mesh(), redis() as (server, _):
        return traced(server.pid, "100ms")


async def measured(cluster: Cluster) -> dict[str, Figure]:
    try:
        begun = time.monotonic()
        await cluster.start()
        print(f"{cluster.nodes} nodes are there after {time.monotonic() - begun:.1f} s", flush=True)
        figures = await idle(cluster)
        figures |= await single(cluster)
        figures |= await at_once(cluster)
        figures |= await everywhere(cluster)
        figures |= await dying(cluster)
        return {f"{cluster.nodes} nodes: {name}": figure for name, figure in figures.items()}
    finally:
        await cluster.close()


async def idle(cluster: Cluster) -> dict[str, Figure]:
    """After the storm of the start, nothing but leases."""
    await asyncio.sleep(5)
    before, puts, begun = cluster.costs(), await cluster.puts(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    after, elapsed = cluster.costs(), time.monotonic() - begun
    figures = {"idle, etcd's writes": Figure.of([(await cluster.puts() - puts) / elapsed], "keys/s")}
    base = after["idle server"].resident_mib
    for name, cost in after.items():
        cores = (cost.cpu_s - before[name].cpu_s) / elapsed
        figures[f"idle, {name}"] = Figure.of([cores * 1e3], "millicores", "goal: < 3" if name == "coverage" else "")
        anchor = f"an idle server's: {base:.0f}; goal: <= 40 more" if name == "coverage" else ""
        figures[f"idle, {name}'s memory"] = Figure.of([cost.resident_mib], "MiB", anchor)
    return figures


async def single(cluster: Cluster) -> dict[str, Figure]:
    """One request after the other, each for a process of one node."""
    latencies = []
    for number in range(SINGLE):
        node = number % cluster.nodes
        asked = time.time_ns()
        (session,) = await sessions_of(cluster, await request(cluster, f"job-{node}", f"nodes/node-{node}"))
        latencies.append((session.start_ns - asked) / 1e6)
    return {"one node, to recording": Figure.of(latencies, "ms")}


async def at_once(cluster: Cluster) -> dict[str, Figure]:
    """A hundred requests at the same moment, on as many nodes as there are."""
    asked = time.time_ns()
    nodes = [number % cluster.nodes for number in range(min(AT_ONCE, cluster.nodes))]
    work = [request(cluster, f"job-{node}", f"nodes/node-{node}") for node in nodes]
    sessions = [await sessions_of(cluster, operation) for operation in await asyncio.gather(*work)]
    latencies = [(session.start_ns - asked) / 1e6 for found in sessions for session in found]
    return spread(f"{len(nodes)} requests at once, to recording", latencies)


async def everywhere(cluster: Cluster) -> dict[str, Figure]:
    """One request for a process that every node has."""
    before, puts = cluster.costs(), await cluster.puts()
    asked, begun = time.time_ns(), time.monotonic()
    sessions = await sessions_of(cluster, await request(cluster, EVERYWHERE))
    elapsed, after = time.monotonic() - begun, cluster.costs()
    if len(sessions) != cluster.nodes:
        raise RuntimeError(f"{len(sessions)} sessions on {cluster.nodes} nodes")
    figures = spread("all nodes, to recording", [(session.start_ns - asked) / 1e6 for session in sessions])
    figures["all nodes, to decoded"] = Figure.of([elapsed], "s")
    figures["all nodes, etcd's writes per node"] = Figure.of([(await cluster.puts() - puts) / cluster.nodes], "keys")
    for name in ("coverage", "allocator", "etcd"):
        spent = (after[name].cpu_s - before[name].cpu_s) / cluster.nodes * 1e3
        figures[f"all nodes, {name} per node"] = Figure.of([spent], "ms of CPU")
    figures["all nodes, coverage's memory"] = Figure.of([after["coverage"].resident_mib], "MiB")
    return figures


async def dying(cluster: Cluster) -> dict[str, Figure]:
    """One request for every node, a third of which dies while it records."""
    stub = rpc.CoverageServiceStub(await cluster.channels.to("coverage"))
    started = (await stub.StartCoverage(start(EVERYWHERE, "", period_ms=5000), timeout=120)).operation
    await recording(cluster, started.name)
    dead, begun = cluster.kill_a_third(), time.monotonic()
    operation = await ended(cluster, started)
    kept = await sessions_of(cluster, operation)
    stored = [session for session in kept if session.state == "STORED"]
    print(f"{dead} of {cluster.nodes} nodes died: {operation.error.message or 'no error'}", flush=True)
    return {
        "a third dies, died": Figure.of([dead], "nodes"),
        "a third dies, sessions stored": Figure.of([len(stored)], "sessions", f"{cluster.nodes - dead} nodes lived"),
        "a third dies, to the end": Figure.of([time.monotonic() - begun], "s"),
    }


def spread(name: str, latencies: list[float]) -> dict[str, Figure]:
    ordered = sorted(latencies)
    return {
        f"{name}, p50": Figure.of([ordered[len(ordered) // 2]], "ms"),
        f"{name}, p99": Figure.of([ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]], "ms"),
    }


def start(process: str, node: str, *, period_ms: int = PERIOD_MS) -> pb.StartCoverageRequest:
    target = pb.Target(node=node, process_name=process)
    return pb.StartCoverageRequest(
        coverage=pb.CoverageRequest(target=target, purpose=pb.PURPOSE_ANOMALY, period_ms=period_ms)
    )


async def request(cluster: Cluster, process: str, node: str = "") -> operation_pb2.Operation:
    """Starts and waits until everything is recorded, stored and decoded. Raises when that fails."""
    stub = rpc.CoverageServiceStub(await cluster.channels.to("coverage"))
    operation = (await stub.StartCoverage(start(process, node), timeout=120)).operation
    operation = await ended(cluster, operation)
    if operation.HasField("error"):
        raise RuntimeError(operation.error.message)
    return operation


async def ended(cluster: Cluster, operation: operation_pb2.Operation) -> operation_pb2.Operation:
    stub = rpc.CoverageServiceStub(await cluster.channels.to("coverage"))
    while not operation.done:
        wait = operation_pb2.WaitOperationRequest(name=operation.name, timeout_ms=20_000)
        operation = (await stub.WaitOperation(wait, timeout=60)).operation
    return operation


async def recording(cluster: Cluster, name: str) -> None:
    """Returns when every session of an operation has begun."""
    stub = rpc.CoverageServiceStub(await cluster.channels.to("coverage"))
    while True:
        answer = await stub.GetOperation(operation_pb2.GetOperationRequest(name=name), timeout=60)
        if answer.operation.progress.stage == "RECORDING" or answer.operation.done:
            return
        await asyncio.sleep(0.05)


async def sessions_of(cluster: Cluster, operation: operation_pb2.Operation) -> list[Session]:
    """What etcd knows of an operation's sessions, whose request ids begin with its own."""
    mark = f"{operation_id(operation.name)}-"
    found = [key for key in await cluster.etcd.prefix("/permille/v1/nodes/") if "/sessions/" in key.key]
    sessions = [from_json(key.value) for key in found]
    return [session for session in sessions if session.request_id.startswith(mark)]


if __name__ == "__main__":
    main()
