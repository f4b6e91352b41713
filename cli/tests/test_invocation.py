"""What to type next."""

from pathlib import Path

from permille.cli.invocation import Invocation


def test_a_hint_finds_the_mesh_that_was_named_from_any_folder() -> None:
    named = Invocation(state_dir=Path("my state"), config_file=Path("/etc/one.toml"), etcd="host:2379")
    flags = f"--config /etc/one.toml --state-dir '{Path.cwd()}/my state' --etcd host:2379"
    assert named.hint("run", "-- CMD") == f"next: permille run {flags} -- CMD"


def test_a_hint_names_no_mesh_where_none_was_named() -> None:
    assert Invocation().hint("report", "latest") == "next: permille report latest"
