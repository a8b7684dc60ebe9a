"""``hpcrun data``: shards of images, written and read without TensorFlow."""

import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from hpcrun.data.example import decode_example, encode_example
from hpcrun.data.info import sample_image
from hpcrun.data.layout import find_shards, read_labels
from hpcrun.data.shard_files import read_shard
from hpcrun.data.tfrecord import read_records, write_record
from tests.waiting import PATIENCE, wait_until


def draw(seed, size=(24, 16), mode="RGB"):
    pixels = np.random.default_rng(seed).integers(256, size=(4, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size).convert(mode)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Return a folder with 20 JPEG images of roses and 10 of tulips."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("roses", 20), ("tulips", 10)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            draw(number).save(tmp_path / "photos" / name / f"{number:02}.jpg")
    return tmp_path / "photos"


def pixels(file):
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"), float)


def records(folder, split="train"):
    return [features for file in find_shards(folder)[split] for _, features in read_shard(file)]


def test_build_writes_the_images_with_their_labels(photos, cli):
    assert cli("data", "build", "photos", "out", "--shards", "4", "--validation", "0.1")[0] == 0
    assert sorted(file.name for file in (photos.parent / "out").glob("train-*")) == [
        f"train-0000{k}-of-00004" for k in range(4)
    ]
    assert (photos.parent / "out/labels.txt").read_text() == "roses\ntulips\n"
    for split, counts in {"train": {1: 18, 2: 9}, "validation": {1: 2, 2: 1}}.items():
        found = records(photos.parent / "out", split)
        labels = [features["image/class/label"][0] for features in found]
        assert {label: labels.count(label) for label in set(labels)} == counts
        assert labels != sorted(labels)
    every = records(photos.parent / "out") + records(photos.parent / "out", "validation")
    by_label = {1: "roses", 2: "tulips"}
    for features in every:
        name = by_label[features["image/class/label"][0]]
        file = photos / name / features["image/filename"][0].decode()
        assert features["image/encoded"] == [file.read_bytes()]  # JPEG files in RGB stay as they are
        assert (features["image/height"], features["image/width"], features["image/channels"]) == ([16], [24], [3])
        assert features["image/class/text"] == [name.encode()]
    assert len({(features["image/class/text"][0], features["image/filename"][0]) for features in every}) == 30


def test_the_index_says_where_each_record_lies(photos, cli):
    cli("data", "build", "photos", "out", "--shards", "3", "--validation", "0.1")
    for split in ("train", "validation"):
        expected = [
            (number, features["image/class/label"][0], offset, len(data))
            for number, file in enumerate(find_shards(photos.parent / "out")[split])
            for (offset, data), (_, features) in zip(read_records(file), read_shard(file), strict=True)
        ]
        assert np.load(photos.parent / f"out/index-{split}.npy").tolist() == expected


def test_build_gives_the_same_bytes_again(photos, cli):
    for out, workers in (("a", "1"), ("b", "2")):
        assert cli("data", "build", "photos", out, "--shards", "3", "--workers", workers)[0] == 0
    for file in (photos.parent / "a").iterdir():
        assert file.read_bytes() == (photos.parent / "b" / file.name).read_bytes()


def test_build_converts_images_that_are_not_jpeg_in_rgb(photos, cli):
    roses = photos / "roses"
    saved = {
        "a.PNG": ("RGB", "PNG"), "b.JPEG": ("CMYK", "JPEG"), "c.jpeg": ("L", "JPEG"), "d.jpg": ("RGB", "PNG"),
        "e.png": ("RGBA", "PNG"), "f.gif": ("P", "GIF"),
    }  # fmt: skip
    for name, (mode, kind) in saved.items():
        draw(7, mode=mode).save(roses / name, kind)
    Image.fromarray(np.full((16, 24), 40000, np.uint16)).save(roses / "g.png")  # 16 bits of grey
    code, out, _ = cli("data", "build", "photos", "out")
    assert code == 0
    assert "7" not in out.splitlines()[2].split()[1:2]
    found = {features["image/filename"][0].decode(): features for features in records(photos.parent / "out")}
    for name in saved:
        image = sample_image(found[name])
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (24, 16))
        expected = pixels(roses / name)
        assert np.abs(np.asarray(image, float) - expected).mean() < 4, name
    assert abs(np.asarray(sample_image(found["g.png"]), float).mean() - 40000 / 256) < 2
    converted = json.loads((photos.parent / "out/dataset.json").read_text())["splits"]["train"]["converted"]
    assert converted == {
        "GIF in a palette": 1, "JPEG in CMYK": 1, "JPEG in grey": 1, "PNG": 2, "PNG in I;16": 1, "PNG in RGBA": 1,
    }  # fmt: skip


