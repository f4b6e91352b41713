"""Threads of which some may wait for ever."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from permille.mesh.own_threads import OwnThreads


async def test_what_waits_in_them_keeps_nothing_else_waiting() -> None:
    there = threading.Event()
    threads = OwnThreads(100, "waiting")
    waiting = [asyncio.create_task(threads.run(there.wait)) for _ in range(100)]
    await asyncio.sleep(0)
    try:
        assert await asyncio.to_thread(lambda: 1) == 1
    finally:
        there.set()
    assert all(await asyncio.gather(*waiting))


async def test_they_know_what_their_caller_does() -> None:
    known: contextvars.ContextVar[str] = contextvars.ContextVar("known")
    known.set("here")
    assert await OwnThreads(1, "knowing").run(known.get) == "here"
