"""Typed configuration: flags over `PERMILLE_*` environment variables over a TOML file over defaults."""

from __future__ import annotations

import difflib
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from permille.mesh.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

ENV_PREFIX = "PERMILLE_"
# Tables of the one file that all services share; a service reads its own and leaves the others alone.
SECTIONS = ("allocator", "annotator", "cli", "controller", "coverage", "decoder", "operator", "vaif")
# Variables that begin with PERMILLE_ and are no settings.
RESERVED_ENVIRONMENT = ("PERMILLE_CONFIG", "PERMILLE_SHARED")
RESERVED_ENVIRONMENT_PREFIXES = ("PERMILLE_TEST_", "PERMILLE_BENCH_", "PERMILLE_VPT_", "PERMILLE_DEMO_")

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_LARGEST_FILE = 1 << 20
_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\],/]+):[0-9]{1,5}")


def default_state_dir() -> Path:
    """`/var/lib/permille` for root, else `$XDG_STATE_HOME/permille` (XDG Base Directory Specification).

    Raises `InvalidArgument` for a user without a home.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/permille")
    if states := os.environ.get("XDG_STATE_HOME"):
        return Path(states) / "permille"
    try:
        return Path.home() / ".local" / "state" / "permille"
    except RuntimeError:
        # As in a container that runs with any user's number.
        raise InvalidArgument(
            f"setting state_dir has no default: HOME is not set, and user {os.geteuid()} has no entry that tells it",
            reason="CONFIG_VALUE",
            help="name a folder with --state-dir or PERMILLE_STATE_DIR, or set HOME",
            metadata={"key": "state_dir", "source": "defaults"},
        ) from None


def default_node() -> str:
    """This machine's host name as a resource id: lower case, letters, digits, `-` and `.`."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.")[:63].strip("-.")
    return name or "localhost"


class MeshConfig(BaseSettings):
    """What every service needs. A service adds a table of its own:

    `class CoverageConfig(MeshConfig): coverage: CoverageSettings = CoverageSettings()` reads the table `[coverage]` of
    the file and the variables `PERMILLE_COVERAGE_<KEY>`.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    state_dir: Path = Field(default_factory=default_state_dir, description="Folder for everything that must survive.")
    node: str = Field(default_factory=default_node, description="This machine's name in resource names.")
    etcd: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="etcd endpoints, host:port, comma separated; empty: the private etcd of `permille up`."
    )
    etcd_ca: Path | None = Field(default=None, description="Authority of etcd's certificate; needed off loopback.")
    etcd_cert: Path | None = Field(default=None, description="Client certificate for etcd.")
    etcd_key: Path | None = Field(default=None, description="The private key to etcd_cert.")
    etcd_timeout_s: float = Field(default=5.0, gt=0, le=60, description="Deadline of one etcd request.")
    lease_ttl_s: int = Field(default=10, ge=2, le=600, description="So long without a sign of life: dead.")
    store: str = Field(default="", description="file:///folder or s3://bucket/prefix; empty: <state_dir>/store.")
    listen: str = Field(default="127.0.0.1:0", description="Where the API listens; port 0 takes a free one.")
    advertise: str = Field(default="", description="Where others reach this service; empty: where it listens.")
    metrics: str = Field(default="127.0.0.1:0", description="Where /metrics listens; `off` for none.")
    health: str = Field(
        default="", description="Where gRPC health, and nothing else, answers without TLS, for Kubernetes' probes."
    )
    tls_ca: Path | None = Field(default=None, description="The authority that signed everyone's certificates.")
    tls_cert: Path | None = Field(default=None, description="This service's or user's certificate.")
    tls_key: Path | None = Field(default=None, description="The private key to tls_cert.")
    call_timeout_s: float = Field(default=30.0, gt=0, le=3600, description="Deadline of a call that sets none itself.")
    drain_s: float = Field(default=10.0, ge=0, le=600, description="How long running calls may go on after SIGTERM.")
    otlp_endpoint: str = Field(default="", description="Where its own traces go (OTLP gRPC); empty: nowhere.")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else json."
    )

    @field_validator("etcd", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("etcd")
    @classmethod
    def _endpoints(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for endpoint in value:
            _require_endpoint(endpoint)
        return value

    @field_validator("listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        return _require_endpoint(value)

    @field_validator("metrics", "health")
    @classmethod
    def _optional_endpoint(cls, value: str) -> str:
        return value if value in ("", "off") else _require_endpoint(value)

    @field_validator("node")
    @classmethod
    def _node_name(cls, value: str) -> str:
        if not _NODE.fullmatch(value):
            raise ValueError(
                "must be 1 to 63 lower-case letters, digits, '-' or '.', beginning and ending with no sign"
            )
        return value

    @field_validator("state_dir", "tls_ca", "tls_cert", "tls_key", "etcd_ca", "etcd_cert", "etcd_key")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        try:
            return value.expanduser().absolute()
        except RuntimeError:
            raise ValueError(f"there is no home folder for {value.parts[0]}") from None

    @model_validator(mode="after")
    def _tls_is_whole(self) -> MeshConfig:
        parts = {"tls_ca": self.tls_ca, "tls_cert": self.tls_cert, "tls_key": self.tls_key}
        missing = [name for name, path in parts.items() if path is None]
        if 0 < len(missing) < 3:
            raise ValueError(f"mutual TLS needs tls_ca, tls_cert and tls_key; missing: {', '.join(missing)}")
        return self

    @property
    def tls(self) -> bool:
        """Whether calls are made and served with mutual TLS."""
        return self.tls_ca is not None

    @property
    def store_url(self) -> str:
        """The object store's URL with the default filled in."""
        return self.store or (self.state_dir / "store").as_uri()

    @property
    def etcd_endpoint_file(self) -> Path:
        """Where the private etcd of this state folder writes its endpoint."""
        return self.state_dir / "etcd" / "endpoint"

    def etcd_endpoints(self) -> tuple[str, ...]:
        """The etcd to use: the one configured, else the private one of the state folder.

        Raises `Unavailable` when there is none, `PermissionDenied` for a state folder of somebody else.
        """
        if self.etcd:
            return self.etcd
        try:
            endpoint = self.etcd_endpoint_file.read_text().strip()
        except PermissionError:
            raise PermissionDenied(
                f"this user may not see whether an etcd runs in the state folder {self.state_dir}",
                reason="STATE_DIR_UNUSABLE",
                help="run it as the folder's owner, or name an etcd (--etcd HOST:PORT) or another folder (--state-dir)",
                metadata={"state_dir": str(self.state_dir)},
            ) from None
        except OSError:
            endpoint = ""
        if not endpoint:
            raise Unavailable(
                f"no etcd is configured and none is running in the state folder {self.state_dir}",
                reason="ETCD_UNKNOWN",
                help="start everything with `permille up`, or name an etcd: --etcd HOST:PORT or PERMILLE_ETCD",
                metadata={"state_dir": str(self.state_dir)},
            )
        return (endpoint,)


