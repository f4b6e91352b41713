"""A thousand changes at once are few writes, and none returns before it is written."""

from __future__ import annotations

import asyncio

import pytest
from permille.coverage.service.group_commit import GroupCommit


async def test_changes_that_come_during_a_write_share_the_next() -> None:
    state: list[int] = []
    written: list[list[int]] = []

    async def write() -> None:
        now = list(state)
        await asyncio.sleep(0)
        written.append(now)

    commits = GroupCommit(write)

    async def change(number: int) -> None:
        state.append(number)
        await commits.commit()
        assert number in written[-1]

    await asyncio.gather(*(change(number) for number in range(1000)))
    assert written[-1] == list(range(1000))
    assert len(written) <= 2


async def test_changes_that_come_during_the_pause_before_a_write_share_it() -> None:
    state: list[int] = []
    written: list[list[int]] = []

    async def write() -> None:
        written.append(list(state))

    commits = GroupCommit(write, pause_s=0.01)

    async def change(number: int) -> None:
        state.append(number)
        await commits.commit()

    first = asyncio.create_task(change(1))
    await asyncio.sleep(0)
    await asyncio.gather(first, change(2))
    assert written == [[1, 2]]


async def test_a_write_that_fails_fails_its_change_and_not_the_next() -> None:
    failures = [ValueError("full")]

    async def write() -> None:
        if failures:
            raise failures.pop()

    commits = GroupCommit(write)
    with pytest.raises(ValueError, match="full"):
        await commits.commit()
    await commits.commit()
