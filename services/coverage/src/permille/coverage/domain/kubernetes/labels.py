"""Label selectors as a TraceRequest writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