def test_photos_of_phones_are_stored_as_they_are_displayed(photos, cli):
    red_above_blue = Image.fromarray(np.repeat(np.array([[[255, 0, 0]], [[0, 0, 255]]], np.uint8), 8, 0).repeat(24, 1))
    orientation = Image.Exif()
    orientation[ExifTags.Base.Orientation] = 6  # the camera was rotated: display the image rotated clockwise
    red_above_blue.save(photos / "roses/phone.jpg", exif=orientation)
    red_above_blue.save(photos / "roses/upright.jpg", exif=Image.Exif())
    red_above_blue.save(photos / "roses/broken.jpg", exif=b"Exif\0\0no metadata")
    assert cli("data", "build", "photos", "out")[0] == 0
    found = {features["image/filename"][0].decode(): features for features in records(photos.parent / "out")}
    image = sample_image(found["phone.jpg"])
    assert image.size == (16, 24)
    colours = np.asarray(image)
    assert colours[12, 13, 0] > 200 > 50 > colours[12, 2, 0], "red is on the right side"
    for name in ("upright.jpg", "broken.jpg"):
        assert found[name]["image/encoded"] == [(photos / "roses" / name).read_bytes()]
    converted = json.loads((photos.parent / "out/dataset.json").read_text())["splits"]["train"]["converted"]
    assert converted == {"JPEG with an EXIF orientation": 1}


