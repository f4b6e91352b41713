"""gRPC's server reflection, loaded when somebody first asks for it: it is 4 MB of every service's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import grpc

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class Reflection(grpc.GenericRpcHandler):
    """Tells which services there are, and their methods and messages."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = services

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Called by gRPC for each call of any service."""
        if not handler_call_details.method.startswith(f"/{REFLECTION}/"):
            return None
        handler: grpc.RpcMethodHandler[Any, Any] | None = self._loaded.service(handler_call_details)
        return handler

    @cached_property
    def _loaded(self) -> Any:
        from grpc_reflection.v1alpha import reflection  # noqa: PLC0415 - see above
        from grpc_reflection.v1alpha import reflection_pb2_grpc as rpc  # noqa: PLC0415

        # Not typed by their authors.
        servicer: Callable[[Sequence[str]], Any] = reflection.aio.ReflectionServicer
        add: Callable[[Any, Any], None] = rpc.add_ServerReflectionServicer_to_server

        class Handlers:
            def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
                (self.handler,) = handlers

            def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
                """The same ones, for servers that look methods up by name."""

        handlers = Handlers()
        add(servicer(self._services), handlers)
        return handlers.handler
