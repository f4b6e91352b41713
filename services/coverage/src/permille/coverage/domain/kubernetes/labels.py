"""Label selectors: as a TraceRequest writes them, as one line of text, and which labels one selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TERM = re.compile(
    r"(?P<key>[^\s,=!()]+) (?P<word>in|notin) \((?P<values>[^)]*)\)"
    r"|(?P<not>!?)(?P<name>[^\s,=!()]+)(?:=(?P<value>[^,]*))?"
)


def label_selector(selector: Mapping[str, Any]) -> str:
    """A LabelSelector as one line, as `Target.selector` and the API server's labelSelector have it."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], ",".join(expression.get("values") or [])
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(terms)


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector written by `label_selector` means something with these labels."""
    return all(_holds(term, labels) for term in _TERM.finditer(selector))


def _holds(term: re.Match[str], labels: Mapping[str, str]) -> bool:
    if term["word"]:
        among = labels.get(term["key"]) in term["values"].split(",")
        return among if term["word"] == "in" else not among
    if term["value"] is not None:
        return labels.get(term["name"]) == term["value"]
    return (term["name"] in labels) is not bool(term["not"])
