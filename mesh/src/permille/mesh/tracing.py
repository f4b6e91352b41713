"""OpenTelemetry traces of the services themselves, where `otlp_endpoint` says who wants them.

Nothing of it is loaded otherwise: with what it needs it is 4 MB of a service's memory, and time of every call.
"""

# ruff: noqa: PLC0415 - see above
from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from permille.mesh.config import MeshConfig
from permille.mesh.plaintext import require_loopback


def server_interceptors(config: MeshConfig) -> Sequence[Any]:
    """Begin a span for each call that is served."""
    if not config.otlp_endpoint:
        return ()
    from opentelemetry.instrumentation import grpc as instrumentation

    # Not typed by their authors, here and below.
    make: Callable[[], Any] = instrumentation.aio_server_interceptor
    return (make(),)


def client_interceptors(config: MeshConfig) -> Sequence[Any]:
    """Begin a span for each call, and tell the server which it is."""
    if not config.otlp_endpoint:
        return ()
    from opentelemetry.instrumentation import grpc as instrumentation

    make: Callable[[], list[Any]] = instrumentation.aio_client_interceptors
    return make()


def start(service: str, instance: str, config: MeshConfig) -> Callable[[], None]:
    """Sends this process's spans to the OTLP endpoint. Returns what to call at the end, so that the last ones are sent.

    Raises `FailedPrecondition` for plain text off loopback.
    """
    if not config.otlp_endpoint:
        return lambda: None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    endpoint = config.otlp_endpoint.removeprefix("http://").removeprefix("https://")
    plain = not config.otlp_endpoint.startswith("https://")
    if plain:
        require_loopback(endpoint, what="send traces to", setting="otlp_endpoint to an https:// address")
    resource = Resource.create(
        {
            "service.name": f"permille-{service}",
            "service.instance.id": instance,
            "service.namespace": "permille",
            "host.name": config.node,
        }
    )
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=plain)))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def with_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A log event with the trace that it belongs to, for structlog."""
    trace = sys.modules.get("opentelemetry.trace")
    span = trace.get_current_span().get_span_context() if trace is not None else None
    if span is not None and span.is_valid:
        event["trace_id"] = f"{span.trace_id:032x}"
    return event
