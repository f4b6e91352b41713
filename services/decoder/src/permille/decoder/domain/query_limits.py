"""What one query may take, and what is said when that is not enough."""

from __future__ import annotations

from dataclasses import dataclass

from permille.mesh.errors import DeadlineExceeded, ResourceExhausted


@dataclass(frozen=True)
class QueryLimits:
    """Of one query, and how many are answered at once."""

    memory_mib: int = 1024
    timeout_s: float = 60.0
    threads: int = 2
    at_once: int = 4

    def too_slow(self) -> DeadlineExceeded:
        """Of a query that is still being computed."""
        return DeadlineExceeded(
            f"the query took longer than {self.timeout_s:g} s",
            reason="QUERY_TIMEOUT",
            help="ask for one session (WHERE session_id = ...), or raise query_timeout_s of [decoder]",
            metadata={"timeout_s": f"{self.timeout_s:g}"},
        )

    def unread(self) -> DeadlineExceeded:
        """Of a query whose client has not taken what there is of the answer."""
        return DeadlineExceeded(
            f"the client did not read the answer of the query within {self.timeout_s:g} s",
            reason="QUERY_TIMEOUT",
            help="read all of it at once, ask for fewer rows or columns, or raise query_timeout_s of [decoder];"
            " `permille export --table` writes whole tables",
            metadata={"timeout_s": f"{self.timeout_s:g}"},
        )

    def no_turn(self) -> ResourceExhausted:
        """Of a query that did not begin."""
        return ResourceExhausted(
            f"{self.at_once} queries are answered at once, and no turn came within {self.timeout_s:g} s",
            reason="QUERIES_AT_ONCE",
            help="ask again later, ask fewer questions at once, or raise queries_at_once of [decoder]",
            metadata={"queries_at_once": str(self.at_once), "timeout_s": f"{self.timeout_s:g}"},
            retry_after_s=5.0,
        )

    def too_much_memory(self) -> ResourceExhausted:
        """Of a query that DuckDB gave up."""
        return ResourceExhausted(
            f"the query needs more than {self.memory_mib:,} MiB of memory",
            reason="QUERY_MEMORY",
            help="ask for one session, for fewer columns or with LIMIT, or raise query_memory_mib of [decoder]",
            metadata={"memory_mib": str(self.memory_mib)},
        )
