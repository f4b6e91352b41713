"""What `permille up` says while it runs."""

from __future__ import annotations

from permille.cli.supervision.events import Event, Happened


def event_line(event: Event, hint: str) -> str:
    """One line for people, and the hint where the mesh is ready."""
    detail = f"  {event.detail}" if event.detail else ""
    forms = {
        Happened.STARTED: f"{event.name:<11} started   pid {event.pid}{detail}",
        Happened.SERVING: f"{event.name:<11} serving   pid {event.pid}{detail}",
        Happened.ENDED: f"{event.name:<11} ended     {event.detail}; starting it again",
        Happened.KILLED: f"{event.name:<11} killed    pid {event.pid}{detail}",
        Happened.READY: f"ready: state in {event.detail}; Ctrl-C ends it\n{hint}",
        Happened.DRAINING: "draining (a second Ctrl-C kills)",
        Happened.STOPPED: "stopped; `permille up` goes on where this left off",
    }
    return forms[event.happened]


def event_json(event: Event) -> dict[str, object]:
    """The same for programs."""
    return {"event": event.happened.value, "name": event.name, "pid": event.pid, "detail": event.detail}
