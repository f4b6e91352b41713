"""Perf maps and jitdumps of real processes, which may put anything where these files should be."""

from __future__ import annotations

import gc
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard
from permille.controller.domain import jit_files
from permille.controller.domain.archive import SwitchesOfSession, archive_files, write_archive
from permille.controller.domain.jit_files import JitFiles
from permille.controller.domain.switches.switch_recorder import SwitchCounts

from .test_archive import SESSION, Recorded

NAMES = b"7f0000001000 20 function one\n7f0000001020 10 two\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# Maps the files that it is told, says so, and waits until its input ends.
WAITING = """
import mmap, os, sys
files = [os.open(name, os.O_RDONLY) for name in sys.argv[1:]]
pages = [mmap.mmap(file, 0, prot=mmap.PROT_READ | mmap.PROT_EXEC) for file in files]
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Target:
    """A process, and where its perf map is."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.communicate(timeout=60)


Start = Callable[..., Target]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process, as another user, or in a pid namespace of its own."""
    targets: list[Target] = []

    def started(*words: str | Path, before: tuple[str, ...] = (), user: int | None = None) -> Target:
        command = [*before, sys.executable, "-c", WAITING, *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(command, user=user, **pipes)  # type: ignore[call-overload]
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        targets.append(Target(process, Path(f"/tmp/perf-{process.pid}.map")))
        return targets[-1]

    yield started
    for target in targets:
        target.process.kill()
        target.process.wait()
        if target.path.is_dir():
            target.path.rmdir()
        target.path.unlink(missing_ok=True)


def taken(folder: Path, *pids: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Content by name of what is taken, and the notes; nothing stays open."""
    # What tests before this one left closes now, not in the middle.
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = JitFiles(folder)
    files.look(pids)
    told = files.take()
    files.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    return {f"{one.kind} {one.name}": content(folder / one.file.name) for one in told.files}, told.notes


