"""docs/api.md is what the contracts say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "reference.py"
spec = importlib.util.spec_from_file_location("reference", SCRIPT)
assert spec is not None and spec.loader is not None
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def test_the_committed_reference_is_what_the_contracts_say() -> None:
    assert script.DOCUMENT.read_text() == script.reference(), "run: python proto/reference.py"


def test_every_call_and_every_type_says_what_it_is_and_every_link_leads_somewhere() -> None:
    text = script.reference()
    without = re.findall(r"^#+ (\S+)\n\n\n", text, re.MULTILINE)
    assert without == []
    headings = re.findall(r"^#+ (\S+)$", text, re.MULTILINE)
    anchors = [heading.replace(".", "").lower() for heading in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= set(anchors)
