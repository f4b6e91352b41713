"""What `permille up` says while it runs."""

from __future__ import annotations

from permille.cli.supervision.events import Event, Happened


def event_line(event: Event) -> str:
    """One line for people."""
    detail = f"  {event.detail}" if event.detail else ""
    match event.happened:
        case Happened.STARTED:
            return f"{event.name:<11} started   pid {event.pid}{detail}"
        case Happened.SERVING:
            return f"{event.name:<11} serving   pid {event.pid}{detail}"
        case Happened.ENDED:
            return f"{event.name:<11} ended     {event.detail}; starting it again"
        case Happened.KILLED:
            return f"{event.name:<11} killed    pid {event.pid}{detail}"
        case Happened.READY:
            return f"ready: state in {event.detail}; Ctrl-C ends it\nnext: permille run -- CMD"
        case Happened.DRAINING:
            return "draining (a second Ctrl-C kills)"
        case Happened.STOPPED:
            return "stopped; `permille up` goes on where this left off"


def event_json(event: Event) -> dict[str, object]:
    """The same for programs."""
    return {"event": event.happened.value, "name": event.name, "pid": event.pid, "detail": event.detail}
