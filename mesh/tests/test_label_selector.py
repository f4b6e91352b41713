"""Label selectors: which labels one selects, and what is none."""

from __future__ import annotations

import pytest
from permille.mesh.errors import InvalidArgument
from permille.mesh.label_selector import parse, selects

WEB = {"app": "web", "tier": "front", "example.org/canary": ""}


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        ("app=web", True),
        (" app == web , tier!=back ", True),
        ("app=web,tier=back", False),
        # What has no such label does not have the value.
        ("zone!=a", True),
        ("zone notin (a,b)", True),
        ("zone in (a,b)", False),
        ("app in (db, web)", True),
        ("app in(web),tier notin(front)", False),
        ("tier notin (back)", True),
        ("app", True),
        ("zone", False),
        ("!zone,app", True),
        ("! app", False),
        # An empty value is one.
        ("example.org/canary=", True),
        ("example.org/canary in ()", True),
        ("app in (,db)", False),
        # Where a key stands, these are keys.
        ("in", False),
        ("!notin,in notin (in)", True),
    ],
)
def test_all_terms_must_hold(selector: str, meant: bool) -> None:
    assert selects(parse(selector), WEB) is meant


@pytest.mark.parametrize(
    ("selector", "part"),
    [
        ("", "''"),
        ("app=web,", "''"),
        ("=web", "'=web'"),
        ("app=web,tier=a b,zone", "'tier=a b'"),
        ("app=web,zone in (a,b", "'zone in (a,b'"),
        ("zone in (a b,c),app", "'zone in (a b,c)'"),
        ("zone into (a)", "'zone into (a)'"),
        ("!app=web", "'!app=web'"),
        ("!app in (web)", "'!app in (web)'"),
        ("-a=b", "'-a=b'"),
        ("a=b=c", "'a=b=c'"),
        ("a/b/c=d", "'a/b/c=d'"),
        ("age > 3", "'age > 3'"),
        ("a" * 64, "aaa"),
    ],
)
def test_what_is_no_condition_is_named_with_the_way_to_write_one(selector: str, part: str) -> None:
    with pytest.raises(InvalidArgument, match="is no condition on a label") as refused:
        parse(selector)
    assert part in refused.value.message
    assert refused.value.reason == "SELECTOR_INVALID" and "KEY notin (A,B)" in refused.value.help
