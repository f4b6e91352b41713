"""Errors that nobody expected, for the outside: the machine lacks something, or permille has a defect."""

from __future__ import annotations

import errno
import secrets

import structlog
from permille.mesh.errors import Internal, PermilleError, ResourceExhausted

_log = structlog.get_logger(__name__)
_THREADS = ("threads", "raise the limit of processes (pids.max of its cgroup, `ulimit -u`)")
_FILES = ("open files", "raise the limit of files (`ulimit -n`)")
_MEMORY = ("memory", "raise its memory limit (memory.max of its cgroup), or free some on the machine")
_BY_NUMBER = {errno.EMFILE: _FILES, errno.ENFILE: _FILES, errno.ENOMEM: _MEMORY}


def unexpected(service: str, error: Exception, **where: str) -> PermilleError:
    """Logs an error and `where` it came; of a defect the outside learns nothing but the id under which it is logged."""
    lack = _lack(error)
    if lack is not None:
        what, way_out = lack
        _log.warning("the machine lacks something", lacks=what, error=str(error), **where)
        return ResourceExhausted(
            f"{service} can have no more {what} on its machine",
            reason="MACHINE_EXHAUSTED",
            help=f"{way_out}; then try again",
            metadata={"service": service, "lacks": what},
            retry_after_s=1.0,
        )
    error_id = secrets.token_hex(6)
    _log.exception("unexpected error", error_id=error_id, exc_info=error, **where)
    return Internal(
        f"{service} met an unexpected error (id {error_id})",
        reason="UNEXPECTED",
        help=f"look for {error_id} in the log of permille-{service}; `permille support-bundle` collects the logs",
        metadata={"error_id": error_id, "service": service},
    )


def _lack(error: Exception) -> tuple[str, str] | None:
    """What there is too little of, and what to do."""
    match error:
        case MemoryError():
            return _MEMORY
        # threading.Thread.start has no error of its own for it.
        case RuntimeError() if str(error) == "can't start new thread":
            return _THREADS
        case OSError(errno=int(number)):
            return _BY_NUMBER.get(number)
    return None
