"""What a controller must not forget: one folder per session that is not finished, on disk.

`session.json` is the session as it was last; `switches.raw` the switch records as the kernel stamped them; when the
recording has been read out, all of it beside them, at last as an archive. A session whose folder is gone is finished.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.archive import MANIFEST, SPOOLED
from permille.controller.domain.archive_file import write_whole
from permille.controller.domain.session import Session, from_json, to_json

SESSION = "session.json"


@dataclass(frozen=True)
class Entry:
    """One session's folder."""

    folder: Path

    @property
    def raw_switches(self) -> Path:
        return self.folder / "switches.raw"

    @property
    def spooled(self) -> bool:
        """Whether all of the recording is here, so that the recorder's own memory is not needed any more."""
        return (self.folder / SPOOLED).exists() or self.archived

    @property
    def archived(self) -> bool:
        """Whether the archive is complete."""
        return (self.folder / MANIFEST).exists()

    def save(self, session: Session) -> None:
        write_whole(self.folder / SESSION, to_json(session))

    def remove(self) -> None:
        # Without its session a folder is nothing: it goes first, in case the rest cannot be removed at once.
        (self.folder / SESSION).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Journal:
    """All sessions that are not finished, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, session: Session) -> Entry:
        """The folder of a session, made and saved when it is new. Raises OSError."""
        entry = Entry(self._folder / session.id)
        entry.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        entry.save(session)
        return entry

    def size_bytes(self) -> int:
        """What all sessions together have on disk."""
        return sum(size_of(file) for file in self._folder.glob("*/*"))

    def unfinished(self) -> list[Session]:
        """Sessions of an earlier controller, oldest first; a folder without a readable session is removed."""
        sessions = []
        for folder in sorted(self._folder.iterdir()) if self._folder.is_dir() else []:
            try:
                sessions.append(from_json((folder / SESSION).read_bytes()))
            except (OSError, ValueError):
                shutil.rmtree(folder, ignore_errors=True)
        return sessions


def size_of(file: Path) -> int:
    """0 for one that goes meanwhile."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
