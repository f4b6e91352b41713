"""Code that a program writes at run time, as it stood in memory at each look: programs write over it.

What was written where nothing stood is as if it had always been there, what was written over something is there from
the look on that found it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby

PAGE = 4096
NOTHING = bytes(PAGE)
# Compilers align what they write at least so; of what is written behind them the bytes before are none.
LINE = 16
# So many pages of what was written over are kept, the newest: 64 MiB.
MOST_REPLACED = 1 << 14


class GeneratedCode:
    """One process's, by page."""

    def __init__(self) -> None:
        # From which TSC on it was what, the first from the beginning on.
        self._pages: dict[int, list[tuple[int, bytes]]] = {}
        self._replaced: deque[int] = deque()

    @property
    def written_over(self) -> int:
        """How many pages held something else before, each time that they did."""
        return len(self._replaced)

    def inherit(self, other: GeneratedCode) -> None:
        """What another process had is this one's, as far as it has none."""
        for address, versions in other._pages.items():
            self._pages.setdefault(address, [(0, versions[-1][1])])

    def take(self, begin: int, code: bytes, tsc: int) -> None:
        """What stands from `begin` on at that time, which is never before that of an earlier call."""
        for offset in range(0, len(code), PAGE):
            page = code[offset : offset + PAGE]
            versions = self._pages.get(begin + offset)
            if versions is None:
                self._pages[begin + offset] = [(0, NOTHING if page == NOTHING else page)]
            elif versions[-1][1] != page:
                self._write(begin + offset, versions, page, tsc)

    def at(self, begin: int, end: int, tsc: int) -> Iterator[tuple[int, bytes]]:
        """What is known of the range at that time, by address; of what came later, what it was first."""
        known = ((address, self._pages.get(address)) for address in range(begin, end, PAGE))
        for _, run in groupby(known, lambda page: page[1] is not None):
            pages = [(address, version(versions, tsc)) for address, versions in run if versions is not None]
            if pages:
                yield pages[0][0], b"".join(page for _, page in pages)

    def later(self) -> Iterator[tuple[int, int, int]]:
        """TSC, begin and end of what was written over something else."""
        written = sorted((tsc, address) for address, versions in self._pages.items() for tsc, _ in versions[1:])
        for (tsc, _), run in groupby(enumerate(written), lambda page: (page[1][0], page[1][1] - page[0] * PAGE)):
            addresses = [address for _, (_, address) in run]
            yield tsc, addresses[0], addresses[-1] + PAGE

    def _write(self, address: int, versions: list[tuple[int, bytes]], page: bytes, tsc: int) -> None:
        versions[:] = [(since, with_new_lines(before, page)) for since, before in versions]
        if versions[-1][1] == page:
            return
        versions.append((tsc, page))
        self._replaced.append(address)
        if len(self._replaced) > MOST_REPLACED:
            oldest = self._pages[self._replaced.popleft()]
            del oldest[0]
            oldest[0] = (0, oldest[0][1])


def version(versions: list[tuple[int, bytes]], tsc: int) -> bytes:
    return next((page for since, page in reversed(versions) if since <= tsc), versions[0][1])


def with_new_lines(before: bytes, page: bytes) -> bytes:
    """What was written where nothing stood, and all else as it was."""
    written = -(-len(before.rstrip(b"\0")) // LINE) * LINE
    if before[:written] == page[:written]:
        return page
    lines = (slice(offset, offset + LINE) for offset in range(0, written, LINE))
    return b"".join(before[line] if any(before[line]) else page[line] for line in lines) + page[written:]
