"""Three replicas, killed and stalled at random until everything is done: each step had its effect once.

Who answers does so late, so that processes die between an effect and its being known, and a stalled process goes on
when another one has its operations. What etcd was told meanwhile is followed (`History`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.decoder.v1 import decoder_pb2
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Code, PermilleError
from permille.mesh.etcd import Etcd
from permille.mesh.operation_names import operation_id
from permille.mesh.operation_runner import Job

from .coverage_process import Coverage, Operation, profile_of, result_of, wish
from .etcd_history import History
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, decoder_serving

REPLICAS, REQUESTS, ROUNDS = 3, 30, 3
# Every third request goes by rounds, every third is of a program on both nodes, the others are of one process.
ROUND_TARGETS = [f"profiled-{number}" for number in range(REQUESTS // 3)]
SPREAD_TARGETS = [f"spread-{number}" for number in range(REQUESTS // 3)]
SINGLE_PIDS = range(5000, 5000 + REQUESTS // 3)
WANTED_SESSIONS = REQUESTS // 3 * (ROUNDS + 2 + 1)
# Thirty on two nodes would wait for each other most of the time.
MANY_AT_ONCE = ("--coverage-heavy-bytes-per-second", "1e12")
# What a recording, a decode, or an answer about one takes at most; and how long a replica lives.
LONGEST_S, LONGEST_ANSWER_S, LONGEST_LIFE_S = 1.0, 0.5, 6.0
# A lease has ended after two seconds; what is short of the calls' deadlines is no failure of who is called.
SHORTEST_STALL_S, LONGEST_STALL_S = 3.0, 8.0


class SlowController(Controller):
    """Recordings of any length up to a second, of which the answer tells late."""

    def __init__(self, node: str, chance: random.Random) -> None:
        super().__init__(node)
        self.go_on.set()
        self._chance = chance

    async def StartSession(  # noqa: N802 - as gRPC names it
        self, request: controller_pb2.StartSessionRequest, context: Any
    ) -> controller_pb2.StartSessionResponse:
        answer = await super().StartSession(request, context)
        await asyncio.sleep(self._chance.uniform(0, LONGEST_ANSWER_S))
        return answer

    async def _run(self, session: controller_pb2.Session) -> None:
        await asyncio.sleep(self._chance.uniform(0, LONGEST_S))
        await super()._run(session)


class SlowDecoder(Decoder):
    """Decodes of any length up to a second."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.ran = self._called
        self._chance = chance

    async def work(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        await asyncio.sleep(self._chance.uniform(0, LONGEST_S))
        return await super().work(job)

    @staticmethod
    def _called(session: int) -> dict[str, Iterable[int]]:
        """Always something new, so that rounds go on."""
        return {"get": range(10), f"rare-{session}": [3], f"rarer-{session}": [8]}


@asynccontextmanager
async def surroundings(config: MeshConfig, chance: random.Random) -> AsyncIterator[tuple[list[Controller], Decoder]]:
    """Two nodes and a decoder, which nobody kills here."""
    nodes: list[Controller] = [SlowController(name, chance) for name in ("n1", "n2")]  # type: ignore[abstract]
    decoder = SlowDecoder(chance)
    nodes[0].processes = dict.fromkeys(SINGLE_PIDS, "single")
    for number, (profiled, spread) in enumerate(zip(ROUND_TARGETS, SPREAD_TARGETS, strict=True)):
        for side, node in enumerate(nodes):
            first = 1000 + 100 * number + 10 * side
            node.processes |= {first: profiled, first + 1: profiled, first + 2: spread}
    async with AsyncExitStack() as serving:
        for node in nodes:
            await serving.enter_async_context(controller_serving(config, node))
        await serving.enter_async_context(decoder_serving(config, decoder))
        yield nodes, decoder


def requests() -> list[coverage_pb2.StartCoverageRequest]:
    """Thirty, of three kinds in turn."""
    wishes = [
        kind
        for profiled, spread, pid in zip(ROUND_TARGETS, SPREAD_TARGETS, SINGLE_PIDS, strict=True)
        for kind in (profile_of(profiled, limit=ROUNDS, min_gain=1e-9), wish(name=spread), wish(pids=(pid,)))
    ]
    return [
        coverage_pb2.StartCoverageRequest(request_id=f"r{number}", coverage=one) for number, one in enumerate(wishes)
    ]


async def to_its_end(client: Coverage, request: coverage_pb2.StartCoverageRequest) -> Operation:
    """Starts as a caller does who repeats while nobody answers, and waits."""
    while True:
        try:
            started = await client._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)
            return await client.wait(started.operation.name)
        except PermilleError as error:
            if error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
                raise
        await asyncio.sleep(0.1)


