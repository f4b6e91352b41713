"""What recorded processes tell of the code that they write at run time: perf maps and jitdumps, taken for the archive.

A perf map is `/tmp/perf-PID.map` (Linux: tools/perf/Documentation/jit-interface.txt); of a jitdump, `jit-PID.dump`, the
process maps a page, so that its path is known (jitdump-specification.txt, ibid.). Both have the pid of the process's
own pid namespace and are in its own file system. The process is not trusted: see docs/threat-model-controller.md.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from permille.controller.domain.archive import JIT, JitFile, JitFilesOfSession
from permille.controller.domain.archive_file import PackedFile, write_packed
from permille.controller.domain.mapping import DELETED
from permille.controller.domain.named_file import NotRegularError, regular_below
from permille.controller.domain.proc_text import lines_of, text_of, unescaped

PROC = Path("/proc")
# Larger files are taken up to there: of a program with a million functions, and with some 100,000 of 1 KB.
MOST_BYTES = {"perf-map": 64 << 20, "jitdump": 128 << 20}
MOST_BYTES_OF_SESSION = 512 << 20
# Each keeps a file descriptor.
MOST_PROCESSES = 1024
MOST_DUMPS = 4
# A process that ends sooner than this after it has begun its jitdump may end with nobody knowing where it is.
LOOK_S = 1.0
CHUNK = 1 << 20
_DUMP = re.compile(r"jit-[0-9]+\.dump")


def is_jitdump(path: str) -> bool:
    """Whether a mapping of the file only tells where it is: no code is executed in it."""
    return _DUMP.fullmatch(path.removesuffix(DELETED).rpartition("/")[2]) is not None


@dataclass
class _Process:
    """One that is recorded. `root`: a descriptor of its root, which outlives it; `uid`: the real one."""

    pid: int
    root: int
    own_pid: int = 0
    uid: int = -1
    dumps: list[str] = field(default_factory=list)

    def look(self, proc: Path) -> bool:
        """Takes in who it is and which jitdumps it has mapped; False when it has ended."""
        try:
            told = text_of(proc / str(self.pid) / "status")
            maps = text_of(proc / str(self.pid) / "maps")
        except OSError:
            return False
        # proc_pid_status(5): real, effective, saved and file system UID; the pid in each namespace, its own last.
        status = dict(line.split(":\t", 1) for line in lines_of(told) if ":\t" in line)
        self.own_pid, self.uid = int(status["NSpid"].split()[-1]), int(status["Uid"].split()[0])
        for line in lines_of(maps):
            # Under QEMU nothing that the program maps is executable for the kernel.
            *_, path = ["", *line.removesuffix(DELETED).split(None, 5)[5:]]
            if is_jitdump(path) and (named := unescaped(path)) not in self.dumps and len(self.dumps) < MOST_DUMPS:
                self.dumps.append(named)
        # One that is ending has given its memory up already.
        return bool(maps)

    def named(self) -> Iterator[tuple[str, str]]:
        """Kind and path of what it may have written."""
        yield "perf-map", f"/tmp/perf-{self.own_pid}.map"  # noqa: S108
        for path in self.dumps:
            yield "jitdump", path


class JitFiles:
    """Those of a session's processes, while it records and when it has ended. `folder`: that of the session."""

    def __init__(self, folder: Path, proc: Path = PROC) -> None:
        self._folder = folder
        self._proc = proc
        self._processes: dict[int, _Process] = {}
        self._known: set[int] = set()
        self._looked = 0.0
        self._left_bytes = MOST_BYTES_OF_SESSION
        self._files: list[JitFile] = []
        self._notes: list[str] = []

    def due(self, pids: Iterable[int]) -> bool:
        """Whether there is something to look at: it is time, or there are new processes."""
        return time.monotonic() - self._looked > LOOK_S or not self._known.issuperset(pids)

    def look(self, pids: Iterable[int]) -> None:
        """Learns where the processes have their files; takes those of processes that have ended. Raises OSError."""
        for pid in pids:
            if pid not in self._known and len(self._processes) < MOST_PROCESSES:
                self._known.add(pid)
                process = begun(pid, self._proc)
                if process is not None:
                    self._processes[pid] = process
        if time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            for process in [one for one in self._processes.values() if not one.look(self._proc)]:
                self._take(process)

    def take(self) -> JitFilesOfSession:
        """All files, those of processes that are alive as they are now. Raises OSError when there is no room."""
        for process in list(self._processes.values()):
            process.look(self._proc)
            self._take(process)
        return JitFilesOfSession(tuple(self._files), tuple(self._notes))

    def close(self) -> None:
        """Gives everything back that was not taken."""
        while self._processes:
            os.close(self._processes.popitem()[1].root)

    def _take(self, process: _Process) -> None:
        taken = [(kind, path, self._copy(process, kind, path)) for kind, path in process.named()]
        for kind, path, file in taken:
            if file is not None:
                self._files.append(JitFile(process.pid, kind, path.rpartition("/")[2], file))
        os.close(self._processes.pop(process.pid).root)

    def _copy(self, process: _Process, kind: str, path: str) -> PackedFile | None:
        name = f"{path.rpartition('/')[2]} of process {process.pid}"
        try:
            with opened(process, path) as file:
                size, most = os.fstat(file).st_size, min(MOST_BYTES[kind], self._left_bytes)
                if not size:
                    return None
                packed = write_packed(self._folder, JIT, pieces(file, min(size, most)))
        except RefusedError as refused:
            self._notes.append(f"{name} was not taken: {refused}")
            return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        self._left_bytes -= packed.size_bytes
        if size > most:
            self._notes.append(f"{name} has {size} bytes, of which the first {most} were taken")
        return packed


class RefusedError(Exception):
    """A file that is not taken, and why."""


def begun(pid: int, proc: Path = PROC) -> _Process | None:
    """None when it has ended already."""
    try:
        root = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    process = _Process(pid, root)
    if process.look(proc):
        return process
    os.close(root)
    return None


@contextmanager
def opened(process: _Process, path: str) -> Iterator[int]:
    """A descriptor of the file at a path of the process. Raises RefusedError, and OSError when it is not there.

    It may be anything: no link is followed, nothing is waited for, and what the process's user could not read is not
    taken: his own file, or one of root that everybody may read.
    """
    try:
        file = regular_below(process.root, path)
    except NotRegularError:
        raise RefusedError("it is no regular file") from None
    except PermissionError as error:
        raise RefusedError(error.strerror) from None
    try:
        status = os.fstat(file)
        of_root = status.st_uid == 0 and status.st_mode & stat.S_IROTH
        if status.st_uid != process.uid and not of_root:
            raise RefusedError(f"it belongs to user {status.st_uid}, the process to {process.uid}")
        yield file
    finally:
        os.close(file)


def pieces(file: int, size: int) -> Iterator[bytes]:
    """The first bytes of a file that may become shorter meanwhile."""
    left = size
    while left > 0 and (piece := os.read(file, min(CHUNK, left))):
        left -= len(piece)
        yield piece