_Config = TypeVar("_Config", bound=MeshConfig)


def load(
    config: type[_Config],
    *,
    file: Path | None = None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
) -> _Config:
    """The configuration of one process.

    `file`: a TOML file; None: `$PERMILLE_CONFIG`, else `~/.config/permille/permille.toml` or
    `/etc/permille/permille.toml` where there is one. `overrides`: flags by key, None values are left out; a service's
    own under its table's name. Raises `InvalidArgument` for an unknown key (with the nearest known one) or a wrong
    value, `NotFound` for a missing file, `PermissionDenied` for one of somebody else.
    """
    variables = dict(os.environ if environment is None else environment)
    path = file if file is not None else _default_file(variables)
    flags = {key: value for key, value in overrides.items() if value is not None}
    from_file = _read(path) if path is not None else {}
    _refuse_unknown(config, from_file, f"file {path}")
    _refuse_unknown(config, flags, "flags")
    _refuse_unknown_variables(config, variables)
    own_file = {key: value for key, value in from_file.items() if key in config.model_fields}
    from_environment = _Variables(config, variables)()
    merged = _merge(own_file, from_environment, flags)
    try:
        return config.model_validate(merged)
    except ValidationError as error:
        raise _wrong_value(error, {"flags": flags, "environment": from_environment, f"file {path}": own_file}) from None


class _Variables(EnvSettingsSource):
    def __init__(self, config: type[BaseSettings], variables: Mapping[str, str]) -> None:
        self._variables = {key.lower(): value for key, value in variables.items() if value != ""}
        super().__init__(config)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables

    def explode_env_vars(self, field_name: str, field: FieldInfo, env_vars: Mapping[str, str | None]) -> dict[str, Any]:
        """The keys of a table; `etcd_timeout_s` is none of `etcd`."""
        return super().explode_env_vars(field_name, field, env_vars) if field_name in SECTIONS else {}


