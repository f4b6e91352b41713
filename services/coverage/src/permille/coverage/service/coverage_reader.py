"""GetCoverage, DiffCoverage and JudgeRound: what the tables say of sessions taken together."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.accuracy import accuracy
from permille.coverage.domain.augmentation import Merged, MergedEdge, MergedFunction, merge, weight
from permille.coverage.domain.call_paths import MergedPaths
from permille.coverage.domain.coverage_by_version import Estimate, Ledger, Seen
from permille.coverage.domain.divergence import Divergent, Measure, Place, Way, diverge
from permille.coverage.domain.path_divergence import Way as PathWay
from permille.coverage.domain.path_divergence import diverge_paths
from permille.coverage.domain.profile import Edge, Function, Profile
from permille.coverage.domain.rounds import Action
from permille.coverage.service.round_judge import RoundJudge
from permille.coverage.service.session_paths import MOST_CALLS_IN_ALL, SessionPaths
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.session_sets import SessionSets
from permille.coverage.service.wire import require_rounds
from permille.mesh.auth import Caller
from permille.mesh.errors import InvalidArgument

_DEFAULT_ROWS = 20
_MOST_ROWS = 10_000
_MEASURES = {
    coverage_pb2.DiffCoverageRequest.MEASURE_UNSPECIFIED: Measure.INSTRUCTIONS,
    coverage_pb2.DiffCoverageRequest.MEASURE_INSTRUCTIONS: Measure.INSTRUCTIONS,
    coverage_pb2.DiffCoverageRequest.MEASURE_CALLS: Measure.CALLS,
}


class CoverageReader:
    """Reads the sessions' profiles, lets the domain count, and answers."""

    def __init__(self, sets: SessionSets, profiles: SessionProfiles, paths: SessionPaths, rounds: RoundJudge) -> None:
        self._sets = sets
        self._profiles = profiles
        self._paths = paths
        self._rounds = rounds

    async def coverage(
        self, request: coverage_pb2.GetCoverageRequest, caller: Caller
    ) -> coverage_pb2.GetCoverageResponse:
        """What has been seen, what is missing, and the merged functions, calls between them and call paths."""
        limit, edges_limit = _rows(request.functions, "functions"), _rows(request.edges, "edges")
        paths_limit = _rows(request.paths, "paths", default=0)
        ids, older = await self._sets.ids(request.of, "of", caller)
        profiles = [profile async for profile in self._profiles.read(ids)]
        ledger = Ledger()
        for profile in profiles:
            ledger.add(profile)
        merged = merge(profiles)
        paths = await self._merged_paths(profiles) if paths_limit else MergedPaths()
        listed = _paths(paths, paths_limit)
        return coverage_pb2.GetCoverageResponse(
            versions=[version_message(seen) for seen in ledger.by_version()],
            replicas=_replicas(profiles, merged),
            functions=_functions(merged, limit),
            functions_total=len(merged.functions),
            edges_total=len(merged.edges),
            older_sessions=older,
            edges=_edges(merged, edges_limit),
            paths=listed,
            paths_total=paths.distinct,
            path_calls_left_out=paths.calls - sum(path.calls for path in listed),
        )

    async def diff(
        self, request: coverage_pb2.DiffCoverageRequest, caller: Caller
    ) -> coverage_pb2.DiffCoverageResponse:
        """What differs between two sets."""
        limit, paths_limit = _rows(request.limit, "limit"), _rows(request.paths, "paths", default=0)
        measure = _MEASURES.get(request.measure)
        if measure is None:
            raise InvalidArgument(
                f"measure {request.measure} is unknown", reason="MEASURE_UNKNOWN", help="use INSTRUCTIONS or CALLS"
            )
        ids_a, _ = await self._sets.ids(request.a, "a", caller)
        ids_b, _ = await self._sets.ids(request.b, "b", caller)
        a = [profile async for profile in self._profiles.read(ids_a)]
        b = [profile async for profile in self._profiles.read(ids_b)]
        found = diverge(a, b, measure)
        paths, unsure = (
            diverge_paths(await self._merged_paths(a), await self._merged_paths(b)) if paths_limit else ([], 0)
        )
        return coverage_pb2.DiffCoverageResponse(
            a=[profile.session for profile in a],
            b=[profile.session for profile in b],
            functions=[_function_difference(row) for row in found.functions[:limit]],
            calls=[_way_difference(row) for row in found.ways[:limit]],
            functions_total=len(found.functions),
            calls_total=len(found.ways),
            similarity=accuracy(_calls_by_place(a), _calls_by_place(b)),
            paths=[_path_difference(row) for row in paths[:paths_limit]],
            paths_total=len(paths),
            paths_left_out=unsure,
            without_calls=dict.fromkeys(profile.session for profile in (*a, *b) if not profile.functions),
        )

    async def judge_round(
        self, request: coverage_pb2.JudgeRoundRequest, caller: Caller
    ) -> coverage_pb2.JudgeRoundResponse:
        """Whether another round pays, after those of somebody else's rounds."""
        require_rounds(request.rounds)
        ids, _ = await self._sets.ids(coverage_pb2.SessionSet(sessions=request.sessions), "sessions", caller)
        told, verdict = await self._rounds.judge(
            ids, request.rounds, done=request.done, unused=request.unused, longest_ms=request.longest_ms
        )
        next_ms = verdict.best.period_ms if verdict.best and verdict.action is not Action.STOP else 0
        return coverage_pb2.JudgeRoundResponse(round=told, period_ms=next_ms)

    async def _merged_paths(self, profiles: list[Profile]) -> MergedPaths:
        merged, room = MergedPaths(), MOST_CALLS_IN_ALL
        for profile in profiles:
            parts = [part async for part in self._paths.walked(profile.session_id, room)]
            room -= sum(part.walked for part in parts)
            merged.add(parts, weight(profile))
        return merged


