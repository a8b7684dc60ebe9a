"""``hpcrun workload new`` copies a folder, and never touches one that was there before."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.workload import copy_folder


@contextmanager
def ordinary_user():
    """Run the body as a user who is not root, who could read everything; yield a folder of this user."""
    folder = Path(tempfile.mkdtemp())  # not tmp_path, whose parents only root may enter
    user = os.geteuid()
    os.chown(folder, user or 65534, -1)
    os.seteuid(user or 65534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def write_source(folder, mode=0o755):
    """Write a workload folder, and return its path."""
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "workload.toml").write_text("description = 'x'")
    folder.chmod(mode)
    return str(folder)


def test_a_folder_that_exists_is_kept_if_the_source_cannot_be_listed():
    with ordinary_user() as folder:
        source = write_source(folder / "source", mode=0o311)
        (folder / "mine").mkdir()
        (folder / "mine/results.txt").write_text("months of work")
        with pytest.raises(HpcrunError, match=f"{folder}/mine exists"):
            copy_folder("mine", source, folder)
        assert (folder / "mine/results.txt").read_text() == "months of work"


def test_a_source_that_cannot_be_listed_leaves_no_folder():
    with ordinary_user() as folder:
        source = write_source(folder / "source", mode=0o311)
        with pytest.raises(HpcrunError) as refusal:
            copy_folder("mine", source, folder)
        assert refusal.value.message == f"cannot copy {source} to {folder}/mine: Permission denied"
        assert "name a folder that you may read after --from" in str(refusal.value)
        assert not (folder / "mine").exists()


def test_a_folder_that_cannot_be_created_is_one_error():
    with ordinary_user() as folder:
        source = write_source(folder / "source")
        (folder / "closed").mkdir(mode=0o500)
        with pytest.raises(HpcrunError, match=f"cannot create {folder}/closed/mine: Permission denied"):
            copy_folder("mine", source, folder / "closed")


def test_a_folder_may_be_copied_into_itself(tmp_path):
    write_source(tmp_path / "source")
    copy = copy_folder("mine", str(tmp_path / "source"), tmp_path / "source")
    assert sorted(path.name for path in copy.iterdir()) == ["train.py", "workload.toml"]
