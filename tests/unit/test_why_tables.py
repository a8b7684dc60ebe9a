"""Tables of causes: what their cache gives after a change, and when it cannot be used."""

import json

import pytest

from hpcrun.why import tables


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder of tables, and use it and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "FOLDER", tmp_path / "tables")
    (tmp_path / "tables/some").mkdir(parents=True)
    (tmp_path / "tables/some/2.toml").write_text("name = 'second'\n")
    (tmp_path / "tables/some/1.toml").write_text("name = 'first'\nlist = [1, 2.5, true]\n")
    return tmp_path / "tables/some"


def names():
    return [table["name"] for table in tables.read_tables("some/*.toml")]


def test_a_copy_is_read_instead_of_the_tables(folder, tmp_path):
    expected = [{"name": "first", "list": [1, 2.5, True]}, {"name": "second"}]
    assert tables.read_tables("some/*.toml") == expected
    (copy,) = tmp_path.glob("cache/hpcrun/why/*.json")
    assert tables.read_tables("some/*.toml") == expected
    content = json.loads(copy.read_text())
    copy.write_text(json.dumps({**content, "tables": [{"name": "copied"}]}))
    assert names() == ["copied"]


def test_changed_added_and_removed_tables_are_read_again(folder):
    assert names() == ["first", "second"]
    (folder / "2.toml").write_text("name = 'changed'\n")
    assert names() == ["first", "changed"]
    (folder / "3.toml").write_text("name = 'third'\n")
    assert names() == ["first", "changed", "third"]
    (folder / "1.toml").unlink()
    assert names() == ["changed", "third"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"key": 1}', "\0", "[" * 100_000, "damaged"])
def test_a_damaged_copy_is_replaced(folder, tmp_path, content):
    assert names() == ["first", "second"]
    (copy,) = tmp_path.glob("cache/hpcrun/why/*.json")
    written = copy.read_text()
    copy.write_text(content)
    assert names() == ["first", "second"]
    assert copy.read_text() == written


def test_a_folder_that_others_can_write_is_not_used(folder, tmp_path):
    assert names() == ["first", "second"]
    (copy,) = tmp_path.glob("cache/hpcrun/why/*.json")
    content = json.loads(copy.read_text())
    copy.write_text(json.dumps({**content, "tables": [{"name": "theirs"}]}))
    copy.parent.chmod(0o777)
    assert names() == ["first", "second"]