def png_of(height, width, content):
    """Return a PNG file whose header has a size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(content)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def test_damaged_files_are_listed_and_left_out(photos, cli):
    draw(0, (640, 480)).save(photos / "roses/00.jpg")
    whole = (photos / "roses/00.jpg").read_bytes()
    (photos / "roses/half.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "roses/empty.png").write_bytes(b"")
    (photos / "roses/huge.png").write_bytes(png_of(60_000, 60_000, b"few pixels"))
    draw(0).save(photos / "roses/odd.dds")
    with (photos / "roses/odd.dds").open("r+b") as odd:  # of which Pillow says NotImplementedError
        odd.seek(80)
        odd.write(b"\4\0\0\0ABCD")
    (photos / "tulips/notes.txt").write_text("not an image")
    (photos / "tulips/.hidden.jpg").write_bytes(b"")
    code, _, err = cli("data", "build", "photos", "out")
    assert (code, "skipped.txt" in err) == (0, True)
    skipped = dict(line.split("\t") for line in (photos.parent / "out/skipped.txt").read_text().splitlines())
    assert {name.removeprefix("photos/"): reason.partition(" (")[0] for name, reason in skipped.items()} == {
        "roses/half.jpg": "damaged image: image file is truncated",
        "roses/empty.png": "the file is empty",
        "roses/huge.png": "damaged image: Image size",
        "roses/odd.dds": "damaged image: Unimplemented pixel format 1145258561",
        "tulips/notes.txt": "not an image that Pillow reads",
    }
    assert len(records(photos.parent / "out")) == 30


def test_names_of_any_bytes_are_kept_and_links_without_a_target_listed(photos, cli):
    name = os.fsdecode(b"caf\xe9")
    (photos / name).mkdir()
    draw(1).save(photos / name / f"{name}.jpg")
    (photos / "roses/link.jpg").symlink_to("nowhere.jpg")
    assert cli("data", "build", "photos", "out")[0] == 0
    out = photos.parent / "out"
    assert b"caf\xe9" in (out / "labels.txt").read_bytes().splitlines()
    assert [b"caf\xe9.jpg"] in [features["image/filename"] for features in records(out)]
    assert (out / "skipped.txt").read_text().splitlines() == ["photos/roses/link.jpg\tNo such file or directory"]
    assert read_labels(out) == ["caf\\xe9", "roses", "tulips"]


@pytest.mark.parametrize("name", ["new\nline", "next\x85line", "paragraph\u2029"])
def test_a_class_with_a_line_break_in_its_name_is_refused(photos, cli, name):
    (photos / "tulips").rename(photos / name)
    code, _, err = cli("data", "build", "photos", "out")
    assert (code, f"photos: the name of a folder has a line break: {name!r}" in err) == (2, True), err


def test_line_breaks_in_names_of_skipped_files_are_escaped(photos, cli):
    (photos / "roses/a\nb.jpg").write_text("no image")
    assert cli("data", "build", "photos", "out")[0] == 0
    skipped = (photos.parent / "out/skipped.txt").read_text()
    assert skipped == "photos/roses/a\\nb.jpg\tnot an image that Pillow reads\n"


def test_a_folder_that_cannot_be_read_is_an_error(photos, cli, monkeypatch):
    has_access = os.access  # root may read all folders
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "tulips" and has_access(path, mode))
    code, _, err = cli("data", "build", "photos", "out")
    assert (code, "photos/tulips: permission denied\nHINT: chmod u+rx" in err) == (2, True)


def test_the_folder_of_one_worker_is_named_as_a_part(photos, cli):
    assert cli("data", "build", "photos", "out", "--shards", "4")[0] == 0
    assert cli("data", "split", "out", "2")[0] == 0
    code, _, err = cli("data", "info", "out/worker_0_of_2")
    assert (code, "HINT: hpcrun data split wrote this part for other programs; hpcrun reads out\n" in err) == (2, True)


def test_a_build_without_any_image_fails(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos/roses").mkdir(parents=True)
    (tmp_path / "photos/roses/1.jpg").write_text("no image")
    code, _, err = cli("data", "build", "photos", "out")
    assert (code, "ERROR: out has no images" in err) == (1, True)
    code, _, err = cli("data", "info", "out")
    assert (code, "train-00000-of-00001: the shard is empty" in err) == (1, True)


def test_raw_pixels_have_the_given_size(photos, cli):
    assert cli("data", "build", "photos", "out", "--raw", "--resize", "8")[0] == 0
    features = records(photos.parent / "out")[0]
    assert (features["image/format"], len(features["image/encoded"][0])) == ([b"RAW"], 8 * 8 * 3)
    assert sample_image(features).size == (8, 8)


def test_a_file_of_labels_may_have_a_byte_order_mark(photos, cli):
    (photos.parent / "labels").write_text("tulips\r\nroses\r\n", encoding="utf-8-sig")
    assert cli("data", "build", "photos", "out", "--labels", "labels")[0] == 0
    assert (photos.parent / "out/labels.txt").read_bytes() == b"tulips\nroses\n"


def test_given_splits_are_used(photos, cli):
    (photos.parent / "all").mkdir()
    photos.rename(photos.parent / "all/train")
    (photos.parent / "all/val/tulips").mkdir(parents=True)
    draw(99).save(photos.parent / "all/val/tulips/99.jpg")
    assert cli("data", "build", "all", "out")[0] == 0
    assert [features["image/class/label"] for features in records(photos.parent / "out", "validation")] == [[2]]
    code, _, err = cli("data", "build", "all", "other", "--validation", "0.1")
    assert (code, "has the folders train and val" in err) == (2, True)
    shutil.copytree(photos.parent / "all/val", photos.parent / "all/test")
    code, _, err = cli("data", "build", "all", "three")
    assert (code, "all/test is left out: val is the validation split" in err) == (0, True)
    assert read_labels(photos.parent / "three") == ["roses", "tulips"]


def test_what_can_not_be_learned_is_said(photos, cli):
    (photos / "daisies").mkdir()
    for name in ("a.jpg", ".hidden"):
        (photos / name).write_bytes(b"")
    code, _, err = cli("data", "build", "photos", "out")
    assert (code, "in photos are left out, since they are in no class: a.jpg" in err) == (0, True), err
    assert "no training images of a class: daisies\n" in err
    assert all(text not in err for text in (".hidden", "only one class"))
    shutil.rmtree(photos / "daisies")
    shutil.rmtree(photos / "tulips")
    assert "there is only one class, roses" in cli("data", "build", "photos", "one")[2]


def test_an_image_of_floats_is_skipped_with_the_reason(photos, cli):
    Image.fromarray(np.random.default_rng(0).random((8, 8), np.float32)).save(photos / "roses/float.tiff")
    assert cli("data", "build", "photos", "out")[0] == 0
    assert "roses/float.tiff\tits pixels are floating-point numbers" in (photos.parent / "out/skipped.txt").read_text()


def test_a_folder_that_has_only_train_has_its_classes(photos, cli):
    (photos.parent / "all").mkdir()
    photos.rename(photos.parent / "all/train")
    assert cli("data", "build", "all", "out", "--validation", "0.1")[0] == 0
    assert read_labels(photos.parent / "out") == ["roses", "tulips"]
    assert len(records(photos.parent / "out", "validation")) == 3


def test_train_is_a_class_if_its_images_are_in_it(photos, cli):
    (photos / "roses").rename(photos / "train")
    shutil.rmtree(photos / "tulips")
    assert cli("data", "build", "photos", "out")[0] == 0
    assert read_labels(photos.parent / "out") == ["train"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere", "out"], ["nowhere is not a folder"]),
        (["photos/roses", "out"], ["there are no images in photos/roses/<class>/"]),
        (["photos", "photos"], ["DIR and OUT are the same folder", "photos-records"]),
        (["photos", "photos/records"], ["OUT is in DIR, where it would be a class: photos/records", "photos-records"]),
        (["photos", "."], [". is not empty"]),
        (["photos", "labels"], ["labels: File exists"]),
        (["photos", "out", "--shards", "31"], ["31 shards of train cannot hold 30 images", "--shards 30"]),
        (["photos", "out", "--labels", "labels"], ["photos: folders without a label: tulips"]),
        (["photos", "out", "--validation", "1"], ["--validation"]),
        (["photos", "out", "--validation", "nan"], ["ERROR: --validation: nan is not in the range 0<=x<=0.99\nHINT: "]),
        (["photos", "out", "--resize", "100000"], ["--resize: 100000 is not in the range 1<=x<=8192"]),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(photos, cli, args, words):
    (photos.parent / "labels").write_text("roses\n")
    code, _, err = cli("data", "build", *args)
    assert (code, [word for word in words if word not in err]) == (2, [])
    assert not (photos.parent / "out").exists()


def test_a_killed_build_can_be_resumed(photos, cli):
    draw(0, (640, 480)).save(photos / "roses/first.png")
    for number in range(99):
        (photos / "roses" / f"{number}.png").write_bytes((photos / "roses/first.png").read_bytes())
    command = [sys.executable, "-m", "hpcrun", "data", "build", "photos", "out", "--shards", "40", "--workers", "2"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
    journal = photos.parent / "out/.build.jsonl"
    wait_until(lambda: journal.exists() and journal.read_text().count("\n") >= 3, seconds=120)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = {file: file.stat().st_mtime_ns for file in (photos.parent / "out").glob("train-*")}
    assert 2 <= len(done) < 40
    recorded = {json.loads(line)["name"] for line in journal.read_text().split("\n")[1:-1]}
    with pytest.raises(Exception, match="lacks"):
        find_shards(photos.parent / "out")
    code, _, err = cli("data", "build", "photos", "out", "--shards", "20")
    assert (code, "interrupted build of other images, or with other options" in err) == (2, True)
    assert cli("data", "build", "photos", "out", "--shards", "40")[0] == 0
    kept = {file.name for file, time in done.items() if file.stat().st_mtime_ns == time}
    assert recorded <= kept
    assert len(records(photos.parent / "out")) == 130
    assert sorted(file.name for file in (photos.parent / "out").iterdir() if file.name.startswith(".")) == []


def running_processes(session):
    """Return the ids of the processes of a session that have not ended."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            state, _, _, its_session = file.read_text().rpartition(") ")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize(("stop_signal", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_of_a_stopped_build_remains(photos, stop_signal, code):
    draw(0, (640, 480)).save(photos / "roses/first.png")
    for number in range(99):
        (photos / "roses" / f"{number}.png").write_bytes((photos / "roses/first.png").read_bytes())
    command = [sys.executable, "-m", "hpcrun", "data", "build", "photos", "out", "--shards", "40", "--workers", "2"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    journal = photos.parent / "out/.build.jsonl"
    wait_until(lambda: journal.exists() and journal.read_text().count("\n") >= 2)
    try:
        process.send_signal(stop_signal)
        wait_until(lambda: not running_processes(process.pid), 10 * PATIENCE)
    finally:
        for pid in running_processes(process.pid):
            os.kill(pid, signal.SIGKILL)
    err = process.communicate()[1]
    assert process.returncode == code
    assert ("ERROR: stopped; out is incomplete\nHINT: the same command goes on from here\n" in err) == (code > 0)


def test_info_shows_counts_and_a_picture(photos, cli):
    cli("data", "build", "photos", "out", "--validation", "0.1", "--shards", "2")
    code, out, _ = cli("data", "info", "out", "--sheet", "samples.png")
    assert (code, ["roses", "18", "2"] in [line.split()[1:] for line in out.splitlines()]) == (0, True)
    assert pixels("samples.png").shape[1] == 8 * 132
    content = json.loads(cli("data", "info", "out", "--json")[1])
    assert content["train"]["labels"] == {"roses": 18, "tulips": 9}
    assert content["validation"]["height"] == [16, 16, 16]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-10], "the file ends after"),
        (lambda data: data[:5], "the file ends within the record's length"),
        (lambda data: data[:40] + b"XXXX" + data[44:], "record at byte 0: its checksum is wrong"),
        (gzip.compress, "compressed with gzip"),
        (lambda data: b"\xff" * 12 + data, "no TFRecord begins here"),
    ],
)
def test_info_names_damaged_records(photos, cli, damage, reason):
    cli("data", "build", "photos", "out", "--shards", "2")
    shard = photos.parent / "out/train-00001-of-00002"
    shard.write_bytes(damage(shard.read_bytes()))
    code, out, err = cli("data", "info", "out")
    assert code == 1
    assert f"out/{shard.name}: record at byte" in err
    assert "out has damaged data (1 fault):\n" in err
    assert "HINT: copy the data again, or build them anew\n" in err
    assert reason in err
    assert "train" in out  # the other shard is counted


