"""Errors on the wire: the only place that knows how a `PermilleError` and a google.rpc.Status become each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from permille.mesh.call_interceptor import CallInterceptor, Context
from permille.mesh.errors import Code, PermilleError, error_of
from permille.mesh.unexpected import unexpected

DOMAIN = "permille"
_DETAILS_KEY = "grpc-status-details-bin"
# Trailing metadata must stay below 8 KiB (gRPC's default limit), details and message together.
_MOST_TEXT = 2000

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class ErrorInterceptor(CallInterceptor):
    """Turns what a servicer raises into a status with ErrorInfo, RetryInfo and Help.

    Anything but a `PermilleError` or a failed call of another service is `unexpected`.
    """

    def __init__(self, service: str) -> None:
        self._service = service

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Waits for the call's error."""
        try:
            yield
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except PermilleError as error:
            await _abort(context, error)
        except grpc.RpcError as error:
            await _abort(context, from_rpc_error(error))
        except Exception as error:
            await _abort(context, unexpected(self._service, error, method=method))


def to_status(error: PermilleError) -> status_pb2.Status:
    """The error as google.rpc.Status with ErrorInfo(domain "permille") and, where known, RetryInfo and Help."""
    status = status_pb2.Status(code=int(error.code), message=error.message[:_MOST_TEXT])
    metadata = {key: value[:_MOST_TEXT] for key, value in error.metadata.items()}
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata))
    if error.retry_after_s is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.help:
        links = [error_details_pb2.Help.Link(description=error.help[:_MOST_TEXT])]
        status.details.add().Pack(error_details_pb2.Help(links=links))
    return status


def from_status(status: status_pb2.Status) -> PermilleError:
    """The error that `to_status` wrote."""
    reason, help_text, retry_after_s = "", "", None
    metadata: dict[str, str] = {}
    for detail in status.details:
        info, retry, advice = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.Help()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(advice):
            help_text = "; ".join(link.description for link in advice.links)
    return error_of(
        status.code,
        status.message,
        reason=reason or _reason_of(status.code),
        help=help_text or _HELP.get(status.code, ""),
        metadata=metadata,
        retry_after_s=retry_after_s,
    )


def from_rpc_error(error: grpc.RpcError) -> PermilleError:
    """What a failed call says, as the error that the server raised; also for failures of the transport itself."""
    failure: Any = error
    for key, value in failure.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            return from_status(status_pb2.Status.FromString(value))
    code = failure.code()
    # Of a call that this side did not give up: the server ended in the middle of it.
    if code == grpc.StatusCode.CANCELLED:
        code = grpc.StatusCode.UNAVAILABLE
    message = failure.details() or ""
    if message == _TIME_IS_UP:
        message = "there was no answer in time"
    return from_status(status_pb2.Status(code=code.value[0], message=message))


# What the transport says of a call that it gave up, perhaps after it had asked a server that waits again and again.
_TIME_IS_UP = "Deadline Exceeded"
_HELP = {
    int(Code.UNAVAILABLE): (
        "is the mesh running, and do both sides use TLS or neither? `permille doctor` shows it; `permille up` starts it"
    ),
    int(Code.DEADLINE_EXCEEDED): (
        "`permille doctor` shows which services answer, and whether etcd does; or try again, with more time"
    ),
    int(Code.UNIMPLEMENTED): "client and server are of different versions; `permille doctor` shows both",
}


def _reason_of(code: int) -> str:
    return {int(Code.UNAVAILABLE): "UNREACHABLE"}.get(code) or (
        Code(code).name if code in Code.__members__.values() else "UNKNOWN"
    )


async def _abort(context: Context, error: PermilleError) -> None:
    details = ((_DETAILS_KEY, to_status(error).SerializeToString()),)
    await context.abort(_STATUS_CODES[int(error.code)], error.message[:_MOST_TEXT], details)
