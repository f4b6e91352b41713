from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from permille.controller.domain.archive import (
    MappedBinary,
    SourceBinary,
    SwitchesOfSession,
    archive_files,
    pack,
    spool,
    write_archive,
)
from permille.controller.domain.archive_file import write_whole
from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.journal import Journal
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.recording import ImageChange, ProcessChanges, PtModel, Stream
from permille.controller.domain.session import Session, State
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.switches.switch_records import Anchors, SwitchRecord, parse
from permille.controller.domain.switches.switch_records import pack as packed
from permille.controller.service.archive_uploader import upload_binary
from permille.mesh.store import open_store

SESSION = Session("n1", "s1", "r1", (7,), "ON_DEMAND", 500, 1 << 20, target_name="x", command_line=("/bin/x", "-v"))


class Recorded:
    """A finished recording held in memory."""

    pids = (7,)
    pause_s = 0.01
    unbuffered_threads = 0
    cut_off_threads = 0

    def __init__(self, contents: Sequence[bytes] = (), changes: Sequence[ImageChange] = ()) -> None:
        self._contents = contents
        self._changes = changes

    def finished(self) -> bool:
        return True

    def exited(self) -> bool:
        return False

    def progress(self) -> Sequence[BufferProgress]:
        return []

    def stop(self) -> None: ...

    def collect(self, switches: Path) -> None: ...

    def own_switches(self, collected: Path) -> None: ...

    def release(self) -> None: ...

    def model(self) -> PtModel:
        return PtModel(6, 94, 3, (2, 1), 24)

    def realtime(self) -> Anchors:
        return Anchors(0, 100, 1000, 1100)

    def monotonic(self) -> Anchors:
        return Anchors(0, 0, 1000, 1000)

    def streams(self) -> Sequence[Stream]:
        return [
            Stream(index, 70 + index, "main", len(content), 1 << 20, False, 0, 0, 1, 2, ((0, 1),))
            for index, content in enumerate(self._contents)
        ]

    def packets(self, stream: Stream) -> Iterator[bytes]:
        content = self._contents[stream.index]
        for begin in range(0, len(content), 7):
            yield content[begin : begin + 7]

    def images(self) -> Iterator[ProcessChanges]:
        yield ProcessChanges(7, [7], self._changes)


def switches(*records: SwitchRecord) -> SwitchesOfSession:
    return SwitchesOfSession([packed(records)], SwitchCounts(len(records), 3, 1, ""))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.binary(max_size=300), max_size=4))
def test_every_segment_comes_back_and_its_checksum_is_of_the_raw_bytes(tmp_path: Path, contents: list[bytes]) -> None:
    folder = tmp_path / "a"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    manifest = write_archive(folder, SESSION, [Recorded(contents)], switches(), lambda *_: None)
    assert [segment["tid"] for segment in manifest["segments"]] == [70 + n for n in range(len(contents))]
    for segment, content in zip(manifest["segments"], contents, strict=True):
        stored = (folder / Path(segment["key"]).name).read_bytes()
        assert zstandard.ZstdDecompressor().decompressobj().decompress(stored) == content
        assert segment["sha256"] == hashlib.sha256(content).hexdigest()
        assert segment["stored_sha256"] == hashlib.sha256(stored).hexdigest()
        assert (segment["size_bytes"], segment["stored_bytes"]) == (len(content), len(stored))
        assert segment["key"].startswith("raw/s1/segment-")


def test_code_is_one_file_and_the_maps_say_where_in_it(tmp_path: Path) -> None:
    changes = [
        ImageChange(1, 5, "map", 0x1000, 4096, 0, "/bin/x", "ab"),
        ImageChange(2, 6, "code", 0x9000, 3, code=b"abc"),
        ImageChange(3, 7, "code", 0xA000, 2, code=b"de"),
        ImageChange(4, 8, "unmap", 0x1000, 4096),
        ImageChange(5, 9, "map", 0x2000, 4096, 0, "/gone", "cd"),
        ImageChange(5, 9, "map", 0x3000, 4, 0, "[vdso]", code=b"\x7fELF"),
        # As another process has it.
        ImageChange(6, 9, "map", 0x5000, 4, 0, "[vdso]", code=b"\x7fELF"),
    ]

    def find(roots: Sequence[int], path: str, build_id: str, stamp: FileStamp | None) -> MappedBinary | None:
        if path == "/gone":
            return None
        binary = SourceBinary(f"binaries/{build_id}", path)
        return MappedBinary(build_id, binary, SourceBinary(f"binaries/{build_id}.debug", "/debug/x"))

    manifest = write_archive(tmp_path, SESSION, [Recorded(changes=changes)], switches(), find)
    text = (tmp_path / "maps.json").read_bytes()
    assert manifest["maps"] == {"key": "raw/s1/maps.json", "sha256": hashlib.sha256(text).hexdigest()}
    (process,) = json.loads(text)["processes"]
    # What a process is called `threads` of the manifest say: the session's name is that of its first one.
    assert process.keys() == {"pid", "changes"} and process["pid"] == 7
    told = [(c["event"], c["epoch"], c["code_offset"], c.get("code_size", 0), c["binary"]) for c in process["changes"]]
    assert told == [
        ("map", 1, 0, 0, "binaries/ab"),
        ("code", 2, 0, 0, ""),
        ("code", 3, 3, 0, ""),
        ("unmap", 4, 0, 0, ""),
        ("map", 5, 0, 0, ""),
        ("map", 5, 5, 4, ""),
        ("map", 6, 5, 4, ""),
    ]
    code = zstandard.ZstdDecompressor().decompressobj().decompress((tmp_path / "code.bin.zst").read_bytes())
    assert code == b"abcde\x7fELF"
    assert manifest["code"]["size_bytes"] == 9
    assert json.loads((tmp_path / "binaries.json").read_text()) == {
        "binaries/ab": "/bin/x",
        "binaries/ab.debug": "/debug/x",
    }