@pytest.mark.parametrize("has_index", [True, False])
def test_info_names_shards_that_lost_records(photos, cli, has_index):
    cli("data", "build", "photos", "out", "--shards", "3")
    folder = photos.parent / "out"
    shard = folder / "train-00001-of-00003"
    offsets = [offset for offset, _ in read_records(shard)]
    shard.write_bytes(shard.read_bytes()[: offsets[7]])
    if not has_index:
        (folder / "index-train.npy").unlink()
    code, out, err = cli("data", "info", "out")
    fault = "out: the shards of train have 27 records, and had 30 when they were built"
    if has_index:
        fault = f"out/{shard.name}: it has 7 records, and had 10 when it was built"
    assert (code, f"out has damaged data (1 fault):\n{fault}\n" in err) == (1, True), err
    assert "27" in out


def test_info_names_shards_with_other_records(photos, cli):
    for name, options in (("out", ()), ("other", ("--resize", "8"))):
        cli("data", "build", "photos", name, "--shards", "3", *options)
    shards = [photos.parent / name / "train-00002-of-00003" for name in ("other", "out")]
    shards[1].write_bytes(shards[0].read_bytes())
    code, _, err = cli("data", "info", "out")
    assert (code, "out/train-00002-of-00003: it has other records than when it was built\n" in err) == (1, True), err
    assert "(1 fault)" in err


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("image/encoded", 1, "has a value of type int instead of one of type bytes"),
        ("image/class/label", b"1", "has a value of type bytes instead of one of type int"),
        ("image/class/label", [1.0], "has a value of type float instead of one of type int"),
        ("image/height", [8, 8], "has 2 values instead of one of type int"),
        ("image/format", 1, "has a value of type int instead of one of type bytes"),
    ],
)
def test_info_names_features_of_the_wrong_type(tmp_path, cli, name, value, reason):
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/train-00000-of-00001").open("wb") as stream:
        write_record(stream, encode_example({"image/encoded": jpeg(1), "image/class/label": 1, name: value}))
    code, _, err = cli("data", "info", str(tmp_path / "out"), "--sheet", str(tmp_path / "samples.png"))
    assert (code, f"out/train-00000-of-00001: record at byte 0: its {name} {reason}\n" in err) == (1, True), err


