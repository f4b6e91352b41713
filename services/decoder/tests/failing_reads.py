"""Queries at once over a table of which reads are slow and half fail: prints the reasons that they were told.

A program of its own: who would end what hangs here may need the very lock that it hangs with.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from permille.decoder.domain.query import QueryEngine
from permille.decoder.domain.query_limits import QueryLimits
from permille.mesh.errors import PermilleError
from permille.mesh.store import open_store
from permille.mesh.tables import Tables
from pyarrow.fs import PyFileSystem

FILES = 40
QUERIES = 100
AT_ONCE = 3


class FailingReads(DeltaStorageHandler):
    def open_input_file(self, path: str) -> Any:
        time.sleep(random.random() * 0.002)
        if random.random() < 0.5:
            raise OSError(path)
        return super().open_input_file(path)


class FailingTables(Tables):
    async def datasets(self) -> Any:
        table = DeltaTable(sys.argv[1])
        handler: Any = FailingReads(sys.argv[1], {})
        return {"t": table.to_pyarrow_dataset(filesystem=PyFileSystem(handler))}


async def main() -> None:
    for number in range(FILES):
        write_deltalake(sys.argv[1], pa.table({"a": [number], "b": ["x"]}), mode="append")
    engine = QueryEngine(FailingTables(open_store(f"file://{sys.argv[1]}")), QueryLimits(at_once=AT_ONCE))

    async def reason() -> str:
        try:
            return str([part async for part in engine.run("SELECT max(b) FROM t")])
        except PermilleError as error:
            return error.reason

    print(*sorted(set(await asyncio.gather(*(reason() for _ in range(QUERIES))))))


if __name__ == "__main__":
    asyncio.run(main())
