"""A session: one recording of one node, its states, and its text form in etcd and in the local journal."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from permille.controller.domain.planned_buffer import PlannedBuffer
from permille.controller.domain.targets.resolution import NO_GROUP, Group
from permille.mesh.errors import Internal, InvalidArgument, PermilleError

NAME = re.compile(r"nodes/([a-z0-9.-]{1,63})/sessions/([a-z0-9-]{1,63})")


class State(StrEnum):
    """How far a session is; STORED and FAILED are final."""

    PREPARING = "PREPARING"
    RECORDING = "RECORDING"
    STORING = "STORING"
    STORED = "STORED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        return self in (State.STORED, State.FAILED)


FOLLOWERS = {
    State.PREPARING: (State.RECORDING, State.FAILED),
    State.RECORDING: (State.STORING, State.FAILED),
    State.STORING: (State.STORED, State.FAILED),
    State.STORED: (),
    State.FAILED: (),
}


class StopReason(StrEnum):
    """Why a recording ended."""

    PERIOD = "PERIOD"
    STOPPED = "STOPPED"
    TARGET_EXITED = "TARGET_EXITED"
    # It ended by the recorder's own timer while no controller was there.
    CONTROLLER_LOST = "CONTROLLER_LOST"


@dataclass(frozen=True)
class TraceOptions:
    """Which packets are recorded: RTIT_CTL's fields (Intel SDM volume 3, Processor Trace), with the defaults.

    `snapshot`: where a buffer is full, those that were written last are kept, and not those that were written first.
    """

    psb_freq: int = 3
    mtc_freq: int = 3
    tsc: bool = True
    mtc: bool = True
    cyc: bool = True
    return_compression: bool = True
    snapshot: bool = False


@dataclass(frozen=True)
class Session:
    """One recording. Times are unix ns, 0 while unknown; `error_*` may also be set while STORING: why it takes long."""

    node: str
    id: str
    request_id: str
    pids: tuple[int, ...]
    purpose: str
    period_ms: int
    budget_bytes: int
    options: TraceOptions = field(default_factory=TraceOptions)
    state: State = State.PREPARING
    target_name: str = ""
    command_line: tuple[str, ...] = ()
    create_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    stop_reason: str = ""
    expected_bytes: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    lost_bytes: int = 0
    segments: int = 0
    # Buffers that were full before the end, and switch records that found no room.
    full_buffers: int = 0
    lost_records: int = 0
    # While STORING: the recorder has not given its processes back yet.
    holds: bool = False
    # Of each core that the target may run on, or of each of its threads.
    plan: tuple[PlannedBuffer, ...] = ()
    # Of the recorder's own work.
    counters: Mapping[str, int] = field(default_factory=dict)
    # As in the API, in small letters; what was imported is listed like what was recorded.
    backend: str = "vpt"
    # Whose processes the pids are, if they were named so.
    group: Group = NO_GROUP
    # After the end of its operation; 0: the decoder's setting.
    retention_s: int = 0
    # Processes of the target for which there was no place in `pids`.
    left_out: int = 0
    # Its processes were found by a name or a group: those that end before it begins are left out.
    found: bool = False
    error_reason: str = ""
    error_message: str = ""
    error_help: str = ""

    @property
    def name(self) -> str:
        return f"nodes/{self.node}/sessions/{self.id}"

    def advanced(self, state: State, **changes: Any) -> Session:
        """The session in its next state; raises Internal for a step that the life of a session does not have."""
        if state not in FOLLOWERS[self.state]:
            raise Internal(f"{self.name} cannot go from {self.state} to {state}", reason="SESSION_STATE")
        return dataclasses.replace(self, state=state, **{**NO_ERROR, **changes})

    def changed(self, **changes: Any) -> Session:
        return dataclasses.replace(self, **changes)

    def failed(self, error: PermilleError) -> Session:
        return self.advanced(State.FAILED, **error_fields(error))

    def waiting(self, error: PermilleError) -> Session:
        """The same state, with the reason why it does not go on."""
        return self.changed(**error_fields(error))


NO_ERROR = {"error_reason": "", "error_message": "", "error_help": ""}


def error_fields(error: PermilleError) -> dict[str, str]:
    return {"error_reason": error.reason, "error_message": error.message, "error_help": error.help}


def to_json(session: Session) -> bytes:
    return json.dumps(dataclasses.asdict(session), separators=(",", ":")).encode()


def from_json(text: bytes) -> Session:
    """Raises ValueError for text that is no session; fields of a newer version are ignored."""
    try:
        values = json.loads(text)
        known = {field.name for field in dataclasses.fields(Session)}
        values = {name: value for name, value in values.items() if name in known}
        values["pids"] = tuple(values["pids"])
        values["command_line"] = tuple(values["command_line"])
        values["state"] = State(values["state"])
        values["options"] = TraceOptions(**values["options"])
        values["plan"] = tuple(PlannedBuffer(**buffer) for buffer in values.get("plan", ()))
        values["group"] = Group(**values.get("group", {}))
        return Session(**values)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a session: {error}") from None


def parse_name(name: str) -> tuple[str, str]:
    """Node and id of `nodes/<node>/sessions/<id>`."""
    match = NAME.fullmatch(name)
    if match is None:
        raise InvalidArgument(
            f"{name!r} is not the name of a session",
            reason="INVALID_NAME",
            help="a session is named nodes/<node>/sessions/<id>; `permille sessions` lists them",
            metadata={"field": "name"},
        )
    return match[1], match[2]
