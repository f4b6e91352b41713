"""What a service says about itself: Prometheus metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog
from permille.mesh.call_interceptor import CallInterceptor, Context
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Code, FailedPrecondition
from permille.mesh.plaintext import is_loopback, require_loopback
from prometheus_client import Counter, Gauge, Histogram, start_http_server

_log = structlog.get_logger(__name__)

CALLS = Counter("permille_calls_total", "Calls served, by method and status code.", ["method", "code"])
CALL_SECONDS = Histogram(
    "permille_call_seconds",
    "Time that calls took.",
    ["method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
CALLS_IN_PROGRESS = Gauge("permille_calls_in_progress", "Calls being served now.", ["method"])


class MetricsInterceptor(CallInterceptor):
    """Counts and times every call."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Measures from the first byte of the request to the end of the answer."""
        begin = time.monotonic()
        CALLS_IN_PROGRESS.labels(method).inc()
        code = "CANCELLED"
        try:
            yield
            code = _code(context)
        except Exception:
            code = _code(context, failed=True)
            raise
        finally:
            CALLS_IN_PROGRESS.labels(method).dec()
            CALLS.labels(method, code).inc()
            CALL_SECONDS.labels(method).observe(time.monotonic() - begin)


def start_metrics(config: MeshConfig) -> tuple[str, Callable[[], None]]:
    """Serves /metrics; its address ("" when off) and what ends it.

    With TLS configured it asks for a client certificate as everything else does.
    Raises `FailedPrecondition` for plain text off loopback and for a port in use.
    """
    if config.metrics in ("", "off"):
        return "", lambda: None
    host, _, port = config.metrics.rpartition(":")
    if not config.tls and not is_loopback(config.metrics):
        require_loopback(config.metrics, what="serve /metrics on")
    tls = (
        {
            "certfile": str(config.tls_cert),
            "keyfile": str(config.tls_key),
            "client_cafile": str(config.tls_ca),
            "client_auth_required": True,
        }
        if config.tls
        else {}
    )
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), **tls)  # type: ignore[arg-type]
    except OSError as error:
        raise FailedPrecondition(
            f"cannot serve /metrics on {config.metrics}: {error.strerror}",
            reason="PORT_IN_USE",
            help="choose another port with --metrics HOST:PORT, 0 for a free one, or `off`",
            metadata={"address": config.metrics},
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)

    return f"{host}:{server.server_port}", stop


def _code(context: Any, *, failed: bool = False) -> str:
    code = context.code()
    number = code.value[0] if hasattr(code, "value") else int(code or 0)
    if number == 0:
        return "UNKNOWN" if failed else "OK"
    return Code(number).name if number in Code.__members__.values() else "UNKNOWN"