def test_info_names_samples_that_are_no_images(photos, cli):
    cli("data", "build", "photos", "out", "--shards", "2")
    shard = photos.parent / "out/train-00001-of-00002"
    with shard.open("wb") as stream:
        write_record(stream, encode_example({"image/encoded": b"\xff\xd8\xffno image", "image/class/label": 1}))
    code, _, err = cli("data", "info", "out", "--sheet", "samples.png")
    assert (code, f"{shard.name}: record at byte 0: not an image that Pillow reads" in err) == (1, True), err
    assert pixels("samples.png").shape[1] == 8 * 132


def test_info_names_shards_that_cannot_be_read(photos, cli):
    cli("data", "build", "photos", "out", "--shards", "4")
    shards = [photos.parent / f"out/train-0000{number}-of-00004" for number in range(4)]
    for shard in shards[1:]:
        shard.unlink()
    shards[1].symlink_to("nowhere")
    shards[2].mkdir()
    shards[3].touch()
    code, out, err = cli("data", "info", "out")
    assert (code, "train" in out) == (1, True)
    for shard, reason in zip(shards[1:], ("No such file", "Is a directory", "the shard is empty"), strict=True):
        assert f"out/{shard.name}: {reason}" in err, err


def test_info_names_labels_without_a_class(photos, cli):
    cli("data", "build", "photos", "out")
    (photos.parent / "out/labels.txt").write_text("roses\n")
    code, _, err = cli("data", "info", "out")
    assert (code, "label 2 is not one of 1 to 1, the lines of labels.txt" in err) == (1, True)


def test_info_names_the_label_of_the_background(photos, cli, monkeypatch):
    monkeypatch.setattr("hpcrun.data.shard_files.features_of", lambda _, image: {
        "image/encoded": image.data, "image/class/label": 0,
    })  # fmt: skip
    cli("data", "build", "photos", "out", "--workers", "1")
    code, _, err = cli("data", "info", "out")
    assert (code, "label 0 is not one of 1 to 2" in err) == (1, True)


