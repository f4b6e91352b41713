"""What recorded processes told of the code that they wrote: perf maps and jitdumps, from the archive of a session."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from permille.decoder.domain.archive import SessionArchive, is_lost
from permille.decoder.domain.manifest import JitFile
from permille.mesh.errors import PermilleError
from permille.ptcore import Generated


async def read_generated(archive: SessionArchive, folder: Path) -> tuple[dict[int, Generated], list[str]]:
    """By pid, and notes about what cannot be used. `folder`: for temporary files. Raises when the store is away."""
    by_pid: dict[int, list[JitFile]] = defaultdict(list)
    for file in archive.manifest.jit:
        by_pid[file.pid].append(file)
    found: dict[int, Generated] = {}
    notes: list[str] = []
    for pid, files in by_pid.items():
        found[pid] = await _of_process(archive, files, folder, notes)
        notes += [f"process {pid}: {note}" for note in found[pid].notes]
    return found, notes


async def _of_process(archive: SessionArchive, files: Sequence[JitFile], folder: Path, notes: list[str]) -> Generated:
    perf_map: Path | None = None
    dumps: list[tuple[str, Path]] = []
    with tempfile.TemporaryDirectory(prefix="jit-", dir=folder) as own:
        for number, file in enumerate(files):
            path = Path(own) / str(number)
            try:
                with path.open("wb") as local:
                    await archive.fetch_jit(file, local)
            except PermilleError as error:
                if not is_lost(error):
                    raise
                notes.append(f"names of code that was written at run time are missing: {error.message}")
                continue
            if file.kind == "perf-map":
                perf_map = path
            elif file.kind == "jitdump":
                dumps.append((file.name, path))
        return await asyncio.to_thread(Generated, perf_map, dumps, _clock(archive))


def _clock(archive: SessionArchive) -> tuple[tuple[int, int], tuple[int, int]] | None:
    clock = archive.manifest.monotonic
    return ((clock.tsc0, clock.ns0), (clock.tsc1, clock.ns1)) if clock is not None else None
