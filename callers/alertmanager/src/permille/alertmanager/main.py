"""The process `permille-alertmanager`."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import signal
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from permille.alertmanager.alerts import LABELS, Recording
from permille.alertmanager.webhook import Webhook
from permille.client import AsyncClient, PermilleError

# Alertmanager repeats what is refused for now; it should not wait for an answer for long.
_PATIENCE_S = 5.0


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT; exit code 2 for wrong usage, 1 when it cannot serve."""
    parser = _parser()
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    host, _, port = given.listen.rpartition(":")
    if not host or not port.isdecimal():
        parser.error(f"--listen {given.listen!r}: write HOST:PORT")
    if not _is_loopback(host) and not (given.https_cert and given.https_key and given.token_file):
        parser.error(
            f"--listen {given.listen} is no loopback address: it needs --https-cert, --https-key, --token-file"
        )
    labels = {**LABELS, **dict(given.label)}
    recording = Recording(labels, period_ms=given.period_ms, namespace=given.namespace)
    try:
        token = Path(given.token_file).read_text().strip() if given.token_file else ""
        if given.token_file and not token:
            parser.error(f"--token-file {given.token_file}: it is empty")
        asyncio.run(_serve(given, recording, token, host.strip("[]"), int(port)))
    except (OSError, PermilleError) as error:
        sys.exit(f"permille-alertmanager: {error}")


async def _serve(given: argparse.Namespace, recording: Recording, token: str, host: str, port: int) -> None:
    secure = None
    if given.https_cert:
        secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secure.load_cert_chain(given.https_cert, given.https_key)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with AsyncClient(
        given.coverage, ca=given.tls_ca, cert=given.tls_cert, key=given.tls_key, patience_s=_PATIENCE_S
    ) as client:
        runner = web.AppRunner(Webhook(client, recording, token=token).application(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=secure).start()
            logging.info("listening on %s:%s", *runner.addresses[0][:2])
            await ended.wait()
        finally:
            await runner.cleanup()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("permille-alertmanager", description="Records what Alertmanager's alerts name.")
    parser.add_argument("--coverage", required=True, metavar="HOST:PORT[,...]", help="where coverage listens")
    for name, what in {"ca": "the mesh's authority", "cert": "this caller's certificate", "key": "its key"}.items():
        parser.add_argument(
            f"--tls-{name}", default="", metavar="FILE", help=f"{what}; none for plain text on loopback"
        )
    parser.add_argument("--listen", default="127.0.0.1:9095", metavar="HOST:PORT", help="default: %(default)s")
    for name in ("cert", "key"):
        parser.add_argument(f"--https-{name}", default="", metavar="FILE", help="to serve the webhook over TLS")
    parser.add_argument("--token-file", default="", metavar="FILE", help="the bearer token that Alertmanager sends")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_mapping,
        metavar="WHAT=LABEL",
        help="which label says what: " + " ".join(f"{what}={label}" for what, label in LABELS.items()),
    )
    parser.add_argument("--period-ms", type=int, default=0, metavar="N", help="default: permille decides")
    parser.add_argument(
        "--namespace", default="", metavar="NAME", help="whose quota it counts against where the alert has no namespace"
    )
    return parser


def _mapping(text: str) -> tuple[str, str]:
    what, _, label = text.partition("=")
    if what not in LABELS or not label:
        raise argparse.ArgumentTypeError(f"{text!r}: write WHAT=LABEL, with WHAT one of {', '.join(LABELS)}")
    return what, label


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    main()
