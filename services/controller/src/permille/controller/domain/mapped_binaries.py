"""From a mapping of a process to the file behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from permille.controller.domain.archive import MappedBinary, SourceBinary
from permille.controller.domain.binaries import BinaryIdentity, identify
from permille.controller.domain.mapping import parse_maps
from permille.controller.domain.named_file import mapped_file
from permille.controller.domain.proc_text import text_of

PROC = Path("/proc")
Stamp = tuple[int, int, int, int]


class MappedBinaries:
    """Finds the files; what a file is called is remembered for as long as the file does not change."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[Stamp, BinaryIdentity] = {}

    def find(self, roots: Sequence[int], path: str, build_id: str) -> MappedBinary | None:
        """As the first of these processes that is there sees it. None when the file is gone, unreadable, or by now
        another one than what was mapped."""
        processes = [self._proc / str(pid) for pid in roots]
        process = next((process for process in processes if process.exists()), processes[0])
        inside = process / "root" / path.lstrip("/")
        for root in (Path("/"), process / "root"):
            candidate = root / path.lstrip("/")
            # A process in a container has its own root; the file of that name out here is another one then.
            if candidate != inside and not build_id and not same_file(candidate, inside, process):
                continue
            identity = self._identity(root, path)
            if identity is not None and build_id in ("", identity.build_id):
                debug = SourceBinary(identity.debug_key, str(identity.debug)) if identity.debug else None
                return MappedBinary(identity.build_id, SourceBinary(identity.key, str(candidate)), debug)
        return None

    def _identity(self, root: Path, path: str) -> BinaryIdentity | None:
        try:
            with mapped_file(root, path) as file:
                stat = file.stat()
                stamp = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
                if stamp not in self._known:
                    self._known[stamp] = identify(file)
                return self._known[stamp]
        except OSError:
            return None


def same_file(outside: Path, inside: Path, process: Path) -> bool:
    """Also true when the process is gone, so that nothing can be said against it."""
    try:
        return outside.samefile(inside)
    except OSError:
        # The kernel names a mapping as its reader sees it: of a program that has changed its root, out here.
        return not process.exists() or has_mapped(process, outside)


def has_mapped(process: Path, file: Path) -> bool:
    try:
        inode = file.stat().st_ino
        mappings = parse_maps(text_of(process / "maps"))
    except OSError:
        return False
    return any((mapping.path, mapping.inode) == (str(file), inode) for mapping in mappings)
