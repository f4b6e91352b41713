"""A disk for temporary files that has no room, or cannot be written: each names it, and says the way out."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain import session_rows
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_export import ExportFormat, ExportWish, SessionExports
from permille.decoder.service.binary_upload import BinaryUpload
from permille.decoder.service.scratch_folder import ScratchFolder
from permille.mesh.elf_magic import ELF_MAGIC
from permille.mesh.errors import Code, PermilleError
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

from .conftest import SESSION
from .decode_bench import Bench
from .small_program import Program

StoreSession = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with a disk of its own, of 128 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    # Workers have binaries there mapped.
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    filling = folder / "filling"
    with pytest.raises(OSError, match="No space"), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filling


def require_told(error: PermilleError, folder: Path) -> None:
    assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "SCRATCH_FULL")
    assert str(folder) in error.message
    assert "--state-dir" in error.help


async def test_a_decode_without_room_says_so_and_leaves_nothing(
    store: ObjectStore, store_session: StoreSession, pool: SegmentPool[PartTask, bytes], small: Path
) -> None:
    await store_session()
    bench = Bench(store, pool, small / "decoder")
    filling = fill(small)
    with pytest.raises(PermilleError) as refused:
        await bench.decode(decode_id="d1")
    require_told(refused.value, small)
    await bench.decoder.forget("s1", "d1")
    assert [info.key async for info in store.list("decodes/")] == []
    filling.unlink()
    assert (await bench.decode(decode_id="d2")).instructions == 24


async def test_an_elf_file_in_the_archive_without_room_is_not_lost(
    store: ObjectStore, store_session: StoreSession, pool: SegmentPool[PartTask, bytes], small: Path, program: Program
) -> None:
    code = program.path.read_bytes() + bytes(1 << 16)
    await store_session(changes=[program.mapping(binary="", code_size=len(code))], code=code)
    bench = Bench(store, pool, small / "decoder")
    # There is room for the code as a whole, and none for the file that is in it.
    filling = small / "filling"
    filling.write_bytes(bytes(48 << 10))
    with pytest.raises(PermilleError) as refused:
        await bench.decode(decode_id="d1")
    require_told(refused.value, small)
    filling.unlink()
    subprocess.run(["mount", "-o", "remount,size=1m", small], check=True)
    assert (await bench.decode(decode_id="d2")).instructions == 24


async def test_an_upload_without_room_says_so(bench: Bench, small: Path) -> None:
    async def requests() -> AsyncIterator[decoder_pb2.UploadBinaryRequest]:
        for beginning in (ELF_MAGIC, b"", b"", b""):
            yield decoder_pb2.UploadBinaryRequest(data=beginning + bytes(1 << 16))

    with pytest.raises(PermilleError) as refused:
        await BinaryUpload(bench.binaries, small).receive(requests())
    require_told(refused.value, small)
    assert list(small.iterdir()) == []


async def test_an_export_without_room_for_sorting_says_so(
    decoded: Tables, small: Path, new_row: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = new_row("calls", session_id=SESSION, name="a name that takes room " * 10)
    batch = pa.RecordBatch.from_pylist([row] * 1000, schema=SCHEMAS["calls"])
    await decoded.replace_session("calls", SESSION, [batch] * 200)
    monkeypatch.setattr(session_rows, "_MEMORY_MIB", 16)
    with pytest.raises(PermilleError) as refused:
        async for _ in SessionExports(decoded, small).run(ExportWish(SESSION, ExportFormat.CSV)):
            pass
    require_told(refused.value, small)
    assert list(small.iterdir()) == []


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    with pytest.raises(PermilleError, match="state/scratch") as refused:
        ScratchFolder(tmp_path / "state/scratch", "i1")
    assert (refused.value.code, refused.value.reason) == (Code.FAILED_PRECONDITION, "STATE_DIR_UNUSABLE")
    assert "--state-dir" in refused.value.help


@pytest.mark.parametrize("what", ["decode", "upload", "export"])
async def test_a_folder_that_may_not_be_written_any_more_is_told(
    store: ObjectStore, store_session: StoreSession, program: Any, small: Path, what: str
) -> None:
    # Root may write whatever the rights say, but not on a disk that is read-only.
    await store_session(runs=[bytes(33 << 20)])
    uses: dict[str, Callable[[Bench], Awaitable[object]]] = {
        "decode": lambda bench: bench.decode(decode_id="d1"),
        "upload": lambda bench: BinaryUpload(bench.binaries, small / "bench/scratch").receive(whole(program.path)),
        "export": lambda bench: exported(bench, small / "bench/scratch"),
    }
    pool: SegmentPool[PartTask, bytes] = SegmentPool(decode_part, LocalWorkers(1))
    bench = Bench(store, pool, small / "bench")
    try:
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        with pytest.raises(PermilleError) as refused:
            await uses[what](bench)
        assert (refused.value.code, refused.value.reason) == (Code.FAILED_PRECONDITION, "STATE_DIR_UNUSABLE")
        assert str(small / "bench") in refused.value.message and "Read-only" in refused.value.message
        assert "--state-dir" in refused.value.help
    finally:
        pool.close()


async def whole(file: Path) -> AsyncIterator[decoder_pb2.UploadBinaryRequest]:
    yield decoder_pb2.UploadBinaryRequest(data=file.read_bytes())


async def exported(bench: Bench, scratch: Path) -> list[bytes]:
    wish = ExportWish("s1", ExportFormat.CSV)
    return [piece.data async for piece in SessionExports(bench.tables, scratch).run(wish)]