async def twice_to_its_end(client: Coverage, request: coverage_pb2.StartCoverageRequest) -> Operation:
    """Starts twice at once, as a caller does whose proxy repeats calls: that is one operation."""
    first, second = await asyncio.gather(to_its_end(client, request), to_its_end(client, request))
    assert first == second
    return first


async def killed_and_restarted(replica: Coverage, chance: random.Random, killed: Callable[[], object]) -> None:
    """Lives, is stalled in every other life, and stays away, for random times, until cancelled."""
    try:
        while True:
            await replica.start()
            await asyncio.sleep(chance.uniform(0, LONGEST_LIFE_S))
            if chance.random() < 0.5:
                replica.stall()
                await asyncio.sleep(chance.uniform(SHORTEST_STALL_S, LONGEST_STALL_S))
                replica.go_on()
                await asyncio.sleep(chance.uniform(0, LONGEST_LIFE_S))
            await replica.kill()
            killed()
            await asyncio.sleep(chance.uniform(0, LONGEST_S))
    finally:
        with suppress(ProcessLookupError):
            await replica.kill()
        await replica.channels.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_replicas_that_are_killed_at_random_execute_each_step_once_and_lose_none(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    # pytest shows it when the test fails.
    print(f"again: KILL_SEED={seed}")
    kills = itertools.count()
    client = Coverage(mesh_config, etcd, tmp_path / "none.log")
    history = History(etcd, "coverage")
    following = asyncio.create_task(history.follow())
    async with surroundings(mesh_config, random.Random(seed)) as (nodes, decoder):
        replicas = [
            Coverage(mesh_config, etcd, tmp_path / f"replica-{number}.log", *MANY_AT_ONCE) for number in range(REPLICAS)
        ]
        lives = [
            asyncio.create_task(killed_and_restarted(replica, random.Random(f"{seed} {number}"), lambda: next(kills)))
            for number, replica in enumerate(replicas)
        ]
        begun = []
        arrivals = random.Random(f"{seed} arrivals")
        for request in requests():
            begun.append(asyncio.create_task(twice_to_its_end(client, request)))
            await asyncio.sleep(arrivals.uniform(0, LONGEST_S))
        try:
            everything = asyncio.gather(*begun)
            either: list[asyncio.Future[Any]] = [everything, *lives, following]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            assert not any(life.done() for life in (*lives, following)), (lives, following)
            operations = await everything
            await history.until_all_is_done()
            results = [result_of(operation) for operation in operations]
        finally:
            for task in (*begun, *lives, following):
                task.cancel()
            await asyncio.gather(*begun, *lives, following, return_exceptions=True)
            await client.channels.close()
    print(f"{next(kills)} kills")
    sessions = [session for result in results for session in result.sessions]
    assert len(sessions) == len(set(sessions)) == WANTED_SESSIONS
    assert sum(node.starts for node in nodes) == WANTED_SESSIONS
    assert sorted(session for node in nodes for session in node.sessions) == sorted(sessions)
    assert sorted(decoder.decoded) == sorted(sessions)
    assert [len(result.rounds) for result in results[::3]] == [ROUNDS] * len(ROUND_TARGETS)
    assert [failure for result in results for failure in result.failures] == []
    assert nodes[0].stops == nodes[1].stops == []
    assert history.violations == []
    for operation, result in zip(operations, results, strict=True):
        # What a successor would have found, had this one died just before the end.
        saved = history.saved[operation_id(operation.name)]
        assert [saved.sessions[index] for index in sorted(saved.sessions)] == list(result.sessions)
        assert saved.rounds == result.rounds
    for result in results:
        # Everybody that was meant, and nobody twice.
        pids = [(node.node, pid) for node in result.plan.nodes for pid in node.pids]
        assert len(pids) == len(set(pids))
    for left in ("pending", "owners", "reservations"):
        assert [kv for kv in await etcd.prefix(f"/permille/v1/{left}/coverage/") if not kv.key.endswith("/")] == []
