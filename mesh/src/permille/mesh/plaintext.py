"""Plain text stays on this machine: everything that leaves it needs mutual TLS."""

from __future__ import annotations

import ipaddress

from permille.mesh.errors import FailedPrecondition


def is_loopback(endpoint: str) -> bool:
    """Whether HOST:PORT is an address of this machine alone."""
    host = endpoint.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(endpoint: str, *, what: str, setting: str = "tls_ca, tls_cert and tls_key") -> None:
    """Raises `FailedPrecondition` when plain text would leave this machine. `what`: "listen on", "call", ..."""
    if not is_loopback(endpoint):
        raise FailedPrecondition(
            f"refusing to {what} {endpoint} in plain text: only loopback addresses may go without TLS",
            reason="TLS_REQUIRED",
            help=f"create certificates with `permille certs` and set {setting}, or use a 127.0.0.1 address",
            metadata={"endpoint": endpoint},
        )
