"""structlog without what it loads where it happens to be installed and does not need here: 6 MB of a service's memory.

rich is for coloured stack traces, greenlet for a way of binding context that is not used. To be imported before
structlog is; does nothing about what is loaded anyway.
"""

import sys

_UNWANTED = [name for name in ("rich", "greenlet") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_UNWANTED))  # type: ignore[arg-type]
import structlog  # noqa: E402, F401

for _name in _UNWANTED:
    del sys.modules[_name]
