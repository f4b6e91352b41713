"""One way to stand around every call of a server, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]


class CallInterceptor(grpc.aio.ServerInterceptor, ABC):
    """A server interceptor as one context manager that is entered around each call, unary or streaming."""

    @abstractmethod
    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """What to do around one call; `method` is `/package.Service/Method`."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Called by gRPC for each call."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        coders = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), *coders)
        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(self._unary(method, handler.stream_unary), *coders)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), *coders)
        return grpc.stream_stream_rpc_method_handler(self._stream(method, handler.stream_stream), *coders)

    def _unary(self, method: str, behavior: Callable[..., Awaitable[Any]]) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async with self.around(method, context):
                return await behavior(request, context)

        return call

    def _stream(self, method: str, behavior: Callable[..., Any]) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self.around(method, context):
                responses = behavior(request, context)
                if hasattr(responses, "__aiter__"):
                    async for response in responses:
                        yield response
                else:
                    await responses

        return call