def version_message(seen: Seen, missing_after: float = 0.0) -> coverage_pb2.VersionCoverage:
    """One build on the wire."""
    return coverage_pb2.VersionCoverage(
        module=seen.version.module,
        build_id=seen.version.build_id,
        sessions=seen.functions.units,
        functions=_estimate(Estimate.of(seen.functions)),
        edges=_estimate(Estimate.of(seen.edges)),
        missing_after=missing_after,
    )


def _estimate(found: Estimate) -> coverage_pb2.Estimate:
    return coverage_pb2.Estimate(
        seen=found.seen,
        unseen=found.unseen,
        sample_coverage=found.sample_coverage,
        next_session=found.next_session,
    )


def _replicas(profiles: list[Profile], merged: Merged) -> list[coverage_pb2.Replica]:
    together = {function: found.weighted_calls for function, found in merged.functions.items()}
    return [
        coverage_pb2.Replica(
            session=replica.session,
            functions=replica.functions,
            edges=replica.edges,
            filled_functions=replica.filled_functions,
            filled_edges=replica.filled_edges,
            functions_only_here=replica.only_here,
            weight=replica.weight,
            lost_bytes=replica.lost_bytes,
            raw_bytes=profile.raw_bytes,
            period_ms=profile.period_ms,
            accuracy=accuracy({f: totals.calls for f, totals in profile.functions.items()}, together),
        )
        for profile, replica in zip(profiles, merged.replicas, strict=True)
    ]


def _functions(merged: Merged, limit: int) -> list[coverage_pb2.MergedFunction]:
    whole = sum(found.weighted_instructions for found in merged.functions.values())

    def order(item: tuple[Function, MergedFunction]) -> tuple[float, Function]:
        return -item[1].weighted_instructions, item[0]

    return [
        coverage_pb2.MergedFunction(
            name=function.name,
            module=function.module,
            build_id=function.build_id,
            calls=found.totals.calls,
            self_instructions=found.totals.self_instructions,
            total_instructions=found.totals.total_instructions,
            sessions=found.sessions,
            share=found.weighted_instructions / whole if whole else 0.0,
        )
        for function, found in sorted(merged.functions.items(), key=order)[:limit]
    ]


def _edges(merged: Merged, limit: int) -> list[coverage_pb2.MergedEdge]:
    whole = sum(found.weighted for found in merged.edges.values())

    def order(item: tuple[Edge, MergedEdge]) -> tuple[float, Edge]:
        return -item[1].weighted, item[0]

    return [
        coverage_pb2.MergedEdge(
            caller=edge.caller.name,
            caller_module=edge.caller.module,
            caller_build_id=edge.caller.build_id,
            callee=edge.callee.name,
            callee_module=edge.callee.module,
            callee_build_id=edge.callee.build_id,
            calls=found.count,
            sessions=found.sessions,
            weighted_calls=found.weighted,
            share=found.weighted / whole if whole else 0.0,
        )
        for edge, found in sorted(merged.edges.items(), key=order)[:limit]
    ]


def _paths(merged: MergedPaths, limit: int) -> list[coverage_pb2.CallPath]:
    whole = merged.weighted_instructions
    return [
        coverage_pb2.CallPath(
            name=path.function.name,
            module=path.function.module,
            build_id=path.function.build_id,
            caller=path.above + 1,
            calls=path.calls,
            self_instructions=path.self_instructions,
            total_instructions=path.total_instructions,
            sessions=path.sessions,
            share=path.weighted / whole if whole else 0.0,
        )
        for path in merged.heaviest(limit)
    ]


def _function_difference(row: Divergent[Place]) -> coverage_pb2.Difference:
    return _difference(row, "", row.key)


def _way_difference(row: Divergent[Way]) -> coverage_pb2.Difference:
    return _difference(row, row.key.caller.name, row.key.callee)


def _path_difference(row: Divergent[PathWay]) -> coverage_pb2.Difference:
    *callers, place = row.key
    found = _difference(row, "", place)
    found.callers.extend(caller.name for caller in callers)
    return found


def _difference(
    row: Divergent[Place] | Divergent[Way] | Divergent[PathWay], caller: str, place: Place
) -> coverage_pb2.Difference:
    return coverage_pb2.Difference(
        caller=caller,
        name=place.name,
        module=place.module,
        count_a=row.a.count,
        count_b=row.b.count,
        share_a=row.share_a,
        share_b=row.share_b,
        sessions_a=row.a.sessions,
        sessions_b=row.b.sessions,
        statistic=row.statistic,
        only_in=row.only_in,
    )


def _calls_by_place(profiles: list[Profile]) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for profile in profiles:
        for function, totals in profile.functions.items():
            place = Place(function.module, function.name)
            found[place] = found.get(place, 0) + totals.calls
    return found


def _rows(wanted: int, field: str, *, default: int = _DEFAULT_ROWS) -> int:
    if wanted > _MOST_ROWS:
        raise InvalidArgument(
            f"{field} is {wanted:,}",
            reason="TOO_MANY_ROWS",
            help=f"use 0 for {default}, or at most {_MOST_ROWS:,}; `permille query` reads whole tables",
            metadata={"field": field},
        )
    return wanted or default
