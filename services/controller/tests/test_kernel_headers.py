from __future__ import annotations

from pathlib import Path

from permille.controller.domain.switches.kernel_headers import kernel_source


def test_the_newest_pair_of_trees_is_merged_with_the_architecture_on_top(tmp_path: Path) -> None:
    sources, cache = tmp_path / "src", tmp_path / "cache"
    for version in ("6.1.0-9", "6.1.0-10"):
        for tree in (f"{version}-common", f"{version}-cloud-amd64"):
            folder = sources / f"linux-headers-{tree}" / "include"
            folder.mkdir(parents=True)
            (folder / tree).write_text(tree)
            (folder / "both").write_text(tree)
    merged = kernel_source(cache, release="6.18", sources=sources, modules=tmp_path / "none")
    assert merged is not None and "6.1.0-10" in merged.name
    assert sorted(path.name for path in (merged / "include").iterdir()) == [
        "6.1.0-10-cloud-amd64",
        "6.1.0-10-common",
        "both",
    ]
    assert (merged / "include" / "both").read_text() == "6.1.0-10-cloud-amd64"
    assert kernel_source(cache, release="6.18", sources=sources, modules=tmp_path / "none") == merged
    assert [path.name for path in cache.iterdir()] == [merged.name]


def test_a_kernel_with_its_own_headers_needs_no_merged_tree(tmp_path: Path) -> None:
    (tmp_path / "modules" / "6.18" / "build").mkdir(parents=True)
    assert kernel_source(tmp_path / "cache", release="6.18", sources=tmp_path, modules=tmp_path / "modules") is None


def test_a_machine_without_headers_has_no_tree(tmp_path: Path) -> None:
    assert kernel_source(tmp_path / "cache", release="6.18", sources=tmp_path, modules=tmp_path) is None
