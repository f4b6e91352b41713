"""The exit codes of every command: one for each family of errors."""

from __future__ import annotations

from permille.mesh.errors import Code, PermilleError

OK = 0
DEFECT = 1
USAGE = 2
NOT_FOUND = 3
PRECONDITION = 4
DENIED = 5
UNAVAILABLE = 6
DEADLINE = 7
EXHAUSTED = 8
DATA_LOSS = 9
CANCELLED = 130

MEANINGS = {
    OK: "done",
    DEFECT: "a defect of permille, or an error of no other family",
    USAGE: "wrong usage: an unknown option, a value that cannot be meant",
    NOT_FOUND: "the process, session, file or service named does not exist",
    PRECONDITION: "not possible in the present state (not recordable, recorded already, busy, existing)",
    DENIED: "no permission, or nobody known",
    UNAVAILABLE: "a service, etcd or the store cannot be reached",
    DEADLINE: "it took longer than allowed",
    EXHAUSTED: "a disk, a quota or a memory budget is used up",
    DATA_LOSS: "stored data are damaged or gone",
    CANCELLED: "cancelled, or interrupted: Ctrl-C, SIGTERM, SIGHUP",
}

_BY_CODE = {
    Code.INVALID_ARGUMENT: USAGE,
    Code.OUT_OF_RANGE: USAGE,
    Code.NOT_FOUND: NOT_FOUND,
    Code.FAILED_PRECONDITION: PRECONDITION,
    Code.ALREADY_EXISTS: PRECONDITION,
    Code.ABORTED: PRECONDITION,
    Code.PERMISSION_DENIED: DENIED,
    Code.UNAUTHENTICATED: DENIED,
    Code.UNAVAILABLE: UNAVAILABLE,
    Code.DEADLINE_EXCEEDED: DEADLINE,
    Code.RESOURCE_EXHAUSTED: EXHAUSTED,
    Code.DATA_LOSS: DATA_LOSS,
    Code.CANCELLED: CANCELLED,
}


def exit_code(error: PermilleError) -> int:
    """The exit code of the family that an error belongs to."""
    return _BY_CODE.get(error.code, DEFECT)


def table() -> str:
    """All codes with their meanings, one a line, for the help."""
    return "\n\n".join(f"[bold]{code:>3}[/bold] {meaning}" for code, meaning in MEANINGS.items())
