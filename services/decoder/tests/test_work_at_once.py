"""Blocking work without threads."""

from __future__ import annotations

import asyncio
import threading

import pytest
from permille.decoder.domain.work_at_once import WorkAtOnce


def refused(why: str) -> None:
    raise ValueError(why)


async def test_work_is_done_where_it_is_asked_for_and_its_errors_are_told() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(WorkAtOnce())
    assert await asyncio.to_thread(threading.current_thread) is threading.current_thread()
    assert await asyncio.gather(*(asyncio.to_thread(divmod, number, 7) for number in (9, 21))) == [(1, 2), (3, 0)]
    with pytest.raises(ValueError, match="damaged"):
        await asyncio.to_thread(refused, "damaged")