def test_split_links_contiguous_shards_of_each_worker(photos, cli):
    cli("data", "build", "photos", "out", "--shards", "6", "--validation", "0.1")
    assert cli("data", "split", "out", "3")[0] == 0
    assert cli("data", "split", "out", "3")[0] == 0  # again
    second = photos.parent / "out/worker_1_of_3"
    assert sorted(file.name for file in second.iterdir()) == ["train-00002-of-00006", "train-00003-of-00006"]
    assert (second / "train-00002-of-00006").read_bytes() == (photos.parent / "out/train-00002-of-00006").read_bytes()
    code, _, err = cli("data", "split", "out", "4")
    assert (code, "1, 2, 3, 6" in err) == (2, True)
    (second / "mine").write_text("")
    code, _, err = cli("data", "split", "out", "3")
    assert (code, "worker_1_of_3 has mine" in err) == (2, True)


def test_synthetic_images_have_all_classes(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("data", "synthetic", "out", "--images", "40", "--validation-images", "8", "--classes", "4")[0] == 0
    labels = [features["image/class/label"][0] for features in records(tmp_path / "out")]
    assert sorted(labels) == sorted([1, 2, 3, 4] * 10)


PIXELS = {
    split: np.random.default_rng(n).integers(256, size=(n, 28, 28), dtype=np.uint8)
    for split, n in (("train", 12), ("t10k", 5))
}
DIGITS = {split: np.arange(len(pixels), dtype=np.uint8) % 10 for split, pixels in PIXELS.items()}


def write_idx(folder):
    for split, pixels in PIXELS.items():
        labels = struct.pack(">II", 2049, len(pixels)) + DIGITS[split].tobytes()
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(labels)
        content = struct.pack(">IIII", 2051, len(pixels), 28, 28) + pixels.tobytes()
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))


def write_npz(folder):
    x_train, x_test, y_train, y_test = (values[split] for values in (PIXELS, DIGITS) for split in ("train", "t10k"))
    np.savez(folder / "mnist.npz", x_train=x_train, x_test=x_test, y_train=y_train, y_test=y_test)


@pytest.mark.parametrize("write", [write_idx, write_npz])
def test_mnist_from_original_files_and_from_keras(tmp_path, cli, write, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "datasets").mkdir()
    code, _, err = cli("data", "mnist", str(tmp_path / "out"))
    assert (code, "train-images-idx3-ubyte.gz" in err, "--from" in err) == (2, True, True)
    write(tmp_path / "datasets")
    assert cli("data", "mnist", str(tmp_path / "out"))[0] == 0
    for split, name in (("train", "train"), ("t10k", "validation")):
        found = records(tmp_path / "out", name)
        pairs = {(np.asarray(sample_image(one)).tobytes(), one["image/class/label"][0] - 1) for one in found}
        assert pairs == {(pixels.tobytes(), digit) for pixels, digit in zip(PIXELS[split], DIGITS[split], strict=True)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-784], "it has 8624 of 12 x 28 x 28 bytes"),
        (lambda data: b"\0\0\x08\x01" + data[4:], "its type is 2049, not 2051"),
        (lambda data: data[:9], "it has only 9 bytes"),
        (lambda data: gzip.compress(data)[:-9], "end-of-stream"),
        (lambda data: gzip.compress(data)[:30] + b"damaged" + gzip.compress(data)[37:], ""),
    ],
)
def test_damaged_files_of_mnist_are_named(tmp_path, cli, change, reason):
    write_idx(tmp_path)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(change(gzip.decompress((tmp_path / f"{file.name}.gz").read_bytes())))
    code, _, err = cli("data", "mnist", str(tmp_path / "out"), "--from", str(tmp_path))
    assert (code, f"{file}: damaged, or other data: " in err, reason in err) == (2, True, True), err


def cifar_batches():
    draw = np.random.default_rng(3)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        yield name, draw.integers(256, size=(3, 3, 32, 32), dtype=np.uint8), [3, 9, 0]


def binary(pixels, labels):
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(pixels, labels, strict=True))


def python_pickle(pixels, labels, protocol=3):
    return pickle.dumps({b"data": pixels.reshape(len(pixels), -1), b"labels": labels}, protocol=protocol)


def text_pickle(pixels, labels):
    return pickle.dumps({"data": pixels.reshape(len(pixels), -1), "labels": labels})


