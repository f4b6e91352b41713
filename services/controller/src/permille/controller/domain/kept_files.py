"""Files that are kept in memory because they have no name any more, each once."""

from __future__ import annotations

# Of one recording: a program may map as many as it likes.
MOST_BYTES = 256 << 20


class KeptFiles:
    """Up to so many bytes of them in all."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._left = self._most = most
        self._files: dict[bytes, bytes] = {}
        self._left_out: set[str] = set()

    def keep(self, path: str, content: bytes) -> bytes:
        """The content, shared with whoever has the same; nothing where it has no room."""
        if (known := self._files.get(content)) is not None:
            return known
        if len(content) > self._left:
            self._left_out.add(path)
            return b""
        self._left -= len(content)
        self._files[content] = content
        return content

    @property
    def note(self) -> str:
        """What was left out, for people; empty where nothing was."""
        if not self._left_out:
            return ""
        more = f" and {len(self._left_out) - 1:,} more" if len(self._left_out) > 1 else ""
        what = f"of files that were removed or replaced up to {self._most >> 20} MiB are kept"
        return f"{min(self._left_out)}{more}: {what}: what ran in these has no names"
