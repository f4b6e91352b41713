"""Nobody records into a folder that another user has made."""

import os
from pathlib import Path

import pytest
from permille.controller.domain.own_folder import own_folder
from permille.mesh.errors import FailedPrecondition

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


def test_it_is_made_for_this_user_alone_and_may_be_there_already(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "vpt"
    own_folder(folder)
    own_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@needs_root
@pytest.mark.parametrize("made", ["first", "first/vpt"])
def test_one_that_another_user_made_first_is_refused_by_name(tmp_path: Path, made: str) -> None:
    (tmp_path / "first" / "vpt").mkdir(parents=True)
    os.chown(tmp_path / made, 12345, 12345)
    with pytest.raises(FailedPrecondition, match=f"{tmp_path / made} belongs to the user 12345") as raised:
        own_folder(tmp_path / "first" / "vpt")
    assert raised.value.reason == "FOREIGN_FOLDER" and "vpt_dir" in raised.value.help


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "vpt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FailedPrecondition):
        own_folder(tmp_path / "vpt")


def test_what_is_directly_in_a_folder_of_all_is_fine_where_nobody_can_replace_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    own_folder(tmp_path / "vpt")
