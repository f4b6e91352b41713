"""The table [coverage], from a file, from variables and from flags; and how troubles fade."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.quota import Quota
from permille.coverage.domain.stability import HALF_LIFE_S, MOST_CAUSES, Stability
from permille.coverage.main import CoverageConfig
from permille.coverage.operator import OperatorConfig
from permille.coverage.service.settings import CoverageSettings
from permille.mesh.config import load
from permille.mesh.errors import InvalidArgument

FILE = """
[coverage]
weight_priority = 2.5
zones = { n1 = "a", n2 = "b" }

[coverage.quotas.shop]
cores = 8
bytes_per_second = 1e8

[coverage.callers.pager]
namespaces = ["shop"]
"""


def test_weights_zones_and_quotas_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "permille.toml"
    file.write_text(FILE)
    settings = load(CoverageConfig, file=file, environment={}).coverage
    policy = settings.policy()
    assert (policy.weights.priority, settings.zones) == (2.5, {"n1": "a", "n2": "b"})
    assert policy.quota("shop") == Quota(cores=8, bytes_per_second=1e8)
    assert policy.quota("other") == Quota()
    assert (policy.caller("pager").namespaces, policy.caller("other").namespaces) == (("shop",), None)


def test_a_variable_or_a_flag_is_json() -> None:
    settings = load(CoverageConfig, environment={"PERMILLE_COVERAGE_ZONES": '{"n1": "a"}'}).coverage
    assert settings.zones == {"n1": "a"}
    flags = {"coverage": {"quotas": '{"default": {"decode_ms": 5}}'}}
    settings = load(CoverageConfig, environment={}, overrides=flags).coverage
    assert settings.policy().quota("any") == Quota(decode_ms=5)


def test_what_is_no_json_or_no_quota_is_refused_with_the_setting() -> None:
    with pytest.raises(InvalidArgument, match=r"coverage\.zones"):
        load(CoverageConfig, environment={}, overrides={"coverage": {"zones": "n1=a"}})
    with pytest.raises(InvalidArgument, match=r"coverage\.weight_stability"):
        load(CoverageConfig, environment={}, overrides={"coverage": {"weight_stability": "1e308"}})
    with pytest.raises(InvalidArgument, match=r"coverage\.quotas"):
        load(CoverageConfig, environment={}, overrides={"coverage": {"quotas": '{"default": {"core": 5}}'}})


@pytest.mark.parametrize("gain", ["-1", "inf", "nan"])
@pytest.mark.parametrize("name", ["min_gain", "min_gain_per_core_second"])
def test_a_gain_that_no_round_can_reach_is_refused_with_the_setting(name: str, gain: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"coverage\.{name}\b"):
        load(CoverageConfig, environment={}, overrides={"coverage": {name: gain}})
    with pytest.raises(InvalidArgument, match=rf"operator\.{name}\b"):
        load(OperatorConfig, environment={}, overrides={"operator": {name: gain}})


def test_without_any_setting_the_cluster_alone_is_limited_and_the_documented_weights_hold() -> None:
    policy = CoverageSettings().policy()
    assert policy.quota("any") == Quota()
    assert policy.cluster == Quota(cores=4_000, bytes_per_second=40e9, decode_ms=3_600_000)
    assert CoverageSettings(cluster_cores=0, cluster_decode_ms=1).policy().cluster == Quota(0, 40e9, 1)
    assert (policy.weights.priority, policy.weights.complexity, policy.weights.stability) == (0.5, 0.3, 0.2)


def test_a_trouble_counts_half_after_a_week() -> None:
    once = Stability().after_trouble(1000.0, "a")
    assert once.now(1000.0 + HALF_LIFE_S) == pytest.approx(0.5)
    assert once.after_trouble(1000.0 + HALF_LIFE_S, "b").issues == pytest.approx(1.5)


@given(st.lists(st.sampled_from("abcde"), max_size=200))
def test_a_cause_counts_once_however_often_it_is_told(causes: list[str]) -> None:
    stability = Stability()
    for cause in causes:
        stability = stability.after_trouble(1000.0, cause)
    assert stability.issues == len(set(causes))


def test_only_so_many_causes_are_kept() -> None:
    stability = Stability()
    for number in range(MOST_CAUSES + 1):
        stability = stability.after_trouble(1000.0, str(number))
    assert (stability.issues, len(stability.causes)) == (MOST_CAUSES + 1, MOST_CAUSES)


@given(st.lists(st.floats(0, 1e10), max_size=20), st.floats(0, 1e10))
def test_troubles_only_fade_whatever_the_clock_does(times: list[float], later: float) -> None:
    stability = Stability()
    for number, moment in enumerate(times):
        stability = stability.after_trouble(moment, str(number))
    assert 0 <= stability.now(stability.at_s + later) <= stability.issues <= len(times)
