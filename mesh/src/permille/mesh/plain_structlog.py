"""structlog without rich, which it loads where it is installed, for coloured stack traces: 5 MB of a service's memory.

To be imported before structlog is; it does nothing where rich is loaded anyway.
"""

import sys

if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
