"""From a mapping of a process to the file behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from permille.controller.domain.archive import MappedBinary, SourceBinary
from permille.controller.domain.binaries import BinaryIdentity, identify
from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.mapping import parse_maps
from permille.controller.domain.named_file import mapped_file
from permille.controller.domain.proc_text import text_of

PROC = Path("/proc")


class MappedBinaries:
    """Finds the files; what a file is called is remembered for as long as the file does not change."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[tuple[int, FileStamp], BinaryIdentity] = {}

    def find(
        self, roots: Sequence[int], path: str, build_id: str, stamp: FileStamp | None = None
    ) -> MappedBinary | None:
        """As the first of these processes that is there sees it. None when the file is gone, unreadable, or by now
        another one than what was mapped: of that the build id may be known, or else the stamp."""
        processes = [self._proc / str(pid) for pid in roots]
        process = next((process for process in processes if process.exists()), processes[0])
        inside = process / "root" / path.lstrip("/")
        for root in (Path("/"), process / "root"):
            candidate = root / path.lstrip("/")
            # A process in a container has its own root; the file of that name out here is another one then.
            if candidate != inside and not build_id and not same_file(candidate, inside, process):
                continue
            found = self._identity(root, path)
            if found is None:
                continue
            now, identity = found
            same = identity.build_id == build_id if build_id else is_still(stamp, now, process, candidate, path)
            if same:
                debug = SourceBinary(identity.debug_key, str(identity.debug)) if identity.debug else None
                return MappedBinary(identity.build_id, SourceBinary(identity.key, str(candidate)), debug)
        return None

    def _identity(self, root: Path, path: str) -> tuple[FileStamp, BinaryIdentity] | None:
        try:
            with mapped_file(root, path) as file:
                status = file.stat()
                known = status.st_dev, FileStamp.of(status)
                if known not in self._known:
                    self._known[known] = identify(file)
                return known[1], self._known[known]
        except OSError:
            return None


def same_file(outside: Path, inside: Path, process: Path) -> bool:
    """Also true when the process is gone, so that nothing can be said against it."""
    try:
        return outside.samefile(inside)
    except OSError:
        # The kernel names a mapping as its reader sees it: of a program that has changed its root, out here.
        return not process.exists() or has_mapped(process, outside, str(outside))


def is_still(mapped: FileStamp | None, now: FileStamp, process: Path, file: Path, path: str) -> bool:
    """Also true when nobody knows. A file that was only touched is the same: while it is mapped none has its inode."""
    if mapped is None or mapped.same_content(now):
        return True
    return mapped.inode == now.inode and has_mapped(process, file, path)


def has_mapped(process: Path, file: Path, path: str) -> bool:
    try:
        inode = file.stat().st_ino
        mappings = parse_maps(text_of(process / "maps"))
    except OSError:
        return False
    return any((mapping.path, mapping.inode) == (path, inode) for mapping in mappings)
