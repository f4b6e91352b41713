"""What the chart gives a controller, and what the kernel module takes in its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

# Not typed by its authors.
_read: Callable[[str], Any] = yaml.safe_load
REPOSITORY = Path(__file__).parents[2]
# What it has after sessions, the store's client and files on their way among it (docs/operations.md, Sizing).
CONTROLLER_MIB = 256


def test_the_pod_has_room_for_all_buffers_of_the_module_and_for_the_controller() -> None:
    module = re.search(r"memory_limit_mb = (\d+);", (REPOSITORY / "kmod" / "memory.c").read_text())
    values = _read((REPOSITORY / "deploy/helm/permille/values.yaml").read_text())
    limit = re.fullmatch(r"(\d+)Mi", values["controller"]["resources"]["limits"]["memory"])
    assert module and limit and int(limit[1]) == int(module[1]) + CONTROLLER_MIB
