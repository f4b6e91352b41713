"""A report as one HTML page: the built template with the session's data in it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict

from permille.cli.rendering.report import COLUMNS, Note, Order, Report, report_json
from permille.cli.rendering.report_text import facts

DATA, PROFILE = "{{DATA}}", "{{PROFILE}}"


def report_page(
    template: str, report: Report, profile: bytes, picture_notes: Sequence[Note] = (), *, order: Order = Order.SELF
) -> str:
    """`profile`: the session in speedscope's format; `picture_notes`: what is to be known of it; `order`: at first."""
    content = {
        **report_json(report, order, 0),
        "sorted_by": COLUMNS[order],
        "facts": [[name, value] for name, value in facts(report)],
        "picture_notes": [asdict(note) for note in picture_notes],
        "has_calls": report.session.calls > 0,
        "segments": [asdict(row) for row in report.segments],
    }
    packed = base64.b64encode(gzip.compress(profile, 6, mtime=0)).decode()
    before, _, rest = template.partition(DATA)
    between, _, after = rest.partition(PROFILE)
    return "".join((before, in_script(content), between, packed, after))


def in_script(content: object) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
