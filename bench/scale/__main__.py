"""What management costs at 10, 100 and 1,000 nodes, and how long a request takes to be recording everywhere.

Real etcd, allocator, coverage and decoder, one process each; the nodes are simulated (`node_agent.py`): real leases,
calls, streams and stored sessions, but no tracing. All of it shares this machine's cores, so latencies are those of a
machine that also is its own cluster. Requests that are only timed are cancelled as soon as they record; of the requests
on all nodes so many sessions are decoded as tell what one costs.

Each size begins with the same store: a commit to a table costs the more, the more sessions the table has. All sizes are
there side by side, and are asked for all their nodes in turns: growth is that between sizes of the same turn, so that a
machine that becomes slower does so for all of them.

PERMILLE_BENCH_NODES=10,100 chooses other sizes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from figures import Figure, medians, publish
from permille.controller.domain.session import State
from scale.cluster import Cluster, Work, spent
from scale.growth import growth, shares
from scale.node_agent import EVERYWHERE
from scale.requests import Requests, Stage
from workload import mesh, redis, traced

SIZES = tuple(int(size) for size in os.environ.get("PERMILLE_BENCH_NODES", "10,100,1000").split(","))
IDLE_S = 30.0
SINGLE = 100
AT_ONCE = 100
DECODED = 100
BEGUN = 10
TURNS = 3
PERIOD_MS = 500
SHORT_MS = 100
# Longer than it takes to begin a hundred recordings: none comes to its end before all have begun.
AT_ONCE_MS = 5000
# The same on a busy machine: they have to go on when their nodes die.
DYING_MS = 20_000
Part = Callable[[Cluster, Requests], Awaitable[dict[str, Figure]]]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="permille-bench-") as folder:
        session_id = recorded(folder)
        clusters = []
        for size in SIZES:
            state = Path(folder) / f"{size}-nodes"
            shutil.copytree(Path(folder) / "store", state / "store")
            clusters.append(Cluster(state, size, session_id))
        figures = asyncio.run(measured(clusters))
    publish("scale", figures)


def recorded(folder: str) -> str:
    """A small real session: what an idle redis-server does in a tenth of a second."""
    os.environ["PERMILLE_STATE_DIR"] = folder
    with mesh(), redis() as (server, _):
        return traced(server.pid, "100ms")


async def measured(clusters: Sequence[Cluster]) -> dict[str, Figure]:
    figures: dict[int, dict[str, Figure]] = {cluster.nodes: {} for cluster in clusters}
    begun = time.monotonic()

    async def add(part: Part, cluster: Cluster) -> dict[str, Figure]:
        found = await part(cluster, Requests(cluster))
        print(f"{cluster.nodes} nodes: {part.__name__}, {time.monotonic() - begun:.0f} s", flush=True)
        return found

    async with AsyncExitStack() as stack:
        for cluster in clusters:
            stack.push_async_callback(cluster.close)
            await cluster.start()
            for part in (idle, single, at_once):
                figures[cluster.nodes] |= await add(part, cluster)
        turns = [{cluster.nodes: await add(everywhere, cluster) for cluster in clusters} for _ in range(TURNS)]
        for cluster in clusters:
            nodes, found = cluster.nodes, figures[cluster.nodes]
            found |= medians([turn[nodes] for turn in turns])
            found |= await add(dying, cluster) | shares(found, nodes)
    named = {f"{nodes} nodes: {name}": figure for nodes, found in figures.items() for name, figure in found.items()}
    return named | medians([growth(turn) for turn in turns])


async def idle(cluster: Cluster, _: Requests) -> dict[str, Figure]:
    """After the storm of the start, nothing but leases."""
    await asyncio.sleep(5)
    before, puts, begun = cluster.costs(), await cluster.puts(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    after, elapsed = cluster.costs(), time.monotonic() - begun
    figures = {"idle, etcd's writes": Figure.of([(await cluster.puts() - puts) / elapsed], "keys/s")}
    base = after["idle server"].resident_mib
    cluster.idle_cores = {name: cpu_s / elapsed for name, cpu_s in spent(before, after).items()}
    for name, cores in cluster.idle_cores.items():
        millicores = Figure.of([cores * 1e3], "millicores", "goal: < 3" if name == "coverage" else "")
        figures[f"idle, {name}"] = millicores
        anchor = f"an idle server's: {base:.0f}; goal: <= 40 more" if name == "coverage" else ""
        figures[f"idle, {name}'s memory"] = Figure.of([after[name].resident_mib], "MiB", anchor)
    return figures


async def single(cluster: Cluster, requests: Requests) -> dict[str, Figure]:
    """One request after the other, each for a process of one node."""
    nodes = [number % cluster.nodes for number in range(SINGLE)]
    names = [await requests.timed(f"job-{node}", f"nodes/node-{node}", SHORT_MS) for node in nodes]
    return spread("one node, to recording", await requests.latencies_ms(names))


async def at_once(cluster: Cluster, requests: Requests) -> dict[str, Figure]:
    """A hundred requests at the same moment, on as many nodes as there are."""
    nodes = range(min(AT_ONCE, cluster.nodes))
    puts, begun = await cluster.puts(), time.monotonic()
    work = [requests.start(f"job-{node}", f"nodes/node-{node}", period_ms=AT_ONCE_MS) for node in nodes]
    operations = await asyncio.gather(*work)
    await asyncio.gather(*(requests.until(operation, Stage.RECORDING) for operation in operations))
    written = (await cluster.puts() - puts) / (time.monotonic() - begun)
    latencies = await requests.latencies_ms([operation.name for operation in operations])
    figures = spread(f"{len(nodes)} requests at once, to recording", latencies)
    await asyncio.gather(*map(requests.cancel, operations))
    await asyncio.gather(*map(requests.ended, operations))
    return figures | {f"{len(nodes)} requests at once, etcd's writes": Figure.of([written], "keys/s")}


async def everywhere(cluster: Cluster, requests: Requests) -> dict[str, Figure]:
    """Requests for a process that every node has: what they cost until all is stored, then what decoding costs.

    One after the other, until a hundred sessions are decoded at every size.
    """
    # Connections are made once and kept: at every size all of them are there before anything is counted.
    await requests.timed(EVERYWHERE, "", PERIOD_MS)
    # A request may have come to its end before it was cancelled.
    await requests.decoded()
    recording, decoding = Work(cluster.idle_cores), Work(cluster.idle_cores)
    latencies: list[float] = []
    last: list[float] = []
    written = 0.0
    for _ in range(max(1, DECODED // cluster.nodes)):
        before, puts = cluster.costs(), await cluster.puts()
        operation = await requests.start(EVERYWHERE, period_ms=PERIOD_MS)
        await requests.until(operation, Stage.DECODING)
        stored = cluster.costs()
        recording.add(before, stored, cluster.nodes)
        written += await cluster.puts() - puts
        memory_mib = stored["coverage"].resident_mib
        if cluster.nodes > DECODED:
            # Coverage has some decodes begun ahead of those that are worked on: from then on one begins as one ends.
            await requests.until_decoded(operation, BEGUN)
            stored = cluster.costs()
        count = await requests.until_decoded(operation, DECODED)
        decoding.add(stored, cluster.costs(), count)
        await requests.end(operation)
        require_all(cluster.nodes, found := await requests.latencies_ms([operation.name]))
        latencies += found
        last.append(max(found))
    number = recording.count // cluster.nodes
    figures = spread("all nodes, to recording", latencies)
    figures["all nodes, to recording, the last"] = Figure.of(last, "ms", f"of each request; {len(last)} requests")
    figures["all nodes, to stored"] = Figure.of([recording.elapsed_s / number], "s", f"{number} requests")
    figures["all nodes, etcd's writes"] = Figure.of([written / recording.elapsed_s], "keys/s")
    figures["all nodes, etcd's writes per node"] = Figure.of([written / recording.count], "keys")
    figures |= per_node("all nodes", recording)
    figures["all nodes, coverage's memory"] = Figure.of([memory_mib], "MiB")
    each_s = decoding.elapsed_s / decoding.count
    figures["decoding, one after the other"] = Figure.of([each_s], "s", f"{decoding.count} sessions, two at a time")
    return figures | per_node("decoding", decoding)


async def dying(cluster: Cluster, requests: Requests) -> dict[str, Figure]:
    """A hundred requests at once, and one for all nodes; a third of the nodes dies while they record."""
    nodes = range(min(AT_ONCE, cluster.nodes))
    work = [requests.start(f"job-{node}", f"nodes/node-{node}", period_ms=DYING_MS) for node in nodes]
    everything, *each = await asyncio.gather(requests.start(EVERYWHERE, period_ms=DYING_MS), *work)
    await asyncio.gather(*(requests.until(operation, Stage.RECORDING) for operation in (everything, *each)))
    require_all(cluster.nodes, await requests.sessions(everything))
    dead, begun = cluster.kill_a_third(), time.monotonic()
    await requests.until(everything, Stage.DECODING)
    stored = sum(session.state is State.STORED for session in await requests.sessions(everything))
    if cluster.nodes > DECODED:
        await requests.cancel(everything)
    ends = [await requests.ended(operation) for operation in each]
    await requests.end(everything)
    lived = sum(not operation.HasField("error") for operation in ends)
    alive = sum(number not in dead for number in nodes)
    return {
        "a third dies, nodes that died": Figure.of([len(dead)], "nodes"),
        "a third dies, all nodes, sessions stored": Figure.of([stored], "", f"{cluster.nodes - len(dead)} lived"),
        f"a third dies, {len(nodes)} requests, to a result": Figure.of(
            [lived], "", f"{alive} are for nodes that lived"
        ),
        "a third dies, to the end of all": Figure.of([time.monotonic() - begun], "s"),
    }


def require_all(nodes: int, sessions: Sequence[object]) -> None:
    """Raises where fewer nodes record than were asked to, as those do for which a quota has no room."""
    if len(sessions) != nodes:
        raise RuntimeError(f"{len(sessions)} sessions on {nodes} nodes")


def per_node(what: str, work: Work) -> dict[str, Figure]:
    """CPU of each service for each node; of the decoder its scheduler's alone, without the processes that decode."""
    return {
        # Less than nothing is the uncertainty of what it uses idle.
        f"{what}, {name} per node": Figure.of([max(0.0, cpu_s / work.count * 1e3)], "ms of CPU")
        for name, cpu_s in work.cpu_s.items()
        if name != "idle server"
    }


def spread(name: str, latencies: list[float]) -> dict[str, Figure]:
    ordered = sorted(latencies)
    return {
        f"{name}, p50": Figure.of([ordered[len(ordered) // 2]], "ms"),
        f"{name}, p99": Figure.of([ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]], "ms"),
    }


if __name__ == "__main__":
    main()
