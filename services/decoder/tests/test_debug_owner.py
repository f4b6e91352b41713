"""A debug file is taken for the binary that it belongs to, and for no other one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from permille.decoder.domain.binary_repository import BinaryRepository, UploadedBinary, compressed
from permille.decoder.domain.elf_identity import identify_elf
from permille.mesh.errors import InvalidArgument, NotFound
from permille.mesh.store import ObjectStore

Split = Callable[..., tuple[Path, Path]]


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Builds a program of one function, and tells the stripped binary and its debug file."""

    def built(name: str, build_id: str = "none", *, linked: bool = True) -> tuple[Path, Path]:
        program, debug, stripped = (tmp_path / f"{name}{end}" for end in ("", ".debug", ".stripped"))
        options = ["-g", "-nostdlib", "-shared", f"-Wl,--build-id={build_id}", "-x", "c", "-o", str(program), "-"]
        subprocess.run(["gcc", *options], input=f"int {name}(void) {{ return 0; }}\n", text=True, check=True)
        subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
        link = [f"--add-gnu-debuglink={debug}"] if linked else []
        subprocess.run(["objcopy", "--strip-all", *link, program, stripped], check=True)
        return stripped, debug

    return built


@pytest.fixture
def binaries(store: ObjectStore, tmp_path: Path) -> BinaryRepository:
    return BinaryRepository(store, tmp_path / "binaries", debug_folder=tmp_path / "none")


async def added(binaries: BinaryRepository, debug: Path, *of: Path) -> UploadedBinary:
    keys = [(await binaries.add(binary, debug=False)).key for binary in of]
    return await binaries.add(debug, debug=True, of=keys)


async def debug_of(binaries: BinaryRepository, binary: Path) -> bytes:
    found = await binaries.fetch((await binaries.add(binary, debug=False)).key, "/bin/x")
    return found.debug_path.read_bytes() if found.debug_path else b""


async def test_it_is_that_of_the_binary_with_its_build_id(binaries: BinaryRepository, split: Split) -> None:
    (one, debug), (other, _) = split("one", "0x0123"), split("other", "0x4567")
    told = await added(binaries, debug, other, one)
    assert (told.key, told.guessed) == ("binaries/0123.debug", False)
    assert await debug_of(binaries, one) == debug.read_bytes()


async def test_one_of_another_build_is_refused_and_both_ids_are_told(binaries: BinaryRepository, split: Split) -> None:
    (binary, _), (_, debug) = split("one", "0x0123"), split("other", "0x4567")
    with pytest.raises(InvalidArgument, match=r"it has build id 4567; binaries/0123 has build id 0123$") as refused:
        await added(binaries, debug, binary)
    assert refused.value.reason == "DEBUG_FILE_OF_ANOTHER"
    assert "readelf -n" in refused.value.help
    assert await debug_of(binaries, binary) == b""


@pytest.mark.parametrize(("id_of_binary", "id_of_debug"), [("none", "none"), ("0x0123", "none"), ("none", "0x0123")])
async def test_without_a_build_id_the_checksum_of_the_link_says_it(
    binaries: BinaryRepository, split: Split, id_of_binary: str, id_of_debug: str
) -> None:
    binary, debug = split("one", id_of_binary)
    if id_of_debug != id_of_binary:
        _, debug = split("two", id_of_debug)
        subprocess.run(["objcopy", "--remove-section=.gnu_debuglink", binary], check=True)
        subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", binary], check=True)
    _, stranger = split("stranger", id_of_debug)
    with pytest.raises(InvalidArgument, match="wants the checksum") as refused:
        await added(binaries, stranger, binary)
    assert refused.value.reason == "DEBUG_FILE_OF_ANOTHER"
    told = await added(binaries, debug, binary)
    assert (told.key.endswith(".debug"), told.guessed) == (True, False)
    assert await debug_of(binaries, binary) == debug.read_bytes()


async def test_what_was_stored_for_it_by_its_name_alone_is_not_taken_and_gives_way(
    binaries: BinaryRepository, store: ObjectStore, split: Split
) -> None:
    (binary, debug), (_, stranger) = split("one"), split("stranger")
    key = (await binaries.add(binary, debug=False)).key
    await store.put_stream(f"{key}.debug", compressed(stranger))
    assert await debug_of(binaries, binary) == b""
    assert not (await added(binaries, debug, binary)).existed
    assert await debug_of(binaries, binary) == debug.read_bytes()
    assert (await added(binaries, debug, binary)).existed


async def test_where_nothing_says_it_it_is_a_guess_which_the_next_one_replaces(
    binaries: BinaryRepository, split: Split
) -> None:
    (binary, debug), (_, better) = split("one", linked=False), split("two", linked=False)
    for file, existed in ((debug, False), (debug, True), (better, False)):
        told = await added(binaries, file, binary)
        assert (told.guessed, told.existed) == (True, existed)
        assert await debug_of(binaries, binary) == file.read_bytes()
    other, _ = split("three", linked=False)
    with pytest.raises(InvalidArgument, match="nothing says to which of") as refused:
        await added(binaries, debug, binary, other)
    assert refused.value.reason == "DEBUG_FILE_OF_SEVERAL"


async def test_a_guess_gives_way_to_what_is_known(binaries: BinaryRepository, split: Split) -> None:
    binary, debug = split("one", "0x0123", linked=False)
    _, guess = split("two", linked=False)
    assert (await added(binaries, guess, binary)).guessed
    assert not (await added(binaries, debug, binary)).guessed
    assert await debug_of(binaries, binary) == debug.read_bytes()


@pytest.mark.parametrize("name", ["binaries/0123", "sessions/s", "binaries/../raw"])
async def test_a_binary_that_is_not_there_has_no_debug_file(
    binaries: BinaryRepository, split: Split, name: str
) -> None:
    _, debug = split("one", "0x0123")
    with pytest.raises(NotFound, match=name):
        await binaries.add(debug, debug=True, of=[name])


async def test_the_checksum_stands_behind_the_name_whatever_its_length(split: Split) -> None:
    for name in ("a", "ab", "abc", "abcd"):
        binary, debug = split(name)
        identity: Any = identify_elf(binary)
        assert (identity.debug_link, identity.debug_checksum is None) == (debug.name, False)
