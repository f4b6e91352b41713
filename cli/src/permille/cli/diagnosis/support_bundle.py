"""Everything that helps to find out what went wrong, without secrets, as one archive."""

from __future__ import annotations

import asyncio
import io
import json
import re
import ssl
import tarfile
import time
import tomllib
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from google.protobuf.json_format import MessageToDict
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer, mesh_client
from permille.cli.diagnosis.diagnosis import Diagnosis, diagnose, diagnosis_json
from permille.cli.session_list import list_sessions
from permille.mesh.config import MeshConfig
from permille.mesh.errors import PermilleError

_MOST_LOG_BYTES = 4 << 20
_METRICS_S = 5.0
_OPERATIONS = 200
_SECRET = re.compile(r"secret|passw|token|credential|access_?key", re.IGNORECASE)
_REDACTED = "(removed)"


class SupportBundle:
    """Files by name; what could not be had is told in `missing.txt`."""

    def __init__(self, config: MeshConfig, config_file: Path | None, environment: Mapping[str, str]) -> None:
        self._config = config
        self._config_file = config_file
        self._environment = environment
        self._files: dict[str, bytes] = {}
        self._missing: list[str] = []

    async def archive(self) -> bytes:
        """A tar.gz."""
        diagnosis = await diagnose(self._config)
        self._put_json("doctor.json", diagnosis_json(diagnosis))
        self._put_json("versions.json", diagnosis.versions)
        self._put_json("config.json", self._settings())
        self._logs()
        await self._metrics(diagnosis)
        try:
            async with mesh_client(self._config) as client:
                await self._try("sessions.json", lambda: _sessions(client))
                await self._try("operations-coverage.json", lambda: _operations(client, "coverage"))
                await self._try("operations-decoder.json", lambda: _operations(client, "decoder"))
        except PermilleError as error:
            self._missing.append(f"sessions and operations: {error.message}")
        if self._missing:
            self._files["missing.txt"] = "".join(f"{line}\n" for line in self._missing).encode()
        return self._packed()

    @property
    def names(self) -> list[str]:
        """The files that are in it."""
        return sorted(self._files)

    def _settings(self) -> dict[str, object]:
        file: object = None
        if self._config_file is not None:
            file = redacted(tomllib.loads(self._config_file.read_text()))
        variables = {name: value for name, value in self._environment.items() if name.startswith("PERMILLE_")}
        return {
            "settings": redacted(self._config.model_dump(mode="json")),
            "file": file,
            "environment": redacted(variables),
        }

    def _logs(self) -> None:
        logs = [*self._logs_in(self._config.state_dir / "logs"), *self._logs_in(self._config.state_dir / "etcd")]
        for log in logs:
            try:
                with log.open("rb") as opened:
                    opened.seek(max(log.stat().st_size - _MOST_LOG_BYTES, 0))
                    self._files[f"logs/{log.name}"] = opened.read()
            except OSError as error:
                self._missing.append(f"{log}: {error.strerror}")

    def _logs_in(self, folder: Path) -> list[Path]:
        try:
            return sorted(file for file in folder.iterdir() if file.match("*.log*"))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._missing.append(f"{folder}: {error.strerror}")
            return []

    async def _metrics(self, diagnosis: Diagnosis) -> None:
        for service in diagnosis.mesh.services:
            if service.metrics and service.metrics != "off":
                name = f"metrics/{service.service}-{service.instance}.txt"
                try:
                    self._files[name] = await asyncio.to_thread(_fetched, service.metrics, self._config)
                except OSError as error:
                    self._missing.append(f"{name}: {error}")

    async def _try(self, name: str, read: Callable[[], Awaitable[object]]) -> None:
        try:
            self._put_json(name, await read())
        except PermilleError as error:
            self._missing.append(f"{name}: {error.message}")

    def _put_json(self, name: str, value: object) -> None:
        self._files[name] = json.dumps(value, indent=2, ensure_ascii=False).encode()

    def _packed(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in self.names:
                entry = tarfile.TarInfo(f"permille-support/{name}")
                entry.size = len(self._files[name])
                entry.mtime = int(time.time())
                archive.addfile(entry, io.BytesIO(self._files[name]))
        return packed.getvalue()


def redacted(value: Any, name: str = "") -> Any:
    """The value without passwords, tokens and keys, also inside URLs; names of key files stay."""
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    if value and _SECRET.search(name):
        return _REDACTED
    return _without_credentials(value) if isinstance(value, str) and "://" in value else value


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")
    query = "&".join(
        f"{word.partition('=')[0]}={_REDACTED}" if _SECRET.search(word.partition("=")[0]) else word
        for word in parts.query.split("&")
    )
    return urlunsplit(parts._replace(netloc=f"{_REDACTED}@{place[2]}" if place[1] else place[2], query=query))


async def _sessions(client: MeshClient) -> object:
    listed = await list_sessions(client)
    return {"sessions": [asdict(one) for one in listed.sessions], "incomplete": [gap.message for gap in listed.gaps]}


async def _operations(client: MeshClient, service: str) -> object:
    stub: Any = await (client.coverage() if service == "coverage" else client.decoder())
    request = operation_pb2.ListOperationsRequest(page_size=_OPERATIONS)
    page = await answer(stub.ListOperations(request))
    return [MessageToDict(operation, preserving_proto_field_name=True) for operation in page.operations]


def _fetched(address: str, config: MeshConfig) -> bytes:
    context = None
    if config.tls_ca and config.tls_cert and config.tls_key:
        context = ssl.create_default_context(cafile=str(config.tls_ca))
        context.load_cert_chain(config.tls_cert, config.tls_key)
        context.check_hostname = False
    scheme = "https" if context else "http"
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    with opener.open(f"{scheme}://{address}/metrics", timeout=_METRICS_S) as opened:
        content: bytes = opened.read()
    return content