def test_a_path_that_is_no_unicode_is_one_in_the_archive_and_its_binary_is_found(tmp_path: Path) -> None:
    def find(roots: Sequence[int], path: str, build_id: str, stamp: FileStamp | None) -> MappedBinary | None:
        return MappedBinary(build_id, SourceBinary(f"binaries/{build_id}", path), None)

    path = os.fsdecode(b"/latin-\xe9")
    write_archive(
        tmp_path, SESSION, [Recorded(changes=[ImageChange(1, 5, "map", 0, 9, 0, path, "ab")])], switches(), find
    )
    (process,) = json.loads((tmp_path / "maps.json").read_text())["processes"]
    assert [change["path"] for change in process["changes"]] == ["/latin-\\udce9"]
    assert json.loads((tmp_path / "binaries.json").read_text()) == {"binaries/ab": path}


def test_switch_records_come_back_with_what_was_lost(tmp_path: Path) -> None:
    record = SwitchRecord(5, 1, 7, 70, 1)
    manifest = write_archive(tmp_path, SESSION, [Recorded()], switches(record), lambda *_: None)
    assert parse((tmp_path / "switches.bin").read_bytes()) == [record]
    entry = manifest["switches"]
    assert (entry["count"], entry["dropped"], entry["unseen"], entry["unavailable"]) == (1, 3, 1, "")


def test_the_manifest_is_uploaded_last_and_is_the_sign_of_a_whole_archive(tmp_path: Path) -> None:
    entry = Journal(tmp_path).open(SESSION)
    assert not entry.archived
    write_archive(entry.folder, SESSION, [Recorded([b"x"])], switches(), lambda *_: None)
    assert entry.archived
    files = archive_files(entry.folder)
    assert files[-1].name == "manifest.json" and all(file.exists() for file in files)


def test_what_was_spooled_becomes_an_archive_without_the_recorder(tmp_path: Path) -> None:
    entry = Journal(tmp_path).open(SESSION)
    contents = [b"x" * 9_000_000, b"y"]
    spool(entry.folder, SESSION, [Recorded(contents)], switches(), lambda *_: None)
    assert entry.spooled and not entry.archived
    manifest = pack(entry.folder)
    assert entry.spooled and entry.archived
    assert [segment["sha256"] for segment in manifest["segments"]] == [hashlib.sha256(c).hexdigest() for c in contents]
    # Nothing is kept twice.
    assert not [file.name for file in entry.folder.iterdir() if file.suffix == ".raw" or file.name == "spooled.json"]


