"""Images of folders and of records, read for programs of any framework."""

from random import Random

import pytest
from PIL import Image

from hpcrun.data.example import encode_example
from hpcrun.data.image_reader import read_split
from hpcrun.data.tfrecord import write_record
from hpcrun.errors import HpcrunError
from tests.mpi.colours import write_two_colours


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    tree, shards = (tmp_path_factory.mktemp(name) for name in ("tree", "shards"))
    write_two_colours(tree, shards)
    return tree, shards


@pytest.mark.parametrize("kind", ["tree", "shards"])
def test_images_have_their_class_and_size(folders, kind):
    images = read_split(str(folders[kind == "shards"]), "train", size=20, augment="none")
    assert (len(images), images.names) == (16, ["blue", "red"])
    for index in range(16):
        image, label = images.read(index, Random(1))
        red, _, blue = image.tobytes()[:3]
        assert image.size == (20, 20)
        assert label == (red > blue)
    assert len(read_split(str(folders[0]), "validation", size=20, augment="none", limit=4)) == 4


def test_random_crops_depend_on_their_random_numbers_alone(tmp_path):
    (tmp_path / "train/grey").mkdir(parents=True)
    Image.linear_gradient("L").save(tmp_path / "train/grey/1.png")
    images = read_split(str(tmp_path), "train", size=20, augment="resnet")
    crops = [images.read(0, Random(seed))[0].tobytes() for seed in ("a", "a", "b")]
    assert crops[0] == crops[1] != crops[2]


def test_ranks_share_the_scan_of_shards_without_an_index(folders, tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    for file in folders[1].glob("*-of-*"):
        (shards / file.name).symlink_to(file)
    parts = []

    def read(rank, gather):
        return read_split(str(shards), "train", size=20, augment="none", rank=rank, ranks=2, gather=gather)

    def keep(part):
        parts.append(part)
        return [part]

    for rank in (0, 1):
        with pytest.raises(KeyError):  # the other rank's shards are missing
            read(rank, keep)
    expected = read_split(str(folders[1]), "train", size=20, augment="none")
    assert [label for _, label in read(0, lambda _: parts).rows] == [label for _, label in expected.rows]
    assert all(len(part) == 1 for part in parts)  # each has one of the two shards


def test_a_record_without_a_label_is_named(tmp_path):
    with (tmp_path / "train-00000-of-00001").open("wb") as stream:
        write_record(stream, encode_example({"image/encoded": b"x"}))
    with pytest.raises(HpcrunError, match=r"train-00000-of-00001: record at byte 0: it has no image/class/label"):
        read_split(str(tmp_path), "train", size=20, augment="none")


def test_a_damaged_image_is_named(folders, tmp_path):
    (tmp_path / "train/blue").mkdir(parents=True)
    (tmp_path / "train/blue/1.png").write_bytes(b"x")
    images = read_split(str(tmp_path), "train", size=20, augment="none")
    with pytest.raises(HpcrunError, match=r"train/blue/1\.png: not an image that Pillow reads"):
        images.read(0, Random(1))
