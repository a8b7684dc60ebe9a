"""Texts of the workload transformer: what it reads, how it cuts it, and what it refuses."""

import importlib
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hpcrun.errors import HpcrunError

WORKLOAD = Path(__file__).parents[2] / "workloads/transformer"


@pytest.fixture
def texts(monkeypatch):
    monkeypatch.syspath_prepend(WORKLOAD)
    return importlib.import_module("texts")


def test_the_default_text_has_each_paragraph_once(texts):
    text = texts.read_text(None)
    paragraphs = [" ".join(paragraph.split()) for paragraph in bytes(text).decode().split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))
    assert len(text) > 300_000
    assert 'The "with" statement' in bytes(text).decode()


def test_a_folder_is_read_in_the_order_of_its_paths(texts, tmp_path):
    for name, text in {"b.txt": "two", "a/ü 中.txt": "one", ".hidden": "\0", ".git/config": "\0"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert bytes(texts.read_text(str(tmp_path))) == b"one\ntwo"
    assert bytes(texts.read_text(str(tmp_path / "a/ü 中.txt"))) == b"one"


def test_each_byte_of_a_part_is_predicted_once(texts):
    text = np.arange(251).astype(np.uint8)
    training, held_out = texts.split_sequences(text, 8)
    assert (training.shape, held_out.shape) == ((28, 9), (3, 9))
    assert all((one[-1] == other[0]) for one, other in pairwise(training))
    np.testing.assert_array_equal(training[:, 1:].ravel(), text[1:225])
    np.testing.assert_array_equal(held_out[:, 1:].ravel(), text[227:251])


def write_files(folder):
    (folder / "image.png").write_bytes(b"\x89PNG\r\n")
    (folder / "zero.txt").write_bytes(b"text\0text")
    (folder / "blank.txt").write_text(" \n")
    (folder / "empty").mkdir()
    (folder / "mixed").mkdir()
    (folder / "mixed/a.txt").write_text("text")
    (folder / "mixed/b\udcff.bin").write_bytes(b"\xff\xfe")
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.txt", "none.txt cannot be read: No such file or directory"),
        ("x" * 300, "cannot be read: File name too long"),
        ("image.png", "image.png is not UTF-8 text: invalid start byte at byte 0"),
        ("zero.txt", "zero.txt is not text: it has a zero at byte 4"),
        ("blank.txt", "blank.txt has no text"),
        ("empty", "empty: the folder has no files"),
        ("mixed", "b\udcff.bin is not UTF-8 text"),
        ("pipe", "pipe is not a regular file"),
    ],
)
def test_what_is_not_text_is_refused_by_name(texts, tmp_path, name, message):
    write_files(tmp_path)
    with pytest.raises(HpcrunError) as refusal:
        texts.read_text(str(tmp_path / name))
    assert message in str(refusal.value)
    assert "\nHINT: " in str(refusal.value)


def test_a_file_that_may_not_be_read_is_refused_by_name(texts, tmp_path):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/a.txt").write_text("text")
    (tmp_path / "closed").chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root can read everything
    try:
        for name in ("closed", "closed/a.txt"):
            with pytest.raises(HpcrunError, match=f"{name} cannot be read: Permission denied"):
                texts.read_text(str(tmp_path / name))
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(("length", "hint"), [(89, "or --context=7"), (5, "give a text of 90 bytes")])
def test_a_text_that_is_too_short_is_refused(texts, length, hint):
    with pytest.raises(HpcrunError, match=f"the text has {length} bytes") as refusal:
        texts.split_sequences(np.zeros(length, np.uint8), 8)
    assert hint in str(refusal.value)
    texts.split_sequences(np.zeros(90, np.uint8), 8)


def test_names_of_bytes_are_lines_of_their_own(texts):
    assert len({*texts.BYTE_NAMES}) == 256
    assert all(name.split() == [name] for name in texts.BYTE_NAMES)
    assert (texts.BYTE_NAMES[65], texts.BYTE_NAMES[10]) == ("A", r"\x0a")
