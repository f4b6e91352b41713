"""A Python gRPC server that serves nothing: what any such service costs before it does anything."""

from __future__ import annotations

import asyncio

import grpc.aio


async def main() -> None:
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
