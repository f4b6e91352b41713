"""Where a setting comes from, and what a wrong one says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from permille.mesh.config import MeshConfig, load
from permille.mesh.errors import InvalidArgument, NotFound, Unavailable
from permille.mesh.flags import parse
from pydantic import BaseModel, ConfigDict


class CoverageSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    budget_bytes: int = 5
    items: int = 0


class CoverageConfig(MeshConfig):
    coverage: CoverageSettings = CoverageSettings()


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "permille.toml"
    file.write_text('node = "file"\nlisten = "127.0.0.1:1"\nstore = "file:///s"\n[coverage]\nbudget_bytes = 6\n')
    environment = {"PERMILLE_NODE": "environment", "PERMILLE_LISTEN": "127.0.0.1:2"}
    config = load(CoverageConfig, file=file, overrides={"node": "flag"}, environment=environment)
    assert (config.node, config.listen, config.store_url, config.metrics) == (
        "flag",
        "127.0.0.1:2",
        "file:///s",
        "127.0.0.1:0",
    )
    assert config.coverage.budget_bytes == 6
    environment["PERMILLE_COVERAGE_BUDGET_BYTES"] = "7"
    assert load(CoverageConfig, file=file, environment=environment).coverage.budget_bytes == 7


def test_the_real_environment_is_not_read_when_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMILLE_NODE", "real")
    assert load(MeshConfig, environment={"PERMILLE_NODE": "given"}).node == "given"
    assert load(MeshConfig).node == "real"


def test_etcd_endpoints_are_comma_separated_in_the_environment_and_a_list_in_the_file(tmp_path: Path) -> None:
    assert load(MeshConfig, environment={"PERMILLE_ETCD": "a:1, b:2"}).etcd == ("a:1", "b:2")
    file = tmp_path / "c.toml"
    file.write_text('etcd = ["c:3"]\n')
    assert load(MeshConfig, file=file, environment={}).etcd == ("c:3",)


def test_a_variable_whose_name_begins_with_anothers_is_its_own() -> None:
    config = load(MeshConfig, environment={"PERMILLE_ETCD_TIMEOUT_S": "7", "PERMILLE_ETCD_CA": "/ca"})
    assert (config.etcd, config.etcd_timeout_s, config.etcd_ca) == ((), 7, Path("/ca"))


def test_tables_of_other_services_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[decoder]\nanything = 1\n")
    load(CoverageConfig, file=file, environment={"PERMILLE_DECODER_ANYTHING": "1"})


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ('listem = "127.0.0.1:1"', "listem", "listen"),
        ("[coverage]\nbudget = 1", "coverage.budget", "coverage.budget_bytes"),
        ("[coverge]\nbudget_bytes = 1", "coverge", "coverage"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path, text: str, key: str, nearest: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        load(CoverageConfig, file=file, environment={})
    assert caught.value.reason == "CONFIG_UNKNOWN_KEY"
    assert caught.value.metadata == {"key": key, "source": f"file {file}", "nearest": nearest}
    assert nearest in caught.value.help


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidArgument, match="PERMILLE_LOGLEVEL") as caught:
        load(MeshConfig, environment={"PERMILLE_LOGLEVEL": "debug"})
    assert "PERMILLE_LOG_LEVEL" in caught.value.help


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen", "nowhere"),
        ("listen", "127.0.0.1:70000"),
        ("node", "Bad Node"),
        ("log_level", "loud"),
        ("lease_ttl_s", 0),
        ("etcd", "no-port"),
        ("tls_ca", "/only/one"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=key):
        load(MeshConfig, overrides={key: value}, environment={})


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"absent\.toml"):
        load(MeshConfig, file=tmp_path / "absent.toml", environment={})
    (tmp_path / "broken.toml").write_text("listen = ")
    with pytest.raises(InvalidArgument, match=r"broken\.toml"):
        load(MeshConfig, environment={"PERMILLE_CONFIG": str(tmp_path / "broken.toml")})


def test_a_wrong_value_is_looked_for_where_it_was_said(tmp_path: Path) -> None:
    file = tmp_path / "permille.toml"
    file.write_text('[coverage]\nbudget_bytes = "many"\n')
    environment = {"PERMILLE_COVERAGE_ITEMS": "3"}
    with pytest.raises(InvalidArgument, match=r"coverage\.budget_bytes") as caught:
        load(CoverageConfig, file=file, environment=environment)
    assert caught.value.metadata["source"] == f"file {file}"


def test_what_never_ends_is_no_file_of_settings() -> None:
    with pytest.raises(InvalidArgument, match="/dev/zero is no configuration file"):
        load(MeshConfig, file=Path("/dev/zero"), environment={})


def test_a_user_without_a_home_is_told_how_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_001)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_001)
    for variable in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InvalidArgument, match="user 4000000001") as caught:
        load(MeshConfig, environment={})
    assert "--state-dir" in caught.value.help
    with pytest.raises(InvalidArgument, match="~nobody-here"):
        load(MeshConfig, overrides={"state_dir": Path("~nobody-here/state")}, environment={})


def test_a_folder_of_settings_that_may_not_be_looked_into_is_named(tmp_path: Path) -> None:
    closed = tmp_path / ".config"
    (closed / "permille").mkdir(parents=True)
    closed.chmod(0)
    code = (
        "import os\nfrom permille.mesh.config import MeshConfig, load\n"
        "from permille.mesh.errors import PermissionDenied\n"
        "if os.getuid() == 0:\n    os.setuid(65534)\n"
        "try:\n    load(MeshConfig)\nexcept PermissionDenied as error:\n    print(error.reason, error.message)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"HOME": str(tmp_path)}, check=True, capture_output=True, text=True
    )
    assert ran.stdout.startswith("CONFIG_UNREADABLE ")
    assert str(closed) in ran.stdout


def test_without_any_etcd_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        load(MeshConfig, overrides={"state_dir": tmp_path}, environment={}).etcd_endpoints()
    assert "permille up" in caught.value.help


def test_a_state_folder_of_somebody_else_is_not_said_to_have_no_etcd(tmp_path: Path) -> None:
    closed = tmp_path / "state"
    (closed / "etcd").mkdir(parents=True)
    (closed / "etcd" / "endpoint").write_text("127.0.0.1:1")
    closed.chmod(0)
    code = (
        "import os, sys\nfrom permille.mesh.config import MeshConfig, load\n"
        "from permille.mesh.errors import PermissionDenied\n"
        "config = load(MeshConfig, overrides={'state_dir': sys.argv[1]}, environment={})\n"
        "if os.getuid() == 0:\n    os.setuid(65534)\n"
        "try:\n    config.etcd_endpoints()\nexcept PermissionDenied as error:\n    print(error.reason, error.message)"
    )
    ran = subprocess.run([sys.executable, "-c", code, closed], check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("STATE_DIR_UNUSABLE ")
    assert str(closed) in ran.stdout


def test_flags_are_made_from_the_settings() -> None:
    file, overrides = parse(
        "p", CoverageConfig, ["--config", "/c.toml", "--log-level=debug", "--coverage-budget-bytes", "9"]
    )
    assert file == Path("/c.toml")
    assert overrides == {"log_level": "debug", "coverage": {"budget_bytes": "9"}}
    with pytest.raises(InvalidArgument, match="--log-leve") as caught:
        parse("p", CoverageConfig, ["--log-leve", "debug"])
    assert "--log-level" in caught.value.help
