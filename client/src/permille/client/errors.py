"""What a call or an operation failed with, as the server said it."""

# ruff: noqa: N818 - they are named as the canonical codes are

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import grpc
from google.rpc import error_details_pb2, status_pb2
from permille.api.operation.v1 import operation_pb2

_DETAILS_KEY = "grpc-status-details-bin"


class PermilleError(Exception):
    """What went wrong. `reason` is a stable word in capitals, `help` the way out, `metadata` the values involved.

    `retry_after_s` is set where the same call can succeed after that time. `code`: one of google.rpc.Code; codes
    without a class of their own are of this class.
    """

    CODE: ClassVar[int] = 2

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: int | None = None,
        help: str = "",  # noqa: A002 - the word of google.rpc.Help
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{message} ({help})" if help else message)
        self.message = message
        self.reason = reason
        self.code = self.CODE if code is None else code
        self.help = help
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s


class Cancelled(PermilleError):
    """Somebody asked for the end of the operation."""

    CODE = 1


class InvalidArgument(PermilleError):
    """A value that is wrong whatever runs."""

    CODE = 3


class DeadlineExceeded(PermilleError):
    """No answer in time; the call may have been done."""

    CODE = 4


class NotFound(PermilleError):
    """No such process, node, operation or session."""

    CODE = 5


class PermissionDenied(PermilleError):
    """The certificate's role does not allow it, or the operation is somebody else's."""

    CODE = 7


class ResourceExhausted(PermilleError):
    """A rate limit or a quota; `retry_after_s` says when to ask again."""

    CODE = 8


class FailedPrecondition(PermilleError):
    """It cannot be recorded as things are."""

    CODE = 9


class Unavailable(PermilleError):
    """Nobody answers, or a part of the mesh is away."""

    CODE = 14


class Unauthenticated(PermilleError):
    """No certificate was shown."""

    CODE = 16


# Nobody has answered: another replica may, or the same one later.
AWAY = (Unavailable, DeadlineExceeded)
_REASONS = {Unavailable.CODE: "UNREACHABLE", DeadlineExceeded.CODE: "DEADLINE_EXCEEDED"}
_BY_CODE = {kind.CODE: kind for kind in PermilleError.__subclasses__()}


def error_of_call(failure: grpc.RpcError) -> PermilleError:
    """The error in a failed call; also where the transport failed."""
    call: Any = failure
    for key, value in call.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            return _of_status(status_pb2.Status.FromString(value))
    return _of_status(status_pb2.Status(code=call.code().value[0], message=call.details() or call.code().name))


def error_of_operation(operation: operation_pb2.Operation) -> PermilleError | None:
    """Why an operation failed; None when it did not."""
    if not operation.HasField("error"):
        return None
    told = operation.error
    return _made(told.code, told.message, reason=told.reason, help=told.help, metadata=told.metadata)


def _of_status(status: status_pb2.Status) -> PermilleError:
    told: dict[str, Any] = {"reason": _REASONS.get(status.code, "UNKNOWN")}
    for detail in status.details:
        info, retry, advice = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.Help()
        if detail.Unpack(info):
            told |= {"reason": info.reason, "metadata": info.metadata}
        elif detail.Unpack(retry):
            told["retry_after_s"] = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(advice):
            told["help"] = "; ".join(link.description for link in advice.links)
    return _made(status.code, status.message, **told)


def _made(code: int, message: str, **told: Any) -> PermilleError:
    return _BY_CODE.get(code, PermilleError)(message, code=code, **told)
