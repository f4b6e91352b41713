"""Calls to the bench's own mesh, without a process for each."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli import tables
from permille.cli.client import MeshClient, answer, mesh_client
from permille.mesh.config import MeshConfig, load
from permille.mesh.errors import DeadlineExceeded, PermilleError, Unavailable
from permille.mesh.operations import operation_error
from workload import READY_S

_Result = TypeVar("_Result")
_WAIT_MS = 20_000
_MOST_ROWS = 1_000_000


class MeshCalls:
    """Each call to its end."""

    def __init__(self, runner: asyncio.Runner, client: MeshClient) -> None:
        self._runner = runner
        self._client = client

    def record(
        self, wish: coverage_pb2.CoverageRequest, stored: Callable[[], None] = lambda: None
    ) -> coverage_pb2.CoverageResult:
        """Records, calls `stored` when it is, and decodes. Raises the error that the operation ended with."""

        async def work(wanted: coverage_pb2.CoverageRequest) -> coverage_pb2.CoverageResult:
            return await self._record(wanted, stored)

        return self._run(work, wish)

    def wait_until_recordable(self, pid: int) -> None:
        """Until a node offers the process. Raises the last error after two minutes."""
        request = coverage_pb2.PlanCoverageRequest(
            coverage=coverage_pb2.CoverageRequest(target=coverage_pb2.Target(pids=[pid]))
        )

        async def ask(wanted: coverage_pb2.PlanCoverageRequest) -> None:
            await answer((await self._client.coverage()).PlanCoverage(wanted))

        deadline = time.monotonic() + READY_S
        while True:
            try:
                return self._run(ask, request)
            except PermilleError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The answer of the decoder's SQL."""

        async def ask(text: str) -> list[dict[str, Any]]:
            return (await tables.query(self._client, text, _MOST_ROWS)).rows

        return self._run(ask, sql)

    def _run(self, work: Callable[[Any], Awaitable[_Result]], argument: object) -> _Result:
        async def call() -> _Result:
            return await work(argument)

        return self._runner.run(call())

    async def _record(
        self, wish: coverage_pb2.CoverageRequest, stored: Callable[[], None]
    ) -> coverage_pb2.CoverageResult:
        coverage = await self._client.coverage()
        request = coverage_pb2.StartCoverageRequest(request_id=secrets.token_hex(16), coverage=wish)
        operation = (await answer(coverage.StartCoverage(request))).operation
        told = False
        while not operation.done:
            if operation.progress.stage == "DECODING" and not told:
                stored()
                told = True
            wait = operation_pb2.WaitOperationRequest(
                name=operation.name, timeout_ms=_WAIT_MS, newer_than=operation.update_time
            )
            # On a machine with too much to do an answer may be late: the operation goes on meanwhile.
            with contextlib.suppress(DeadlineExceeded, Unavailable):
                operation = (await answer(coverage.WaitOperation(wait, timeout=60))).operation
        error = operation_error(operation)
        if error is not None:
            raise error
        result = coverage_pb2.CoverageResult()
        operation.response.Unpack(result)
        return result


@contextlib.contextmanager
def mesh_calls() -> Iterator[MeshCalls]:
    """To the mesh that the environment names."""
    with asyncio.Runner() as runner:
        opened = mesh_client(load(MeshConfig))
        client = runner.run(opened.__aenter__())
        try:
            yield MeshCalls(runner, client)
        finally:
            runner.run(opened.__aexit__(None, None, None))
