"""Images of shards and folders, equal on any number of ranks, and errors that name damaged ones."""

import re
import shutil
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hpcrun.data.build import Options, build
from hpcrun.data.example import encode_example
from hpcrun.data.image_sources import find_images
from hpcrun.data.layout import find_shards
from hpcrun.data.shard_files import read_shard
from hpcrun.data.tfrecord import read_records, write_record
from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


def photo(file, seed):
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(6, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((40, 30)).save(file)


def copy(folder, name, source="records", index=True):
    shutil.copytree(folder / source, folder / name)
    if not index:
        for file in (folder / name).glob("index-*"):
            file.unlink()
    return folder / name


def damage(file, offset):
    data = bytearray(file.read_bytes())
    data[offset : offset + 4] = b"\xff\xd8XX"
    file.write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for split, count in (("train", 6), ("validation", 3)):
        for number in range(count):
            photo(folder / "tree" / split / "roses" / f"{number}.jpg", number)
            photo(folder / "tree" / split / "tulips" / f"{number}.{'png' if number == 1 else 'jpg'}", 50 + number)
    build(find_images(folder / "tree"), folder / "records", Options({"train": 2}), 1, lambda *_: None)
    build(find_images(folder / "tree"), folder / "pixels", Options({}, resize=12, raw=True), 1, lambda *_: None)
    copy(folder, "foreign", index=False)
    second = find_shards(folder / "records")["train"][1].name
    places = [offset for offset, _ in read_records(folder / "records" / second)]
    damage(copy(folder, "changed") / second, places[2] + 100)  # the index does not know
    damage(copy(folder, "damaged", index=False) / second, places[2] + 100)
    (copy(folder, "labels", index=False) / "labels.txt").write_text("roses\n")
    (copy(folder, "indexed labels") / "labels.txt").write_text("roses\n")
    (copy(folder, "empty") / second).write_bytes(b"")
    whole = (folder / "records" / second).read_bytes()
    (copy(folder, "short") / second).write_bytes(whole[: places[4]])
    truncated = copy(folder, "truncated", index=False) / second
    truncated.write_bytes(whole[: places[4] + 10])
    damage(truncated, places[1] + 100)
    unnamed = copy(folder, "unnamed")  # tulips are label 2, and all are damaged
    (unnamed / "labels.txt").unlink()
    for shard in find_shards(unnamed)["train"]:
        for offset, features in read_shard(shard):
            if features["image/class/label"] == [2]:
                damage(shard, offset + 100)
    typed = find_shards(copy(folder, "types", index=False))["train"][1]
    originals = [features for _, features in read_shard(typed)]
    changes: list[tuple[str, Any]] = [
        ("image/class/label", b"1"), ("image/class/label", [1.0]), ("image/encoded", 1), ("image/height", [6, 6]),
    ]  # fmt: skip
    with typed.open("wb") as stream:
        for record, (name, value) in zip(originals, changes, strict=False):
            write_record(stream, encode_example({**record, name: value}))
        for record in originals[len(changes) :]:
            write_record(stream, encode_example(record))
    photos = copy(folder, "photos", "tree") / "train" / "roses"
    (photos / "0.jpg").write_bytes((photos / "0.jpg").read_bytes()[:300])
    return folder


def check(folder, results):
    """Check what does not depend on the number of ranks, and return it."""
    found, shard = results[0], find_shards(folder / "records")["train"][1].name
    assert all(result == found for result in results)
    errors = found["errors"]
    assert "there is no split 'test'" in errors["split"]
    assert f"{folder}/nowhere is not a folder" in errors["folder"]
    assert f"{folder}/labels/train-0" in errors["label"]
    for name in ("label", "indexed label"):
        assert re.search(
            r"train-0000\d-of-00002: record at byte \d+: label 2 is not one of 1 to 1, the lines", errors[name]
        )
    assert f"{folder}/damaged/{shard}: record at byte" in errors["scan"]
    assert errors["types"].startswith(
        f"{folder}/types/{shard}: record at byte 0: its image/class/label has a value of type bytes"
    )
    assert errors["empty"].startswith(f"{folder}/empty/{shard}: the shard is empty")
    assert errors["short"].startswith(f"{folder}/short: the shards of train have 10 undamaged records of 12")
    assert found["failed"] == 0
    assert (found["same batches"], found["own images read"]) == (True, 12)  # each once in five epochs
    good = {"damaged": 11, "changed": 11, "photos": 11, "labels": 6, "indexed labels": 6, "unnamed": 6}
    assert found["good"] == {**good, "empty": 6, "short": 10, "types": 8, "truncated": 9}
    assert found["names of good"] == ["1"]
    return found


def test_two_ranks_read_the_batches_of_one(folder):
    runs = [run_keras(ranks, PROGRAMS / "image_sets.py", folder, "quick") for ranks in (1, 2)]
    one, two = (check(folder, run.results()) for run in runs)
    for run in runs:
        assert f"WARNING: the rest of 1 shard left out:\n  {folder}/empty/" in run.stderr
        assert f"WARNING: 1 damaged image and the rest of 1 shard left out:\n  {folder}/truncated/" in run.stderr
    first, second = one["digests"]["foreign resnet"]
    assert (one, first != second) == (two, True)


@thorough
def test_one_rank_and_three_read_the_same_batches(folder):
    one, three = (run_keras(ranks, PROGRAMS / "image_sets.py", folder) for ranks in (1, 3))
    found, same = (check(folder, done.results()) for done in (one, three))
    changed, photos = (found["errors"].pop(name) for name in ("changed", "photos"))
    assert found == same
    assert f"{folder}/changed/train-00001-of-00002: record at byte" in changed
    assert "its checksum is wrong" in changed
    assert "Traceback" not in one.stderr + three.stderr
    assert f"{folder}/photos/train/roses/0.jpg: not an image that TensorFlow decodes" in photos
    assert three.stderr.count("WARNING: 1 damaged image left out:") == 3
    digests = found["digests"]
    assert all(first != second for first, second in digests.values())  # another order and other random numbers
    assert len({first for first, _ in digests.values()}) == len(digests) - 1
    assert digests["records none"] == digests["foreign none"]
    assert (found["names"], found["validation"]) == (["roses", "tulips"], [0] * 3 + [1] * 3)
    assert found["ordered"][0] == found["ordered"][1]
    assert found["windows"] == [True, True, True]
    records = [features for file in find_shards(folder / "pixels")["train"] for _, features in read_shard(file)]
    assert found["pixels"] == [[sum(features["image/encoded"][0]) for features in records]]