@pytest.mark.parametrize(
    ("archive", "encode", "suffix"),
    [
        ("cifar-10-binary.tar.gz", binary, ".bin"), ("cifar-10-python.tar.gz", python_pickle, ""),
        *((None, partial(python_pickle, protocol=protocol), "") for protocol in (0, 2, 4, 5)),
        (None, text_pickle, ""), (None, binary, ".bin"),
    ],
)  # fmt: skip
def test_cifar10_from_original_files(tmp_path, cli, archive, encode, suffix):
    files = {f"{name}{suffix}": encode(pixels, labels) for name, pixels, labels in cifar_batches()}
    if archive:
        with tarfile.open(tmp_path / archive, "w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(f"cifar-10-batches/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    else:
        (tmp_path / "cifar-10-batches-bin").mkdir()
        for name, content in files.items():
            (tmp_path / "cifar-10-batches-bin" / name).write_bytes(content)
    assert cli("data", "cifar10", str(tmp_path / "out"), "--from", str(tmp_path))[0] == 0
    (name, pixels, labels) = list(cifar_batches())[-1]
    found = records(tmp_path / "out", "validation")
    assert [one["image/class/label"][0] - 1 for one in found] == labels
    assert [one["image/class/text"] for one in found] == [[b"cat"], [b"truck"], [b"airplane"]]
    for one, planes in zip(found, pixels, strict=True):
        assert (np.asarray(sample_image(one)) == planes.transpose(1, 2, 0)).all()
    assert len(records(tmp_path / "out")) == 15


def test_damaged_files_of_cifar10_are_named(tmp_path, cli):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, pixels, labels in cifar_batches():
        (folder / f"{name}.bin").write_bytes(binary(pixels, labels))
    args = "data", "cifar10", str(tmp_path / "out"), "--from", str(tmp_path)
    (folder / "data_batch_3.bin").write_bytes((folder / "data_batch_3.bin").read_bytes()[:-1])
    code, _, err = cli(*args)
    assert (code, f"{folder}/data_batch_3: damaged, or other data: " in err) == (2, True), err
    (folder / "data_batch_3.bin").unlink()
    code, _, err = cli(*args)
    assert (code, f"{folder} lacks data_batch_3" in err) == (2, True), err


@pytest.mark.parametrize(
    "content", [b"", b"(lp0\n.", b"\x80\x02]q\x00X", pickle.dumps({b"data": 5, b"labels": [1]}), b"\xff"]
)
def test_a_damaged_pickle_is_one_error(tmp_path, cli, content):
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(content)
    code, _, err = cli("data", "cifar10", str(tmp_path / "out"), "--from", str(tmp_path))
    assert (code, f"{tmp_path}/data_batch_1: damaged, or other data: " in err) == (2, True), err


@pytest.mark.parametrize("position", [3, 30, -5])
def test_a_damaged_archive_of_cifar10_is_one_error(tmp_path, cli, position):
    archive = bytearray(gzip.compress(np.random.default_rng(0).bytes(5000)))
    archive[position] ^= 0x55
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive)
    code, _, err = cli("data", "cifar10", str(tmp_path / "out"), "--from", str(tmp_path))
    assert (code, "cifar-10-binary.tar.gz: damaged, or other data: " in err) == (2, True), err


def test_a_pickle_with_a_program_is_not_run(tmp_path, cli):
    class Program:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(Program()))
    code, _, err = cli("data", "cifar10", str(tmp_path / "out"), "--from", str(tmp_path))
    assert (code, "unexpected posix.mkdir in a file of CIFAR-10" in err) == (2, True)
    assert not (tmp_path / "ran").exists()


