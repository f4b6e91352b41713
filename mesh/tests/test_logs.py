"""What the services' logs say, and what they keep to themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FAILING = """
import logging, structlog
from permille.mesh.logs import configure

configure("decoder", "d1", level="info", style="{style}")

def sign(key):
    raise ValueError("no answer")

for log in (structlog.get_logger(), logging.getLogger("library")):
    try:
        sign("wJalr" + "XUtnFEMI")
    except ValueError:
        log.exception("failed")
"""


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_says_where_and_why_and_no_variable(style: str) -> None:
    program = FAILING.format(style=style)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert said.count("no answer") >= 2
    assert said.count("sign") >= 2
    assert "wJalrXUtnFEMI" not in said
    if style == "json":
        lines = [json.loads(line) for line in said.splitlines()]
        assert [(line["event"], line["service"], line["exception"][0]["exc_type"]) for line in lines] == [
            ("failed", "decoder", "ValueError")
        ] * 2
