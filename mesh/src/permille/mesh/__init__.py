"""What every permille service shares."""

import sys

if "rich" not in sys.modules:
    # structlog loads rich where it is installed, for coloured stack traces: 5 MB of every service's memory.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