def _default_file(variables: Mapping[str, str]) -> Path | None:
    named = variables.get("PERMILLE_CONFIG")
    if named:
        return Path(named)
    home = variables.get("XDG_CONFIG_HOME") or str(Path(variables.get("HOME", "/nonexistent")) / ".config")
    for candidate in (Path(home) / "permille" / "permille.toml", Path("/etc/permille/permille.toml")):
        try:
            if candidate.is_file():
                return candidate
        except PermissionError:
            # Perhaps it is there: who reads it is told.
            return candidate
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InvalidArgument(
                f"{path} is no configuration file: it has more than {_LARGEST_FILE >> 20} MiB",
                reason="CONFIG_SYNTAX",
                help="give the right file: --config, PERMILLE_CONFIG, else below HOME or in /etc/permille",
                metadata={"file": str(path)},
            )
        return tomllib.loads(content.decode())
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(
            f"cannot read the configuration file {path}: {error.strerror}",
            reason="CONFIG_UNREADABLE",
            help="check its path and rights: --config, PERMILLE_CONFIG, else below HOME or in /etc/permille",
            metadata={"file": str(path)},
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"the configuration file {path} is not valid TOML: {error}",
            reason="CONFIG_SYNTAX",
            help='a setting is written `key = value`, text in quotes: store = "file:///srv/permille"',
            metadata={"file": str(path)},
        ) from None


def _known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from _known_keys(nested, f"{prefix}{name}.")
        else:
            yield prefix + name


def _refuse_unknown(config: type[MeshConfig], given: Mapping[str, Any], source: str) -> None:
    known = list(_known_keys(config))
    for key, value in given.items():
        if key in config.model_fields and isinstance(value, Mapping):
            for inner in value:
                if f"{key}.{inner}" not in known:
                    raise _unknown_key(f"{key}.{inner}", source, known)
        elif key in SECTIONS and isinstance(value, Mapping):
            continue
        elif key not in config.model_fields:
            raise _unknown_key(key, source, [*known, *SECTIONS])


def _refuse_unknown_variables(config: type[MeshConfig], variables: Mapping[str, str]) -> None:
    known = {ENV_PREFIX + key.replace(".", "_").upper() for key in _known_keys(config)}
    foreign = tuple(f"{ENV_PREFIX}{name.upper()}_" for name in SECTIONS if name not in config.model_fields)
    for name in variables:
        if not name.startswith(ENV_PREFIX) or name in known or name in RESERVED_ENVIRONMENT:
            continue
        if name.startswith((*foreign, *RESERVED_ENVIRONMENT_PREFIXES)):
            continue
        raise _unknown_key(name, "environment", known)


def _unknown_key(key: str, source: str, known: Iterable[str]) -> InvalidArgument:
    choices = sorted(known)
    near = difflib.get_close_matches(key, choices, n=1, cutoff=0.5)
    return InvalidArgument(
        f"unknown setting {key!r} ({source})",
        reason="CONFIG_UNKNOWN_KEY",
        help=f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(choices)}",
        metadata={"key": key, "source": source, "nearest": near[0] if near else ""},
    )


def _merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                merged[key] = _merge(below, value)
            else:
                merged[key] = value
    return merged


def _wrong_value(error: ValidationError, layers: Mapping[str, Mapping[str, Any]]) -> InvalidArgument:
    first = error.errors(include_url=False)[0]
    where = [str(part) for part in first["loc"]]
    key = ".".join(where)
    source = max(layers, key=lambda name: _told_of(layers[name], where))
    source = source if _told_of(layers[source], where) else "defaults"
    problem = first["msg"].removeprefix("Value error, ")
    message = f"setting {key} = {first['input']!r} ({source}): {problem}" if where else problem
    return InvalidArgument(
        message,
        reason="CONFIG_VALUE",
        help="correct the value; precedence is flags, then PERMILLE_* variables, then the file",
        metadata={"key": key, "source": source},
    )


def _told_of(layer: object, key: Sequence[str]) -> int:
    """How many parts of a setting's key the layer has: another one may have others of the same table."""
    if not key or not isinstance(layer, Mapping) or key[0] not in layer:
        return 0
    return 1 + _told_of(layer[key[0]], key[1:])


def _require_endpoint(value: str) -> str:
    if not _ENDPOINT.fullmatch(value) or int(value.rpartition(":")[2]) > 65535:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:7411")
    return value
