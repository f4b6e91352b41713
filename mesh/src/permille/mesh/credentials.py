"""The TLS side of servers and channels, from the configured files."""

from __future__ import annotations

from pathlib import Path

import grpc
from permille.mesh.config import MeshConfig
from permille.mesh.errors import FailedPrecondition


def server_credentials(config: MeshConfig) -> grpc.ServerCredentials | None:
    """What a server needs to demand and check client certificates; None: plain text is configured."""
    if config.tls_ca is None or config.tls_cert is None or config.tls_key is None:
        return None
    pair = (_read(config.tls_key), _read(config.tls_cert))
    return grpc.ssl_server_credentials([pair], root_certificates=_read(config.tls_ca), require_client_auth=True)


def channel_credentials(config: MeshConfig) -> grpc.ChannelCredentials | None:
    """What a client needs to check a server and to show who it is; None: plain text is configured."""
    if config.tls_ca is None or config.tls_cert is None or config.tls_key is None:
        return None
    return grpc.ssl_channel_credentials(_read(config.tls_ca), _read(config.tls_key), _read(config.tls_cert))


def server_name(service: str) -> str:
    """The name that a service's certificate carries and its clients expect, wherever it runs."""
    return f"{service}.permille"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FailedPrecondition(
            f"cannot read the TLS file {path}: {error.strerror}",
            reason="TLS_FILE",
            help="check tls_ca, tls_cert and tls_key; `permille certs` creates them",
            metadata={"path": str(path)},
        ) from None
