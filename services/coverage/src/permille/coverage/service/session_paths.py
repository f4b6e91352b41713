"""Call paths of decoded sessions: every call is walked from its outermost caller, by the decoder, in bounded parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from string import Template

from permille.coverage.domain.call_paths import PathRow, Walked
from permille.coverage.domain.profile import Function
from permille.coverage.service.table_reader import TableReader, text_literal
from permille.mesh.errors import PermilleError

# Of one walk, which is held in the decoder's memory: about 200 bytes a call. A longer stream is walked from its
# beginning, and what is left is counted.
MOST_CALLS = 3_000_000
# Of all sessions of one question: the newest sessions are walked first.
MOST_CALLS_IN_ALL = 20_000_000
# Of one walk those with the most instructions in and below them.
MOST_ROWS = 20_000
# Deeper calls belong to no path; the weight of their callers has them.
MOST_DEPTH = 64
_TOO_MUCH = ("QUERY_MEMORY", "QUERY_TIMEOUT")
_SEGMENTS = """
SELECT segment, count(*) AS calls, CAST(sum(self_instructions) AS BIGINT) AS instructions
FROM calls WHERE session_id = $session GROUP BY segment ORDER BY segment
"""
# A caller that was only found out when it returned has a higher number than what it called.
_WALK = Template("""
WITH RECURSIVE known AS MATERIALIZED (
  SELECT (CAST(segment AS BIGINT) << 40) + "call" AS me,
   CASE WHEN parent BETWEEN 0 AND $most_calls - 1 THEN (CAST(segment AS BIGINT) << 40) + parent ELSE -1 END AS caller,
   function, self_instructions AS own, total_instructions AS whole
  FROM calls WHERE session_id = $session AND segment IN ($segments) AND "call" < $most_calls),
 walked AS (
  SELECT me, 1 AS depth, hash(function) AS path, CAST(0 AS UBIGINT) AS above, function, own, whole
  FROM known WHERE caller < 0
  UNION ALL
  SELECT k.me, w.depth + 1, hash(w.path, k.function), w.path, k.function, k.own, k.whole
  FROM walked w JOIN known k ON k.caller = w.me WHERE w.depth < $most_depth),
 paths AS (
  SELECT path, any_value(above) AS above, any_value(function) AS function, any_value(depth) AS depth,
   count(*) AS calls, CAST(sum(own) AS BIGINT) AS own, CAST(sum(whole) AS BIGINT) AS whole
  FROM walked GROUP BY path),
 heaviest AS (
  SELECT *, count(*) OVER () AS paths FROM paths ORDER BY whole DESC, depth, path LIMIT $most_rows)
SELECT h.path, h.above, h.calls, h.own, h.whole, h.paths, f.module, coalesce(f.build_id, '') AS build_id, f.address,
 f.name
FROM heaviest h JOIN functions f ON f.session_id = $session AND f.function = h.function
ORDER BY h.depth, h.path
""")


class SessionPaths:
    """Reads; keeps nothing."""

    def __init__(
        self,
        tables: TableReader,
        *,
        most_calls: int = MOST_CALLS,
        most_rows: int = MOST_ROWS,
        most_depth: int = MOST_DEPTH,
    ) -> None:
        self._tables = tables
        self._most_calls = most_calls
        self._most_rows = most_rows
        self._most_depth = most_depth

    async def walked(self, session_id: str, room: int = MOST_CALLS_IN_ALL) -> AsyncIterator[Walked]:
        """A session's parts: short streams together. What is too much for the decoder has no rows.

        `room`: so many calls may be walked; the others are only counted.
        """
        segments: list[int] = []
        calls = instructions = 0
        for row in await self._tables.rows(Template(_SEGMENTS).substitute(session=text_literal(session_id))):
            if segments and calls + row["calls"] > self._most_calls:
                part = await self._walk(session_id, segments, calls, instructions, room)
                room -= part.walked
                yield part
                segments, calls, instructions = [], 0, 0
            segments.append(row["segment"])
            calls += row["calls"]
            instructions += row["instructions"] or 0
        if segments:
            yield await self._walk(session_id, segments, calls, instructions, room)

    async def _walk(self, session_id: str, segments: list[int], calls: int, instructions: int, room: int) -> Walked:
        if min(calls, self._most_calls) > room:
            return Walked((), 0, calls, instructions, whole=False)
        sql = _WALK.substitute(
            session=text_literal(session_id),
            segments=", ".join(map(str, segments)),
            most_calls=self._most_calls,
            most_depth=self._most_depth,
            most_rows=self._most_rows,
        )
        try:
            rows = await self._tables.rows(sql)
        except PermilleError as error:
            if error.reason not in _TOO_MUCH:
                raise
            return Walked((), 0, calls, instructions, whole=False)
        found = tuple(
            PathRow(
                row["path"],
                row["above"],
                Function(row["module"], row["build_id"], row["address"], row["name"]),
                row["calls"],
                row["own"],
                row["whole"],
            )
            for row in rows
        )
        distinct = max((row["paths"] for row in rows), default=0)
        whole = distinct <= self._most_rows and calls <= self._most_calls
        return Walked(found, distinct, calls, instructions, whole, min(calls, self._most_calls))
