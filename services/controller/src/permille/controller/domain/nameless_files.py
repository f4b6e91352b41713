"""Files that a process has mapped and that were removed or replaced since: they are read from the process itself."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from permille.controller.domain import elf_notes
from permille.controller.domain.kept_files import KeptFiles
from permille.controller.domain.mapping import DELETED, Mapping, constant, parsed
from permille.controller.domain.proc_text import text_of
from permille.controller.domain.process_memory import file_without_name
from permille.controller.domain.recording import ImageChange

PROC = Path("/proc")


class NamelessFiles:
    """Those that a process has now; none where it is gone or its memory may not be read."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._process = proc / str(pid)
        # By what maps calls them: ELF files by build id ("" for none).
        self._files: dict[str, dict[str, bytes]] = defaultdict(dict)
        try:
            maps = text_of(self._process / "maps")
            with (self._process / "mem").open("rb", buffering=0) as memory:
                self._read(memory.fileno(), constant(parsed(maps)))
        except OSError:
            pass

    def complete(self, change: ImageChange) -> ImageChange:
        """The change, with the file in it where that is one of these, as it was called when it had a name."""
        if change.event != "map" or not change.path.startswith("/"):
            return change
        path = change.path.removesuffix(DELETED)
        if path == change.path and not change.build_id:
            # It had its name when it was told, and nothing says that it is the one that has none now.
            return change
        code = self._files.get(path + DELETED, {}).get(change.build_id)
        return replace(change, path=path, code=code) if code else change

    def _read(self, memory: int, mappings: Sequence[Mapping]) -> None:
        nameless = {(one.path, one.inode): one for one in mappings if one.path.endswith(DELETED) and one.of_file}
        files = KeptFiles()
        for one in nameless.values():
            code = files.keep(one.path, file_without_name(self._process, memory, filter(one.same_file, mappings)))
            build_id, *_ = elf_notes.names_in(io.BytesIO(code))
            same = self._files[one.path].setdefault(build_id, code)
            if same != code:
                # Nothing says which of them a mapping is of.
                self._files[one.path][build_id] = b""
