"""The web server: /alerts for Alertmanager, /healthz, /metrics."""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web
from permille.alertmanager.alerts import Alert, BadAlertError, Recording, alerts_of
from permille.api.coverage.v1.coverage_pb2 import CoverageRequest
from permille.api.operation.v1.operation_pb2 import Operation
from permille.client import AsyncClient, PermilleError, ResourceExhausted
from permille.client.errors import AWAY, error_of_operation
from prometheus_client import CollectorRegistry, Counter, generate_latest

_log = logging.getLogger(__name__)
_MOST_BODY_BYTES = 4 << 20
# So often an alert's recording is begun when each ended with an error that may pass.
_MOST_ATTEMPTS = 5
_MAY_PASS = (*AWAY, ResourceExhausted)
# The recording in the way ends by itself. What else stands against one, somebody has to change.
_PASSES = ("ALREADY_TRACED",)


@dataclass(frozen=True)
class Outcome:
    """What became of an alert: `accepted` (also before), `resolved`, `refused`, or `failed`.

    `again`: a repetition may help.
    """

    fingerprint: str
    outcome: str
    operation: str = ""
    message: str = ""
    again: bool = False


class Webhook:
    """Starts a recording for each alert that fires. `token`: what callers must bear; empty: nothing."""

    def __init__(self, client: AsyncClient, recording: Recording, *, token: str = "") -> None:
        self._client = client
        self._recording = recording
        self._token = token
        self._registry = CollectorRegistry()
        self._alerts = Counter(
            "permille_alertmanager_alerts", "Alerts by what became of them.", ["outcome"], registry=self._registry
        )

    def application(self) -> web.Application:
        """What aiohttp serves."""
        application = web.Application(client_max_size=_MOST_BODY_BYTES)
        application.add_routes(
            [
                web.post("/alerts", self._receive),
                web.get("/healthz", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        return application

    async def _receive(self, request: web.Request) -> web.Response:
        """200 when all is well, 503 when a repetition now may help one of the alerts, else 400."""
        if self._token and not _bears(request, self._token):
            return _answer(HTTPStatus.UNAUTHORIZED, error="the header Authorization does not bear the token")
        try:
            alerts = alerts_of(await _read(request))
        except BadAlertError as error:
            _log.warning("refused a message: %s", error)
            return _answer(HTTPStatus.BAD_REQUEST, error=str(error))
        outcomes = await asyncio.gather(*map(self._handle, alerts))
        for one in outcomes:
            self._alerts.labels(one.outcome).inc()
            level = logging.WARNING if one.message else logging.INFO
            _log.log(level, "alert %s %s: %s", one.fingerprint, one.outcome, one.message or one.operation)
        ill = any(one.outcome in ("refused", "failed") for one in outcomes)
        status = HTTPStatus.BAD_REQUEST if ill else HTTPStatus.OK
        status = HTTPStatus.SERVICE_UNAVAILABLE if any(one.again for one in outcomes) else status
        return _answer(status, alerts=[vars(one) for one in outcomes])

    async def _handle(self, alert: Alert) -> Outcome:
        if not alert.firing:
            return Outcome(alert.fingerprint, "resolved")
        try:
            operation = await self._begun(alert)
        except ValueError as error:
            # Also of a text that is no Unicode.
            return Outcome(alert.fingerprint, "refused", message=str(error))
        except PermilleError as error:
            again = error.retry_after_s is not None or isinstance(error, AWAY)
            outcome = "failed" if again else "refused"
            return Outcome(alert.fingerprint, outcome, message=f"{error.reason}: {error}", again=again)
        failed = error_of_operation(operation)
        if failed is not None:
            message = f"{operation.name} failed, {failed.reason}: {failed}"
            return Outcome(alert.fingerprint, "failed", operation=operation.name, message=message)
        return Outcome(alert.fingerprint, "accepted", operation=operation.name)

    async def _begun(self, alert: Alert) -> Operation:
        """The newest attempt to record; another one where it ended with an error that may pass."""
        wish = self._recording.of(alert)
        operation = await self._attempted(wish, alert.request_id)
        for attempt in range(2, _MOST_ATTEMPTS + 1):
            failed = error_of_operation(operation)
            if failed is None or not (isinstance(failed, _MAY_PASS) or failed.reason in _PASSES):
                break
            operation = await self._attempted(wish, f"{alert.request_id}-{attempt}")
        return operation

    async def _attempted(self, wish: CoverageRequest, request_id: str) -> Operation:
        try:
            return await self._client.start(wish, request_id=request_id)
        except PermilleError as error:
            if error.reason != "REQUEST_ID_REUSED":
                raise
            # Recorded before, with other settings of this process.
            return await self._client.get(error.metadata.get("operation", ""))

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), content_type="text/plain")


async def _read(request: web.Request) -> Any:
    try:
        return await request.json()
    except (ValueError, LookupError, RecursionError) as error:
        # An unknown charset, and what is nested deeper than anybody means.
        raise BadAlertError(f"the body cannot be read as JSON: {error}") from error


def _bears(request: web.Request, token: str) -> bool:
    scheme, _, borne = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        borne.strip().encode(errors="surrogateescape"), token.encode()
    )


def _answer(status: HTTPStatus, **told: object) -> web.Response:
    return web.json_response(told, status=status)
