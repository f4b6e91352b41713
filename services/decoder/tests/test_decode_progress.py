"""What is told of a decode while it goes on."""

from __future__ import annotations

import asyncio

from permille.decoder.service.decode_progress import DecodeProgress


async def test_a_part_that_ends_while_another_is_told_is_told_too() -> None:
    told: list[int] = []
    telling, go_on = asyncio.Event(), asyncio.Event()

    async def tell(done: int, _total: int, _waiting: str) -> None:
        told.append(done)
        if done == 2:
            telling.set()
            await go_on.wait()

    progress = DecodeProgress(tell)
    await progress.moved_to(1, 10)
    second = asyncio.create_task(progress.moved_to(2, 10))
    async with asyncio.timeout(60):
        await telling.wait()
        await progress.moved_to(3, 10)
        go_on.set()
        while told[-1] != 3:
            await asyncio.sleep(0.01)
    await second
    assert told == [1, 2, 3]
    await progress.end()


async def test_the_end_is_told_at_once_and_less_than_before_never() -> None:
    told: list[int] = []

    async def tell(done: int, _total: int, _waiting: str) -> None:
        told.append(done)

    progress = DecodeProgress(tell)
    await progress.moved_to(7, 10)
    await progress.moved_to(0, 10)
    await progress.moved_to(10, 10)
    await progress.end()
    assert told == [7, 10]


async def test_what_a_process_that_died_has_told_is_not_taken_back() -> None:
    told: list[int] = []

    async def tell(done: int, _total: int, _waiting: str) -> None:
        told.append(done)

    progress = DecodeProgress(tell, begun_at=7)
    await progress.moved_to(5, 10)
    await progress.moved_to(10, 10)
    await progress.end()
    assert told == [7, 10]
    # Of a session that was recorded anew there may be less.
    shorter = DecodeProgress(tell, begun_at=7)
    await shorter.moved_to(0, 3)
    assert told[-1] == 3


async def test_what_is_waited_for_is_told_once_and_until_it_is_there() -> None:
    told: list[tuple[int, int, str]] = []

    async def tell(done: int, total: int, waiting: str) -> None:
        told.append((done, total, waiting))

    progress = DecodeProgress(tell, begun_at=7, total=20)
    for _ in range(2):
        await progress.waits("for workers")
    # Another attempt begins with what it knows.
    await progress.moved_to(7, 20)
    await progress.goes_on()
    await progress.goes_on()
    await progress.end()
    assert [one for number, one in enumerate(told) if one not in told[:number]] == [(7, 20, "for workers"), (7, 20, "")]
    assert told[-1] == (7, 20, "")
