"""A small decoder of the same API, with tables of what a test says that sessions ran."""

# ruff: noqa: N802 - the methods are named as gRPC names them

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.mesh.auth import INTERNAL
from permille.mesh.config import MeshConfig
from permille.mesh.errors import PermilleError
from permille.mesh.operation_runner import Job, OperationRunner
from permille.mesh.operation_service import OperationMethods
from permille.mesh.server import ServerContext
from permille.mesh.table_schemas import SCHEMAS

from .served_controller import RAW_BYTES
from .serving import serving

USUAL: dict[str, Iterable[int]] = dict.fromkeys(("get", "set", "reply"), range(10))


class Decoder:
    """Decodes that go on until `go_on` is set; operations are the mesh's own."""

    def __init__(self) -> None:
        self.decoded: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.fail_with: PermilleError | None = None
        # What decodes wait for until then.
        self.waiting = ""
        self.tables = DecodedTables()
        # What the n-th decoded session ran.
        self.ran: Callable[[int], dict[str, Iterable[int]]] | None = None
        # Which ones are deleted when the n-th has been decoded, by their numbers.
        self.deleted: Callable[[int], Iterable[int]] = lambda _: ()
        # Of a session, by its name.
        self.period_ms: Callable[[str], int] = lambda _: 100

    async def work(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        self.decoded.append(job.request.session)
        await job.progress("DECODING", 1, 3, "segments", waiting=self.waiting)
        await self.go_on.wait()
        if self.fail_with is not None:
            raise self.fail_with
        # On a busy machine a lease is lost, and the operation is taken over.
        if self.ran is not None and job.request.session not in self.tables.sessions:
            number = list(dict.fromkeys(self.decoded)).index(job.request.session) + 1
            self.tables.add(job.request.session, self.ran(number), period_ms=self.period_ms(job.request.session))
            for other in self.deleted(number):
                self.tables.delete(self.decoded[other - 1])
        return decoder_pb2.DecodeResult(session=job.request.session, raw_bytes=RAW_BYTES, decode_ms=1500)


class DecodedTables:
    """The decoder's tables: one thread in which `main` calls functions, each begun in one of ten windows."""

    def __init__(self) -> None:
        self.database = duckdb.connect(":memory:")
        self.queries = 0
        self.sessions: set[str] = set()
        for table, schema in SCHEMAS.items():
            self.database.register("empty", schema.empty_table())
            self.database.execute(f"CREATE TABLE {table} AS SELECT * FROM empty")

    def add(  # noqa: PLR0917 - named by whoever needs them
        self,
        session: str,
        called: dict[str, Iterable[int]] | None,
        build_id: str = "ab",
        target: str = "redis-server",
        period_ms: int = 100,
        blocks: int | None = 5,
    ) -> None:
        """A session in which main called these, each once in each of its windows; of each so many blocks ran.

        None: nothing of the program ran.
        """
        self.sessions.add(session)
        session_id, begin = session.rpartition("/")[2], 1_000_000_000
        known: dict[str, Any] = {"session_id": session_id, "day": date(2026, 1, 1)}
        self._insert("sessions", known | {"session": session, "target": target, "start_ns": begin, "lost_bytes": 0,
                     "end_ns": begin + 100_000_000, "period_ms": period_ms, "raw_bytes": RAW_BYTES})  # fmt: skip
        self._insert("segments", known | {"segment": 0, "first_ns": begin, "last_ns": begin + 10**8, "decode_ms": 100})
        ran = {} if called is None else {"main": range(10), **called}
        for name, windows in ran.items():
            number = zlib.crc32(name.encode()) >> 1
            self._insert("functions", known | {"function": number, "name": name, "module": "/bin/s", "calls": 1,
                         "build_id": build_id, "address": number, "self_instructions": 10,
                         "total_instructions": 20, "blocks": blocks})  # fmt: skip
            for window in windows:
                self._insert("calls", known | {"segment": 0, "call": number * 10 + window, "function": number,
                             "parent": -1 if name == "main" else (zlib.crc32(b"main") >> 1) * 10,
                             "name": name, "start_ns": begin + window * 10_000_000})  # fmt: skip

    def delete(self, session: str) -> None:
        """As if somebody had deleted it."""
        for table in SCHEMAS:
            self.database.execute(f"DELETE FROM {table} WHERE session_id = ?", [session.rpartition("/")[2]])

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        self.database.register("row", pa.Table.from_pylist([row], schema=SCHEMAS[table]))
        self.database.execute(f"INSERT INTO {table} SELECT * FROM row")


class DecoderService(OperationMethods, decoder_pb2_grpc.DecoderServiceServicer):
    def __init__(
        self, context: ServerContext, runner: OperationRunner[decoder_pb2.DecodeRequest], tables: DecodedTables
    ) -> None:
        super().__init__(context.operations)
        self._runner = runner
        self._tables = tables

    async def Query(self, request: decoder_pb2.QueryRequest, context: Any) -> AsyncIterator[decoder_pb2.QueryResponse]:
        self._tables.queries += 1
        found: Any = self._tables.database.sql(request.sql).to_arrow_table()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        yield decoder_pb2.QueryResponse(arrow_ipc=sink.getvalue().to_pybytes())

    async def Decode(self, request: decoder_pb2.DecodeRequest, context: Any) -> decoder_pb2.DecodeResponse:
        return decoder_pb2.DecodeResponse(operation=await self._runner.start(request, request.request_id))


@asynccontextmanager
async def decoder_serving(config: MeshConfig, decoder: Decoder) -> AsyncIterator[ServerContext]:
    async def setup(context: ServerContext) -> None:
        descriptor = decoder_pb2.DESCRIPTOR.services_by_name["DecoderService"]
        add = decoder_pb2_grpc.add_DecoderServiceServicer_to_server
        runner = OperationRunner(context.operations, decoder_pb2.DecodeRequest, decoder.work)
        methods = {method.name: INTERNAL for method in descriptor.methods}
        servicer = DecoderService(context, runner, decoder.tables)  # type: ignore[abstract]
        context.add(add, servicer, descriptor, methods)
        context.spawn(runner.run())

    async with serving("decoder", config, setup, f"d-{secrets.token_hex(2)}") as context:
        yield context


def with_rare(session: int) -> dict[str, Iterable[int]]:
    """What always runs, and two functions that only this session runs, once each."""
    return {**USUAL, f"rare-{session}": [3], f"rarer-{session}": [8]}


def each_with_its_own(session: int) -> dict[str, Iterable[int]]:
    """Four functions that only this session runs, all the time, and forty that each of the first two runs once.

    After the second session its windows say that a longer look shows more like them; later ones have nothing more.
    """
    # Once in a session, as much that comes rarely does.
    rarely: dict[str, Iterable[int]] = {f"rarely-{number}": [number % 10] for number in range(40)}
    always: dict[str, Iterable[int]] = dict.fromkeys((f"of-{session}-{number}" for number in range(4)), range(10))
    return {**always, **(rarely if session < 3 else dict.fromkeys(rarely, range(10)))}
