"""Which back end records a session: the one that is asked for, else the one that is set, else the best that works."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.processes import not_recordable
from permille.controller.domain.recording import Backend, RecordableProcess
from permille.mesh.errors import InvalidArgument

AUTO = "auto"


class Backends:
    """Those that this release has, the preferred ones first. `preferred`: the node's setting."""

    def __init__(self, backends: Sequence[Backend], preferred: str = AUTO) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._preferred = preferred

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def of(self, name: str) -> Backend:
        """Raises InvalidArgument for a name that nothing here has."""
        found = self._backends.get(name)
        if found is None:
            raise InvalidArgument(
                f"there is no back end {name!r}",
                reason="UNKNOWN_BACKEND",
                help=f"use one of {', '.join(self._backends)}, or {AUTO}",
                metadata={"backend": name},
            )
        return found

    def by_preference(self) -> list[Backend]:
        """Those that work here first."""
        return sorted(self, key=lambda backend: not works(backend))

    def usual(self, wanted: str) -> Backend:
        """What records where nobody names a process: what is asked for or set, else the first that works."""
        named = wanted if wanted not in ("", AUTO) else self._preferred
        return self.of(named) if named != AUTO else self.by_preference()[0]

    def choose(self, wanted: str, pids: Sequence[int]) -> Backend:
        """`wanted` "" or "auto" leaves it to this node.

        Processes that were made ready for a back end go to that one; others to the first that can record any. Raises
        NotOnThisMachine for one that is asked for and does not work; NotFound, PermissionDenied or FailedPrecondition
        (NOT_RECORDABLE) for a process that none can record.
        """
        named = wanted if wanted not in ("", AUTO) else self._preferred
        if named != AUTO:
            chosen = self.of(named)
            chosen.require()
            self._require_processes(chosen, pids)
            return chosen
        for backend in self._backends.values():
            ready = {process.pid for process in backend.processes()}
            if ready.issuperset(pids):
                return backend
        for backend in self._working():
            if all(backend.process(pid) for pid in pids):
                return backend
        raise self._none_for(pids)

    def recordable(self, wanted: str, asked: Collection[int]) -> list[tuple[RecordableProcess, Backend]]:
        """The processes that were made ready, and those of `asked` that can be recorded anyway, with what would."""
        named = wanted if wanted not in ("", AUTO) else self._preferred
        candidates = [self.of(named)] if named != AUTO else list(self._backends.values())
        found: dict[int, tuple[RecordableProcess, Backend]] = {}
        for backend in candidates:
            for process in backend.processes():
                found.setdefault(process.pid, (process, backend))
        for backend in filter(works, candidates):
            for pid in [pid for pid in asked if pid not in found]:
                anyway = backend.process(pid)
                if anyway is not None:
                    found[pid] = (anyway, backend)
        return list(found.values())

    def collect_garbage(self, sessions: Collection[str]) -> None:
        for backend in self._backends.values():
            backend.collect_garbage(sessions)

    def _working(self) -> Iterator[Backend]:
        return filter(works, self._backends.values())

    @staticmethod
    def _require_processes(backend: Backend, pids: Sequence[int]) -> None:
        for pid in pids:
            if backend.process(pid) is None:
                raise not_recordable(pid)

    def _none_for(self, pids: Sequence[int]) -> Exception:
        for pid in pids:
            if not any(backend.process(pid) for backend in self._working()):
                return not_recordable(pid)
        return InvalidArgument(
            f"no back end records the processes {', '.join(map(str, pids))} together",
            reason="BACKENDS_DIFFER",
            help="trace them one by one",
        )


def works(backend: Backend) -> bool:
    """Whether this machine can offer it now."""
    try:
        backend.require()
    except NotOnThisMachine:
        return False
    return True
