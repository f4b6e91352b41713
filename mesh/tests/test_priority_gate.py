"""Who is let in next."""

from __future__ import annotations

import asyncio

from permille.mesh.priority_gate import PriorityGate


class Visitors:
    """Enter one by one and stay until they are told to leave."""

    def __init__(self, gate: PriorityGate) -> None:
        self.gate = gate
        self.inside: list[str] = []
        self.leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, priority: int = 0) -> None:
        async def visit() -> None:
            async with self.gate.turn(priority):
                self.inside.append(name)
                await self.leave[name].wait()

        self.leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(visit())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def go(self, name: str) -> None:
        self.leave[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_the_most_urgent_goes_first_and_among_equals_the_older() -> None:
    visitors = Visitors(PriorityGate(lambda: 1))
    for name, priority in [("a", 0), ("b", 0), ("c", 5), ("d", -1), ("e", 5)]:
        await visitors.come(name, priority)
    for name in "acebd":
        assert visitors.inside[-1] == name
        await visitors.go(name)


async def test_who_gives_up_takes_no_room() -> None:
    visitors = Visitors(PriorityGate(lambda: 1))
    for name in "abc":
        await visitors.come(name)
    visitors.tasks["b"].cancel()
    # In the moment in which it is let in.
    visitors.leave["a"].set()
    await asyncio.gather(visitors.tasks["a"], visitors.tasks["b"], return_exceptions=True)
    await asyncio.sleep(0.01)
    assert visitors.inside == ["a", "c"]
    await visitors.go("c")
    await visitors.come("d")
    assert visitors.inside[-1] == "d"


async def test_more_room_lets_more_in() -> None:
    room = 1
    visitors = Visitors(PriorityGate(lambda: room))
    for name in "abc":
        await visitors.come(name)
    room = 2
    visitors.gate.look()
    await asyncio.sleep(0.01)
    assert visitors.inside == ["a", "b"]
