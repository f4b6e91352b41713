"""The one family of errors that every part of permille raises; it knows neither gRPC nor etcd."""

# ruff: noqa: N818 - they are named as the canonical codes are

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar

from permille.mesh.unicode_text import unicode_text


class Code(IntEnum):
    """The canonical status codes (google.rpc.Code), without `OK`."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class PermilleError(Exception):
    """What went wrong, which value, what is allowed and what to do.

    `reason` is a stable word in capitals for programs, `message` a sentence for people, `help` the way out (a command
    or a setting), `metadata` the values involved. `retry_after_s` is set only where doing the same again can help.
    """

    def __init__(
        self,
        message: str,
        *,
        code: Code = Code.UNKNOWN,
        reason: str,
        help: str = "",  # noqa: A002 - the word of google.rpc.Help
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.message = unicode_text(message)
        super().__init__(self.message)
        self.code = code
        self.reason = reason
        self.help = unicode_text(help)
        self.metadata = {key: unicode_text(value) for key, value in (metadata or {}).items()}
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        told = {
            "reason": self.reason,
            "help": self.help,
            "metadata": self.metadata,
            "retry_after_s": self.retry_after_s,
        }
        return _from_another_process, (int(self.code), self.message, told)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.reason}, {self.message!r})"


class _CodedError(PermilleError):
    CODE: ClassVar[Code]

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        help: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(
            message, code=self.CODE, reason=reason, help=help, metadata=metadata, retry_after_s=retry_after_s
        )


class Cancelled(_CodedError):
    """Somebody asked for the work to end."""

    CODE = Code.CANCELLED


class InvalidArgument(_CodedError):
    """A value that is wrong whatever the state of the system."""

    CODE = Code.INVALID_ARGUMENT


class DeadlineExceeded(_CodedError):
    """The work did not end within the time allowed for it."""

    CODE = Code.DEADLINE_EXCEEDED


class NotFound(_CodedError):
    """The thing named does not exist."""

    CODE = Code.NOT_FOUND


class AlreadyExists(_CodedError):
    """The thing to create is there already."""

    CODE = Code.ALREADY_EXISTS


class PermissionDenied(_CodedError):
    """The caller is known and may not do this."""

    CODE = Code.PERMISSION_DENIED


class ResourceExhausted(_CodedError):
    """A quota, a disk or a memory budget is used up."""

    CODE = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(_CodedError):
    """The system is not in the state that this needs; repeating alone does not help."""

    CODE = Code.FAILED_PRECONDITION


class Aborted(_CodedError):
    """A concurrent change won; reading again and repeating may help."""

    CODE = Code.ABORTED


class Internal(_CodedError):
    """A defect of permille."""

    CODE = Code.INTERNAL


class Unavailable(_CodedError):
    """A part cannot be reached now; repeating later may help."""

    CODE = Code.UNAVAILABLE


class DataLoss(_CodedError):
    """Stored data are damaged or gone."""

    CODE = Code.DATA_LOSS


class Unauthenticated(_CodedError):
    """The caller did not show who it is."""

    CODE = Code.UNAUTHENTICATED


_BY_CODE: dict[Code, type[_CodedError]] = {kind.CODE: kind for kind in _CodedError.__subclasses__()}


def error_of(
    code: int,
    message: str,
    *,
    reason: str,
    help: str = "",  # noqa: A002
    metadata: Mapping[str, str] | None = None,
    retry_after_s: float | None = None,
) -> PermilleError:
    """The error of the class that belongs to a canonical code; codes without a class give a plain `PermilleError`."""
    known = Code(code) if code in Code.__members__.values() else Code.UNKNOWN
    kind = _BY_CODE.get(known)
    if kind is None:
        return PermilleError(
            message, code=known, reason=reason, help=help, metadata=metadata, retry_after_s=retry_after_s
        )
    return kind(message, reason=reason, help=help, metadata=metadata, retry_after_s=retry_after_s)


def _from_another_process(code: int, message: str, told: dict[str, Any]) -> PermilleError:
    return error_of(code, message, **told)
