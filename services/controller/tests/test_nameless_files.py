"""Files that lost their names are read from the processes that have them mapped."""

from __future__ import annotations

import io
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from permille.controller.domain import elf_notes
from permille.controller.domain.nameless_files import NamelessFiles
from permille.controller.domain.recording import ImageChange

ELF = Path("/bin/true").read_bytes()
BUILD_ID, *_ = elf_notes.names_in(io.BytesIO(ELF))
# As much of an ELF file as has no program headers, and no build id.
BARE = ELF[:5] + bytes(mmap.PAGESIZE - 5)


@contextmanager
def mapped(file: Path, content: bytes) -> Iterator[None]:
    """This process has it mapped, and it is gone."""
    file.write_bytes(content)
    with file.open("rb") as opened:
        memory = mmap.mmap(opened.fileno(), len(content), prot=mmap.PROT_READ)
    file.unlink()
    with memory:
        yield


@pytest.fixture(params=["whole", "as mapped"])
def proc(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where processes are; without `map_files` only what is mapped of a file can be read."""
    if request.param == "whole":
        return Path("/proc")
    here = tmp_path / "proc" / str(os.getpid())
    here.mkdir(parents=True)
    for name in ("maps", "mem"):
        (here / name).symlink_to(f"/proc/self/{name}")
    return here.parent


def told(path: str, build_id: str = "") -> ImageChange:
    return ImageChange(epoch=1, tsc=0, event="map", address=0x1000, size_bytes=4096, path=path, build_id=build_id)


def completed(change: ImageChange, proc: Path = Path("/proc")) -> ImageChange:
    return NamelessFiles(os.getpid(), proc).complete(change)


@pytest.mark.parametrize("suffix", ["", " (deleted)"])
def test_a_file_without_a_name_is_in_the_change_that_maps_it(tmp_path: Path, proc: Path, suffix: str) -> None:
    file = tmp_path / "libwork.so"
    with mapped(file, ELF):
        change = completed(told(f"{file}{suffix}", BUILD_ID), proc)
    assert (change.path, change.build_id) == (str(file), BUILD_ID)
    assert change.code[: len(ELF)] == ELF


def test_another_file_of_that_name_is_another(tmp_path: Path) -> None:
    file = tmp_path / "libwork.so"
    with mapped(file, ELF):
        change = told(str(file), "00" * 20)
        assert completed(change) == change
        shutil.copy("/bin/true", file)
        # It has its name, and no build id tells that it is not the one that is mapped.
        assert completed(told(str(file))) == told(str(file))


def test_which_of_two_without_a_build_id_it_is_cannot_be_told(tmp_path: Path) -> None:
    file = tmp_path / "libwork.so"
    change = told(f"{file} (deleted)")
    with mapped(file, BARE):
        assert completed(change).code == BARE
        with mapped(file, BARE[:-1] + b"\1"):
            assert completed(change) == change


def test_what_is_no_elf_file_is_none_that_lost_its_name(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    with mapped(file, bytes(mmap.PAGESIZE)):
        assert completed(told(f"{file} (deleted)")) == told(f"{file} (deleted)")


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    change = told("/lib/libwork.so (deleted)")
    assert NamelessFiles(1, tmp_path).complete(change) == change
