"""permille for other systems: start recordings, follow them, and ask what has been seen."""

from permille.client.asynchronous import AsyncClient
from permille.client.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermilleError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from permille.client.synchronous import Client
from permille.client.wishes import session_set, wish

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InvalidArgument",
    "NotFound",
    "PermilleError",
    "PermissionDenied",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "session_set",
    "wish",
]
