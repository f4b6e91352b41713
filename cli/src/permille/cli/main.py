"""Where the command `permille` begins: what takes time is loaded when a Ctrl-C is no traceback any more."""

from __future__ import annotations

from permille.cli.interruption import end_when_interrupted


def main() -> None:
    """Runs one command; every error ends as a message with a way out and an exit code."""
    end_when_interrupted()
    from permille.cli.application import run  # noqa: PLC0415 - most of the start is this

    run()


if __name__ == "__main__":
    main()