def add_file(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def jpeg(seed):
    stream = io.BytesIO()
    draw(seed).save(stream, "JPEG")
    return stream.getvalue()


def write_imagenet(folder):
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for synset in ("n01440764", "n01443537"):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(3):
                    add_file(tar, f"{synset}_{number}.JPEG", jpeg(number))
            add_file(outer, f"{synset}.tar", inner.getvalue())
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as tar:
        for number in (2, 1):
            add_file(tar, f"ILSVRC2012_val_0000000{number}.JPEG", jpeg(10 + number))


def test_imagenet_is_read_from_its_archives(tmp_path, cli):
    write_imagenet(tmp_path)
    args = "data", "imagenet", str(tmp_path), str(tmp_path / "out"), "--shards", "2", "--validation-shards", "1"
    code, _, err = cli(*args)
    assert (code, "imagenet_2012_validation_synset_labels.txt does not exist" in err) == (2, True)
    (tmp_path / "imagenet_2012_validation_synset_labels.txt").write_text("n01443537\nn01440764\n")
    (tmp_path / "imagenet_metadata.txt").write_text("n01440764\ttench, Tinca tinca\nn01443537\tgoldfish\n")
    (tmp_path / "imagenet_2012_bounding_boxes.csv").write_text(
        "n01440764_1.JPEG,0.1,0.2,0.5,0.75\nn01440764_1.JPEG,0,0,1,1\n"
    )
    assert cli(*args)[0] == 0
    found = {features["image/filename"][0]: features for features in records(tmp_path / "out")}
    first = found[b"n01440764_1.JPEG"]
    assert (first["image/class/label"], first["image/class/synset"]) == ([1], [b"n01440764"])
    assert (first["image/class/text"], first["image/encoded"]) == ([b"tench, Tinca tinca"], [jpeg(1)])
    assert (first["image/object/bbox/xmax"], first["image/object/bbox/label"]) == ([0.5, 1.0], [1, 1])
    validation = {
        features["image/filename"][0]: (features["image/class/label"][0], features["image/encoded"][0])
        for features in records(tmp_path / "out", "validation")
    }
    assert validation == {
        b"ILSVRC2012_val_00000001.JPEG": (2, jpeg(11)),
        b"ILSVRC2012_val_00000002.JPEG": (1, jpeg(12)),
    }


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("ILSVRC2012_img_train.tar", lambda data: data[: len(data) * 2 // 3], "a damaged archive: "),
        ("ILSVRC2012_img_train.tar", lambda data: data[: len(data) * 2 // 5], "n01443537.tar: a damaged archive: "),
        ("ILSVRC2012_img_train.tar", lambda data: data[:512] + b"no" * 256 + data[1024:], "n01440764.tar: a damaged "),
        ("ILSVRC2012_img_val.tar", lambda _: b"no archive" * 999, "a damaged archive: "),
        ("ILSVRC2012_img_val.tar", gzip.compress, "a damaged archive: "),
    ],
)
def test_damaged_archives_of_imagenet_are_named(tmp_path, cli, name, change, error):
    write_imagenet(tmp_path)
    (tmp_path / "imagenet_2012_validation_synset_labels.txt").write_text("n01443537\nn01440764\n")
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    code, _, err = cli("data", "imagenet", str(tmp_path), str(tmp_path / "out"))
    *_, error_line, hint = err.splitlines()
    assert (code, hint) == (2, f"HINT: download {name} again")
    assert error_line.startswith(f"ERROR: {tmp_path / name}: {error}")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("imagenet_2012_validation_synset_labels.txt", b"\xff\xfe\n", ": not a text file in UTF-8"),
        ("imagenet_lsvrc_2015_synsets.txt", b"\xff\n", ": not a text file in UTF-8"),
        ("imagenet_metadata.txt", b"n01440764\t\xe9\n", ": not a text file in UTF-8"),
        ("imagenet_2012_bounding_boxes.csv", b"\xff\n", ": not a text file in UTF-8"),
        ("imagenet_2012_bounding_boxes.csv", b"a,0,1\n", ":1: 'a,0,1' is not NAME,xmin,ymin,xmax,ymax"),
        ("imagenet_2012_bounding_boxes.csv", b"a,0,0,1,1\na,nan,0,1,1\n", ":2: 'a,nan,0,1,1' is not a box in the"),
        ("imagenet_2012_bounding_boxes.csv", b"a,0,0,1,1.1\n", ":1: 'a,0,0,1,1.1' is not a box in the image"),
        ("imagenet_2012_bounding_boxes.csv", b"a,.5,0,.5,1\n", ":1: 'a,.5,0,.5,1' is not a box in the image"),
    ],
)
def test_wrong_text_files_of_imagenet_are_named(tmp_path, cli, name, content, error):
    write_imagenet(tmp_path)
    (tmp_path / "imagenet_2012_validation_synset_labels.txt").write_text("n01443537\nn01440764\n")
    (tmp_path / name).write_bytes(content)
    code, _, err = cli("data", "imagenet", str(tmp_path), str(tmp_path / "out"))
    assert (code, f"ERROR: {tmp_path / name}{error}" in err) == (2, True), err


def test_examples_are_read_as_written():
    features: dict[str, Any] = {"a": 5, "b": "é", "c": b"\xff", "d": [1.5, 2.0], "e": [1, 2], "f": []}
    assert decode_example(encode_example(features)) == {
        "a": [5], "b": ["é".encode()], "c": [b"\xff"], "d": [1.5, 2.0], "e": [1, 2], "f": [],
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
        decode_example(b"\xff\xff")


def test_missing_libraries_are_named(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    code, _, err = cli("data", "info", ".")
    assert (code, "pip install 'hpcrun-slurm[data]'" in err) == (2, True)


def test_an_archive_that_is_no_archive_is_an_error(tmp_path, cli):
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"nothing")
    code, _, err = cli("data", "imagenet", str(tmp_path), str(tmp_path / "out"))
    assert (code, "a damaged archive" in err) == (2, True)
    with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as file:
        file.writestr("x_train.npy", b"no array")
    code, _, err = cli("data", "mnist", str(tmp_path / "out"), "--from", str(tmp_path))
    assert (code, "damaged, or other data" in err) == (2, True)
