"""A decoder on a store, without a service around it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from permille.decoder.domain.binary_repository import BinaryRepository
from permille.decoder.domain.part_decoder import PartTask
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_decoder import DecodedSession, SessionDecoder
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables
from permille.ptcore import Categories

StoreSession = Callable[..., Awaitable[dict[str, Any]]]


class Bench:
    """A decoder on a store, and its tables."""

    def __init__(
        self,
        store: ObjectStore,
        pool: SegmentPool[PartTask, bytes],
        folder: Path,
        *,
        categories: Categories | None = None,
        inlined: bool = False,
        threads: int = 1,
    ) -> None:
        self.store = store
        self.tables = Tables(store)
        self.debug_folder = folder / "debug"
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        self.binaries = BinaryRepository(store, folder / "binaries", debug_folder=self.debug_folder)
        self.decoder = SessionDecoder(
            store,
            self.tables,
            pool,
            folder=scratch,
            workers_folder=str(folder / "worker"),
            debug_folder=self.debug_folder,
            categories=categories,
            inlined=inlined,
            threads=threads,
        )
        self.progress: list[tuple[int, int]] = []

    async def decode(self, session_id: str = "s1", decode_id: str = "") -> DecodedSession:
        async def progress(done: int, total: int) -> None:
            self.progress.append((done, total))

        decode_id = decode_id or secrets.token_hex(4)
        decoded = await self.decoder.decode(session_id, decode_id, progress)
        assert [info.key async for info in self.store.list(f"decodes/{decode_id}/")] == []
        return decoded

    async def rows(self, table: str, session_id: str = "s1") -> list[dict[str, Any]]:
        found = (await self.tables.session(table, session_id)).to_table().to_pylist()
        order = {"calls": ("segment", "call"), "functions": ("function",), "segments": ("segment",)}.get(table, ())
        return sorted(found, key=lambda row: tuple(row[name] for name in order))