def test_a_full_disk_leaves_no_manifest(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    (tmp_path / "segment-0.pt.zst").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_archive(tmp_path, SESSION, [Recorded([b"x" * 9])], switches(), lambda *_: None)
    assert not (tmp_path / "manifest.json").exists()


def test_the_journal_gives_back_what_is_not_finished_and_forgets_the_rest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.unfinished() == []
    first, second = SESSION, SESSION.changed(id="s2")
    entries = [journal.open(session) for session in (first, second)]
    entries[0].save(first.changed(state=State.RECORDING))
    (tmp_path / "journal" / "s0").mkdir()
    write_whole(tmp_path / "journal" / "s0" / "session.json", b"{")
    assert [(one.id, one.state) for one in journal.unfinished()] == [("s1", "RECORDING"), ("s2", "PREPARING")]
    entries[0].remove()
    assert [one.id for one in journal.unfinished()] == ["s2"]
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == ["s2"]


def test_a_mapped_file_is_found_only_while_it_is_the_one_that_was_mapped(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(sys.executable, program)
    binaries = MappedBinaries()
    found = binaries.find([os.getpid()], str(program), "")
    assert found is not None and found.binary.path == str(program)
    assert binaries.find([os.getpid()], str(program), found.build_id) == found
    assert binaries.find([os.getpid()], str(program), "00" * 20) is None
    assert binaries.find([os.getpid()], str(tmp_path / "none"), "") is None


def test_what_was_written_to_a_mapped_path_since_is_another_file_and_a_copy_of_the_same_is_none(tmp_path: Path) -> None:
    program, copy = tmp_path / "program", tmp_path / "copy"
    shutil.copy(sys.executable, program)
    binaries, stamp = MappedBinaries(), FileStamp.of(program.stat())
    found = binaries.find([os.getpid()], str(program), "", stamp)
    assert found is not None
    # With another inode.
    shutil.copy2(program, copy)
    copy.replace(program)
    assert binaries.find([os.getpid()], str(program), "", stamp) == found
    # With the same one.
    with program.open("ab") as file:
        file.write(b"another build")
    assert binaries.find([os.getpid()], str(program), "", stamp) is None
    # A build id tells more.
    assert binaries.find([os.getpid()], str(program), found.build_id, stamp) == found


def test_a_mapped_file_that_was_only_touched_is_the_same(tmp_path: Path) -> None:
    process, program = tmp_path / "proc" / "42", tmp_path / "program"
    process.mkdir(parents=True)
    (process / "root").symlink_to("/")
    shutil.copy(sys.executable, program)
    stamp = FileStamp.of(program.stat())
    os.utime(program, ns=(0, 0))

    def find(inode: int) -> MappedBinary | None:
        (process / "maps").write_text(f"00401000-00479000 r-xp 00001000 fe:00 {inode}          {program}\n")
        return MappedBinaries(tmp_path / "proc").find([42], str(program), "", stamp)

    assert find(stamp.inode) is not None
    assert find(stamp.inode + 1) is None


def test_a_file_in_another_root_is_taken_from_there(tmp_path: Path) -> None:
    root = tmp_path / "proc" / "42" / "root"
    inside = root / str(tmp_path).lstrip("/") / "program"
    inside.parent.mkdir(parents=True)
    shutil.copy(sys.executable, inside)
    (tmp_path / "program").write_text("another file of that name")
    found = MappedBinaries(tmp_path / "proc").find([42], str(tmp_path / "program"), "")
    assert found is not None and found.binary.path == str(inside)


def test_a_file_of_a_process_that_is_gone_is_taken_from_the_root_of_who_forked_it(tmp_path: Path) -> None:
    program = tmp_path / "program"
    inside = tmp_path / "proc" / "42" / "root" / str(program).lstrip("/")
    inside.parent.mkdir(parents=True)
    shutil.copy(sys.executable, inside)
    program.write_text("another file of that name")
    found = MappedBinaries(tmp_path / "proc").find([44, 43, 42], str(program), "")
    assert found is not None and found.binary.path == str(inside)


def test_the_file_of_a_program_that_has_changed_its_root_is_the_one_with_the_mapped_inode(tmp_path: Path) -> None:
    process, program = tmp_path / "proc" / "42", tmp_path / "jail" / "program"
    (process / "root").mkdir(parents=True)
    program.parent.mkdir()
    shutil.copy(sys.executable, program)

    def find(inode: int) -> MappedBinary | None:
        (process / "maps").write_text(f"00401000-00479000 r-xp 00001000 fe:00 {inode}          {program}\n")
        return MappedBinaries(tmp_path / "proc").find([42], str(program), "")

    found = find(program.stat().st_ino)
    assert found is not None and found.binary.path == str(program)
    assert find(program.stat().st_ino + 1) is None


def test_what_a_program_has_put_at_a_mapped_path_is_no_file_that_was_mapped(tmp_path: Path) -> None:
    secret = tmp_path / "folder" / "secret"
    secret.parent.mkdir()
    secret.write_text("what the program itself may not read")
    (tmp_path / "program").symlink_to(secret)
    (tmp_path / "other").symlink_to(secret.parent)
    os.mkfifo(tmp_path / "pipe")
    found = MappedBinaries()
    assert found.find([os.getpid()], str(secret), "") is not None
    for path in ("program", "other/secret", "pipe", "folder"):
        assert found.find([os.getpid()], str(tmp_path / path), "") is None


async def test_what_has_taken_the_place_of_a_binary_is_not_stored_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    store, program, pipe = open_store(f"file://{tmp_path / 'store'}"), tmp_path / "program", tmp_path / "pipe"
    shutil.copy(sys.executable, program)
    found = MappedBinaries().find([os.getpid()], str(program), "")
    assert found is not None
    os.mkfifo(pipe)
    (tmp_path / "other").write_text("another program")
    for path in (pipe, tmp_path / "other", tmp_path / "none"):
        await upload_binary(store, found.binary.key, path)
        assert not await store.exists(found.binary.key)
    await upload_binary(store, found.binary.key, program)
    assert await store.exists(found.binary.key)


def test_python_is_mapped_by_this_process() -> None:
    maps = Path("/proc/self/maps").read_text()
    path = next(line.split()[-1] for line in maps.splitlines() if "python" in line)
    found = MappedBinaries().find([os.getpid()], path, "")
    notes = subprocess.run(["readelf", "-n", path], check=True, capture_output=True, text=True).stdout
    assert found is not None and found.build_id in notes
