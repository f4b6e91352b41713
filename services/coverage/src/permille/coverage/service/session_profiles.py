"""Profiles of decoded sessions, read from the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from permille.coverage.domain.profile import Edge, Function, Profile, Totals
from permille.coverage.domain.unseen import Incidence
from permille.coverage.service.table_reader import TableReader, text_literal
from permille.mesh.errors import FailedPrecondition

_SESSIONS = "SELECT session_id, session, target, start_ns, period_ms, raw_bytes, lost_bytes FROM sessions"
_FUNCTIONS = """
SELECT session_id, function, module, coalesce(build_id, '') AS build_id, address, name,
 calls, self_instructions, total_instructions
FROM functions WHERE session_id IN ($sessions)
"""
# Branches have addresses of one process, which another process loads elsewhere: calls between functions are the edges.
_EDGES = """
SELECT p.function AS caller, c.function AS callee, count(*) AS calls
FROM calls c JOIN calls p ON p.segment = c.segment AND p.call = c.parent
WHERE c.session_id = $session AND p.session_id = $session AND c.parent >= 0
GROUP BY ALL
"""
# So many are asked for at once, and are in memory.
_AT_ONCE = 10
WINDOWS = 10
_WINDOWS = f"""
WITH bounds AS (SELECT start_ns, greatest(end_ns - start_ns, 1) AS length FROM sessions WHERE session_id = $session),
 found AS (
  SELECT function, least(greatest(CAST(floor((c.start_ns - b.start_ns) * {WINDOWS}.0 / b.length) AS BIGINT), 0),
   {WINDOWS - 1}) AS part
  FROM calls c, bounds b WHERE c.session_id = $session),
 counted AS (SELECT function, count(DISTINCT part) AS parts FROM found GROUP BY function)
SELECT parts, count(*) AS functions FROM counted GROUP BY parts
"""  # noqa: S608 - numbers of this module's own
# Rows of before there were blocks, and functions that no branch was seen to lead into, count as one. Which blocks ran
# is not told, so what two sessions saw of a function is taken for the same as far as it can be.
_SEEN = """
WITH ran AS (
  SELECT session_id, module, coalesce(nullif(name, ''), CAST(address AS VARCHAR)) AS name,
   sum(greatest(coalesce(blocks, 1), 1)) AS blocks
  FROM functions
  WHERE session_id IN (SELECT session_id FROM sessions WHERE target = $target ORDER BY start_ns DESC LIMIT $most)
  GROUP BY ALL),
 most AS (SELECT max(blocks) AS blocks FROM ran GROUP BY module, name)
SELECT CAST(coalesce(sum(blocks), 0) AS BIGINT) AS blocks FROM most
"""
_COST = """
SELECT CAST(sum(greatest(last_ns - first_ns, 0)) AS BIGINT) AS traced_ns, CAST(sum(decode_ms) AS BIGINT) AS decode_ms
FROM segments WHERE session_id = $session
"""


class SessionProfiles:
    """Reads; keeps nothing."""

    def __init__(self, tables: TableReader) -> None:
        self._tables = tables

    async def of_target(self, target: str, most: int, *, patience_s: float | None = None) -> tuple[list[str], int]:
        """Ids of the newest decoded sessions of a program, and how many older ones there are."""
        sql = f"SELECT session_id FROM sessions WHERE target = {text_literal(target)} ORDER BY start_ns DESC"  # noqa: S608
        found = [row["session_id"] for row in await self._tables.rows(sql, patience_s=patience_s)]
        return found[:most], max(0, len(found) - most)

    async def read(
        self, session_ids: Sequence[str], *, edges: bool = True, or_gone: bool = False
    ) -> AsyncIterator[Profile]:
        """In the order of the ids. Raises `FailedPrecondition` for one that is not decoded; `or_gone` leaves it out."""
        for begin in range(0, len(session_ids), _AT_ONCE):
            some = session_ids[begin : begin + _AT_ONCE]
            known = {
                row["session_id"]: row for row in await self._of(f"{_SESSIONS} WHERE session_id IN ($sessions)", some)
            }
            numbers: dict[str, dict[int, Function]] = {session_id: {} for session_id in some}
            functions: dict[str, dict[Function, Totals]] = {session_id: {} for session_id in some}
            for row in await self._of(_FUNCTIONS, some):
                function = Function(row["module"], row["build_id"], row["address"], row["name"])
                numbers[row["session_id"]][row["function"]] = function
                functions[row["session_id"]][function] = Totals(
                    row["calls"], row["self_instructions"], row["total_instructions"]
                )
            for session_id in some:
                if session_id not in known:
                    if or_gone:
                        continue
                    raise _not_decoded(session_id)
                ways = await self._edges(session_id, numbers[session_id]) if edges else {}
                yield Profile(**known[session_id], functions=functions[session_id], edges=ways)

    async def windows(self, session_id: str) -> Incidence:
        """Functions of a session by the number of its ten windows in which a call of them began."""
        rows = await self._ask(_WINDOWS, session_id)
        return Incidence(WINDOWS, {row["parts"]: row["functions"] for row in rows})

    async def blocks_seen(self, target: str, most: int) -> int:
        """Different basic blocks that the newest sessions of a program ran together: at least so many.

        A function that was built anew counts once, by its name.
        """
        sql = _SEEN.replace("$target", text_literal(target)).replace("$most", str(most))
        (row,) = await self._tables.rows(sql, patience_s=0)
        return int(row["blocks"])

    async def core_seconds(self, session_id: str) -> float:
        """What it took to record and decode: its streams' lengths and its decode together."""
        (row,) = await self._ask(_COST, session_id)
        return float((row["traced_ns"] or 0) / 1e9 + (row["decode_ms"] or 0) / 1e3)

    async def _edges(self, session_id: str, numbers: dict[int, Function]) -> dict[Edge, int]:
        return {
            Edge(numbers[row["caller"]], numbers[row["callee"]]): row["calls"]
            for row in await self._ask(_EDGES, session_id)
            if row["caller"] in numbers and row["callee"] in numbers
        }

    async def _of(self, sql: str, session_ids: Sequence[str]) -> list[dict[str, Any]]:
        return await self._tables.rows(sql.replace("$sessions", ", ".join(map(text_literal, session_ids))))

    async def _ask(self, sql: str, session_id: str) -> list[dict[str, Any]]:
        return await self._tables.rows(sql.replace("$session", text_literal(session_id)))


def _not_decoded(session_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"session {session_id} is not decoded",
        reason="SESSION_NOT_DECODED",
        help="`permille sessions` lists those there are; `permille report SESSION` decodes one",
        metadata={"session": session_id},
    )
