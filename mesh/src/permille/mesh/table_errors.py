"""What a Delta table can fail with, in permille's words."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from deltalake.exceptions import CommitFailedError
from permille.mesh.errors import Aborted, PermilleError, PermissionDenied, Unavailable
from permille.mesh.exhausted import exhausted
from permille.mesh.store.store_errors import full, no_bucket

_NO_ROOM = re.compile(r"no space left|disk quota exceeded|storage full|os error 28|exceeds quota", re.IGNORECASE)
_DENIED = re.compile(
    r"permission denied|forbidden|accessdenied|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken|invalidtoken"
    r"|lacked valid authentication|lacked the necessary privileges",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"<Code>NoSuchBucket</Code>")
# Of delta-rs: what a log or a checkpoint holds, not how to come by it.
_DAMAGED = re.compile(
    r"invalid checkpoint|contiguous commit files|no table metadata|json error|arrow error|parquet error", re.IGNORECASE
)
_AWAY = re.compile(r"generic (s3|localfilesystem) error", re.IGNORECASE)
# Before each of its causes, for terminals.
_CAUSE = re.compile(r"\s*\n\s*\x1b\[31m↳\x1b\[0m\s*")
# As it shows an entry of the log, and what is to be told of that.
_ENTRY = re.compile(r"ParsedLogPath \{.*?filename: \"([^\"]+)\".*?file_type: \w+ \}")


def is_denied(error: Exception) -> bool:
    """Whether the store refused the credentials that a table was read with, or what they may do."""
    return _DENIED.search(str(error)) is not None


def told(table: str, error: Exception, url: str, *, tries: int) -> PermilleError:
    """The error of our family for one of delta-rs. `url`: the store's; `tries`: how often a commit was tried."""
    message, values = str(error), {"table": table, "store": url}
    if isinstance(error, CommitFailedError):
        return Aborted(
            f"{tries} tries to commit to the table {table} lost against other writers",
            reason="TABLE_CONTENDED",
            help="try again when fewer sessions are decoded at once",
            metadata=values,
            retry_after_s=5,
        )
    lack = exhausted("whoever uses the tables", error)
    if lack is None and _NO_ROOM.search(message):
        lack = full(f"tables/{table}", url, "no space left")
    if lack is not None:
        return lack
    if _NO_BUCKET.search(message):
        return no_bucket(urlsplit(url).netloc, url)
    if is_denied(error):
        return PermissionDenied(
            f"the object store {url} does not let the table {table} be touched",
            reason="STORE_DENIED",
            help="check the store's credentials and rights with `permille doctor`",
            metadata=values,
        )
    first_line = _ENTRY.sub(r"\1", _CAUSE.sub(": ", message).partition("\n")[0])
    first_line = first_line.removeprefix("Kernel error: ") or repr(error)
    if _DAMAGED.search(message) and not _AWAY.search(message):
        return Unavailable(
            f"the log of the table {table} in {url} is damaged: {first_line}",
            reason="TABLE_DAMAGED",
            help=f"restore tables/{table}/_delta_log from a backup of the store, or move it away and decode again"
            " what `permille sessions` does not show as decoded then: `permille report SESSION --again`",
            metadata=values,
            retry_after_s=5,
        )
    return Unavailable(
        f"the table {table} in {url} cannot be used now: {first_line}",
        reason="STORE_UNAVAILABLE",
        help="check the store with `permille doctor`",
        metadata=values,
        retry_after_s=5,
    )