def content(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def test_what_a_process_told_is_in_the_archive(start: Start, tmp_path: Path) -> None:
    dump = tmp_path / "jit-77.dump"
    dump.write_bytes(b"DTiJ and so on")
    archive = tmp_path / "archive"
    archive.mkdir()
    target = start(dump)
    target.path.write_bytes(NAMES)
    files = JitFiles(archive)
    files.look([target.pid])
    told = files.take()
    switches = SwitchesOfSession([], SwitchCounts(0, 0, 0))
    manifest = write_archive(archive, SESSION, [Recorded()], switches, lambda *_: None, jit=told)
    entries = {entry["kind"]: entry for entry in manifest["jit"]}
    assert {kind: (entry["pid"], entry["name"]) for kind, entry in entries.items()} == {
        "perf-map": (target.pid, target.path.name),
        "jitdump": (target.pid, "jit-77.dump"),
    }
    for kind, wanted in (("perf-map", NAMES), ("jitdump", dump.read_bytes())):
        name = entries[kind]["key"].removeprefix("raw/s1/")
        assert content(archive / name) == wanted
        assert archive / name in archive_files(archive)
        assert entries[kind]["size_bytes"] == len(wanted)
    assert manifest["monotonic"] == {"tsc0": 0, "ns0": 0, "tsc1": 1000, "ns1": 1000}
    assert json.loads((archive / "manifest.json").read_text()) == manifest


def test_without_such_files_nothing_is_told(start: Start, tmp_path: Path) -> None:
    empty = start()
    empty.path.touch()
    assert taken(tmp_path, start().pid, empty.pid, 2**22 + 1) == ({}, ())


def test_files_of_a_process_that_has_ended_are_taken_still(start: Start, tmp_path: Path) -> None:
    dump = tmp_path / "jit-77.dump"
    dump.write_bytes(b"DTiJ and so on")
    target = start(dump)
    files = JitFiles(tmp_path)
    files.look([target.pid])
    # Written at the last moment.
    target.path.write_bytes(NAMES)
    target.end()
    told = files.take()
    assert [content(tmp_path / one.file.name) for one in told.files] == [NAMES, dump.read_bytes()]


@needs_root
def test_a_process_has_the_pid_of_its_own_namespace(start: Start, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("this machine does not let root make a pid namespace")
    outer = start(before=("unshare", "--pid", "--fork", "--kill-child"))
    (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    own = Path("/tmp/perf-1.map")
    if own.exists():
        pytest.skip(f"{own} is there")
    try:
        own.write_bytes(NAMES)
        assert taken(tmp_path, int(inner)) == ({"perf-map perf-1.map": NAMES}, ())
    finally:
        own.unlink()


def symlink(path: Path, folder: Path) -> str:
    secret = folder / "secret"
    secret.write_bytes(b"root:x")
    path.symlink_to(secret)
    return "it is no regular file"


def pipe(path: Path, folder: Path) -> str:
    os.mkfifo(path)
    return "it is no regular file"


def folder(path: Path, folder: Path) -> str:
    path.mkdir()
    return "it is no regular file"


def device(path: Path, folder: Path) -> str:
    if os.geteuid():
        pytest.skip("needs root")
    # Whoever opens the watchdog has to feed it.
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(10, 130))
    return "it is no regular file"


def foreign(path: Path, folder: Path) -> str:
    if os.geteuid():
        pytest.skip("needs root")
    path.write_bytes(NAMES)
    os.chown(path, 4711, 4711)
    return "it belongs to user 4711, the process to 0"


@pytest.mark.parametrize("make", [symlink, pipe, folder, device, foreign])
def test_what_is_no_file_of_the_process_is_not_taken(
    start: Start, tmp_path: Path, make: Callable[[Path, Path], str]
) -> None:
    target = start()
    why = make(target.path, tmp_path)
    name = f"{target.path.name} of process {target.pid}"
    assert taken(tmp_path, target.pid) == ({}, (f"{name} was not taken: {why}",))
    assert not list(tmp_path.glob("jit*"))


@needs_root
@pytest.mark.parametrize("secret", [True, False])
def test_a_file_of_root_is_taken_where_everybody_may_read_it(start: Start, tmp_path: Path, *, secret: bool) -> None:
    target = start(user=4711)
    target.path.write_bytes(NAMES)
    target.path.chmod(0o600 if secret else 0o644)
    files, notes = taken(tmp_path, target.pid)
    assert (list(files.values()), len(notes)) == (([], 1) if secret else ([NAMES], 0))


def test_a_link_on_the_way_to_a_jitdump_is_not_followed(start: Start, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    dump = real / "jit-77.dump"
    dump.write_bytes(b"DTiJ")
    target = start(dump)
    files = JitFiles(tmp_path)
    files.look([target.pid])
    real.rename(tmp_path / "moved")
    real.symlink_to(tmp_path / "moved")
    target.end()
    assert files.take().files == ()


@pytest.mark.parametrize("bound", ["of a file", "of a session"])
def test_of_a_huge_file_the_begin_is_taken(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    if bound == "of a session":
        monkeypatch.setattr(jit_files, "MOST_BYTES_OF_SESSION", 1 << 20)
    else:
        monkeypatch.setitem(jit_files.MOST_BYTES, "perf-map", 1 << 20)
    target = start()
    target.path.write_bytes(NAMES)
    os.truncate(target.path, 1 << 42)
    files, notes = taken(tmp_path, target.pid)
    (data,) = files.values()
    assert (len(data), data[: len(NAMES)]) == (1 << 20, NAMES)
    assert notes == (
        f"{target.path.name} of process {target.pid} has {1 << 42} bytes, of which the first {1 << 20} were taken",
    )


def test_of_a_process_with_many_jitdumps_a_few_are_known_however_often_it_is_looked_at(
    start: Start, tmp_path: Path
) -> None:
    dumps = [tmp_path / f"jit-{number}.dump" for number in range(jit_files.MOST_DUMPS + 2)]
    for dump in dumps:
        dump.write_bytes(b"page")
    process = jit_files.begun(start(*dumps).pid)
    assert process is not None
    os.close(process.root)
    for _ in range(3):
        assert process.look(jit_files.PROC)
    assert len(set(process.dumps)) == len(process.dumps) == jit_files.MOST_DUMPS


def test_a_jitdump_that_was_removed_is_looked_for_where_it_was(start: Start, tmp_path: Path) -> None:
    dump = tmp_path / "jit-77.dump"
    dump.write_bytes(b"page")
    target = start(dump)
    dump.unlink()
    process = jit_files.begun(target.pid)
    assert process is not None
    os.close(process.root)
    assert process.dumps == [str(dump)]
