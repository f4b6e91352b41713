"""Errors that nobody expected, for the outside: the machine lacks something, or permille has a defect."""

from __future__ import annotations

import secrets

import structlog
from permille.mesh.errors import Internal, PermilleError
from permille.mesh.exhausted import exhausted

_log = structlog.get_logger(__name__)


def unexpected(service: str, error: Exception, **where: str) -> PermilleError:
    """Logs an error and `where` it came; of a defect the outside learns nothing but the id under which it is logged."""
    lack = exhausted(service, error)
    if lack is not None:
        _log.warning("the machine lacks something", lacks=lack.metadata["lacks"], error=str(error), **where)
        return lack
    error_id = secrets.token_hex(6)
    _log.exception("unexpected error", error_id=error_id, exc_info=error, **where)
    return Internal(
        f"{service} met an unexpected error (id {error_id})",
        reason="UNEXPECTED",
        help=f"look for {error_id} in the log of permille-{service}; `permille support-bundle` collects the logs",
        metadata={"error_id": error_id, "service": service},
    )
