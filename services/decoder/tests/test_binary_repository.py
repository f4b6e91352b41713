"""A binary that has more takes the place of one of the same build that has less, for the next decode."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from permille.api.decoder.v1 import decoder_pb2 as pb
from permille.decoder.domain.binary_repository import BinaryRepository, compressed
from permille.decoder.service.binary_upload import BinaryUpload
from permille.mesh.errors import InvalidArgument

from .decode_bench import Bench
from .small_program import Program
from .test_session_losses import split

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
StoreSession = Callable[..., Awaitable[dict[str, Any]]]
NAMES = {"_start", "outer", "inner"}


async def names(bench: Bench) -> set[str]:
    await bench.decode()
    return {row["name"] for row in await bench.rows("functions")}


def cut_off(program: Program, folder: Path) -> Path:
    path = folder / "cut"
    path.write_bytes(program.path.read_bytes()[: program.offset + 1])
    return path


async def test_an_unstripped_binary_takes_the_place_of_the_stripped_one(
    bench: Bench, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    stripped, _ = split(program.path, tmp_path)
    await store_session(binary=stripped)
    assert not NAMES & await names(bench)
    added = await bench.binaries.add(program.path, debug=False)
    assert (added.existed, added.replaced) == (False, True)
    # Also where a worker has the other one open.
    assert await names(bench) == NAMES
    kept = await bench.binaries.add(stripped, debug=False)
    assert (kept.existed, kept.replaced) == (True, False)
    assert await names(bench) == NAMES


async def test_another_decoder_has_the_new_one_as_well(bench: Bench, program: Program, tmp_path: Path) -> None:
    stripped, _ = split(program.path, tmp_path)
    key = (await bench.binaries.add(stripped, debug=False)).key
    another = BinaryRepository(bench.store, tmp_path / "another")
    before, after = await another.fetch(key, ""), await bench.binaries.add(program.path, debug=False)
    assert before.path is not None and before.path.read_bytes() == stripped.read_bytes()
    assert after.replaced
    now = await another.fetch(key, "")
    assert now.path is not None and now.path.read_bytes() == program.path.read_bytes()


async def test_a_binary_that_is_cut_off_is_refused(bench: Bench, program: Program, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cut off"):
        await bench.binaries.add(cut_off(program, tmp_path), debug=False)
    assert not await bench.store.exists(f"binaries/{program.build_id}")


async def test_one_that_is_cut_off_in_the_store_gives_way(
    bench: Bench, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    await store_session()
    await bench.store.put_stream(f"binaries/{program.build_id}", compressed(cut_off(program, tmp_path)))
    assert (await bench.decode()).instructions < 24
    stripped, _ = split(program.path, tmp_path)
    assert (await bench.binaries.add(stripped, debug=False)).replaced
    assert (await bench.decode()).instructions == 24


async def test_a_program_without_its_contents_is_kept_as_a_debug_file(
    bench: Bench, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    stripped, debug = split(program.path, tmp_path)
    await store_session(binary=stripped)
    added = await bench.binaries.add(debug, debug=False)
    assert added.key == f"binaries/{program.build_id}.debug"
    assert (await bench.decode()).instructions == 24
    assert await names(bench) == NAMES


async def test_what_can_have_more_than_what_is_there_is_read(bench: Bench, program: Program, tmp_path: Path) -> None:
    stripped, _ = split(program.path, tmp_path)
    uploads = BinaryUpload(bench.binaries, tmp_path / "scratch")
    read = 0

    async def requests(file: Path) -> AsyncIterator[pb.UploadBinaryRequest]:
        nonlocal read
        yield pb.UploadBinaryRequest(build_id=program.build_id, data=file.read_bytes()[:100])
        read += 1
        yield pb.UploadBinaryRequest(data=file.read_bytes()[100:])

    assert not (await uploads.receive(requests(stripped))).existed
    assert (await uploads.receive(requests(program.path))).replaced
    assert read == 2
    assert (await uploads.receive(requests(program.path))).existed
