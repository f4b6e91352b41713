"""Where coverage is and how to speak to it: the same for both clients."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc
from permille.client.errors import FailedPrecondition, InvalidArgument

_LAST_PORT = 65_535
_MOST_MESSAGE_BYTES = 16 << 20
# What services' certificates are made out to, wherever they run.
_SERVER_NAME = "coverage.permille"


@dataclass(frozen=True)
class Connection:
    """`addresses`: HOST:PORT of replicas, commas between; the next one is asked when one does not answer.

    `ca`, `cert`, `key`: files from `permille certs`; without them only addresses of this machine.
    """

    addresses: str
    ca: Path | str = ""
    cert: Path | str = ""
    key: Path | str = ""

    @property
    def targets(self) -> list[str]:
        """Each address. Raises `InvalidArgument`, and `FailedPrecondition` (TLS_REQUIRED) for plain text elsewhere."""
        found = [address.strip() for address in self.addresses.split(",") if address.strip()]
        for address in found or [""]:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or int(port) > _LAST_PORT or (":" in host and host[0] != "["):
                raise InvalidArgument(
                    f"{address!r} is no address of coverage",
                    reason="ADDRESS",
                    help="write HOST:PORT or [IPv6]:PORT, several with commas between; `permille doctor` shows them",
                )
            if not self._secure and not _is_loopback(host.strip("[]")):
                raise FailedPrecondition(
                    f"refusing to call {address} in plain text",
                    reason="TLS_REQUIRED",
                    help="give ca, cert and key: `permille certs user NAME --role external` makes them",
                )
        return found

    @property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """None: plain text. Raises `OSError` for a file that cannot be read."""
        if not self._secure:
            return None
        return grpc.ssl_channel_credentials(*(Path(path).read_bytes() for path in (self.ca, self.key, self.cert)))

    @property
    def options(self) -> list[tuple[str, str | int]]:
        """Of each channel."""
        common: list[tuple[str, str | int]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES),
        ]
        return [*common, ("grpc.ssl_target_name_override", _SERVER_NAME)] if self._secure else common

    @property
    def _secure(self) -> bool:
        given = [bool(path) for path in (self.ca, self.cert, self.key)]
        if any(given) and not all(given):
            raise InvalidArgument("ca, cert and key belong together", reason="TLS_FILES", help="give all three or none")
        return all(given)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
