"""GetCoverage and DiffCoverage: what the tables say of sessions taken together."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.accuracy import accuracy
from permille.coverage.domain.augmentation import Merged, MergedFunction, merge
from permille.coverage.domain.coverage_by_version import Estimate, Ledger, Seen
from permille.coverage.domain.divergence import Divergent, Measure, Place, Way, diverge
from permille.coverage.domain.profile import Function, Profile
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.session_sets import SessionSets
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

    def __init__(self, sets: SessionSets, profiles: SessionProfiles) -> None:
        self._sets = sets
        self._profiles = profiles

    async def coverage(self, request: coverage_pb2.GetCoverageRequest) -> coverage_pb2.GetCoverageResponse:
        """What has been seen, what is missing, and the merged functions."""
        limit = _rows(request.functions, "functions")
        ids, older = await self._sets.ids(request.of, "of")
        profiles = [profile async for profile in self._profiles.read(ids)]
        ledger = Ledger()
        for profile in profiles:
            ledger.add(profile)
        merged = merge(profiles)
        return coverage_pb2.GetCoverageResponse(
            versions=[version_message(seen) for seen in ledger.by_version()],
            replicas=_replicas(profiles, merged),
            functions=_functions(merged, limit),
            functions_total=len(merged.functions),
            edges_total=len(merged.edges),
            older_sessions=older,
        )

    async def diff(self, request: coverage_pb2.DiffCoverageRequest) -> coverage_pb2.DiffCoverageResponse:
        """What differs between two sets."""
        limit = _rows(request.limit, "limit")
        ids_a, _ = await self._sets.ids(request.a, "a")
        ids_b, _ = await self._sets.ids(request.b, "b")
        a = [profile async for profile in self._profiles.read(ids_a)]
        b = [profile async for profile in self._profiles.read(ids_b)]
        found = diverge(a, b, _MEASURES[request.measure])
        return coverage_pb2.DiffCoverageResponse(
            a=[profile.session for profile in a],
            b=[profile.session for profile in b],
            functions=[_function_difference(row) for row in found.functions[:limit]],
            calls=[_way_difference(row) for row in found.ways[:limit]],
            functions_total=len(found.functions),
            calls_total=len(found.ways),
            similarity=accuracy(_calls_by_place(a), _calls_by_place(b)),
        )


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


def _function_difference(row: Divergent[Place]) -> coverage_pb2.Difference:
    return _difference(row, "", row.key)


def _way_difference(row: Divergent[Way]) -> coverage_pb2.Difference:
    return _difference(row, row.key.caller.name, row.key.callee)


def _difference(row: Divergent[Place] | Divergent[Way], caller: str, place: Place) -> coverage_pb2.Difference:
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


def _rows(wanted: int, field: str) -> int:
    if wanted > _MOST_ROWS:
        raise InvalidArgument(
            f"{field} is {wanted:,}",
            reason="TOO_MANY_ROWS",
            help=f"use 0 for {_DEFAULT_ROWS}, or at most {_MOST_ROWS:,}; `permille query` reads whole tables",
            metadata={"field": field},
        )
    return wanted or _DEFAULT_ROWS
