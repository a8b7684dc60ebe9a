"""Benchmark of image data: building shards, decoding, and reading records, against limits and other libraries.

    python benchmarks/input.py [--images N]

Each result is the best of several rounds in one process. hpcrun is compared with a copy of the same bytes on the same
disk, Pillow's decoder, TensorFlow's TFRecord reader, and TensorFlow's decoder without cropping or resizing. For
batches, the program compares the CPU time of all threads, that is, the speed per core, without the start of an epoch,
which takes 0.2 s. If simplejpeg is installed (pip install simplejpeg), the program also measures its libjpeg-turbo.
"""

# ruff: noqa: E402  (hpcrun.train.init() comes before TensorFlow, as in every script)

import argparse
import importlib.util
import io
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import numpy as np
import tensorflow as tf
from PIL import Image

from hpcrun.data.image_sources import find_images
from hpcrun.data.images import encode_image
from hpcrun.data.layout import find_shards, shard_name
from hpcrun.data.shard_files import write_shard
from hpcrun.data.tfrecord import read_records
from hpcrun.train import images
from hpcrun.train.images.augmentation import AUGMENTATIONS

ROUNDS = 5


def create_photos(folder: Path, count: int) -> list[Path]:
    """Write photo-like JPEG files of about 110 KB, the size of ImageNet's files."""
    draw = np.random.default_rng(0)
    files = []
    for number in range(count):
        file = folder / f"class-{number % 10}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(draw.integers(256, size=(96, 128, 3), dtype=np.uint8))
        noise.resize((500, 375), Image.Resampling.BICUBIC).save(file, quality=92)
        files.append(file)
    return files


def seconds(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest time of several calls."""
    times = []
    for _ in range(ROUNDS):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def epoch_seconds(dataset: tf.data.Dataset) -> float:
    """Return the shortest CPU time of several epochs, without the start of the epoch."""
    times = []
    for _ in range(ROUNDS):
        batches = iter(dataset)
        start = time.process_time()
        for _ in batches:
            pass
        times.append(time.process_time() - start)
    return min(times)


def compare_training(folder: Path, megabytes: float) -> None:
    """Compare batches of shards with a plain `tf.data` pipeline, and with only decoding the images."""
    split = images.read_split(folder, "train")
    names = [str(file) for file in find_shards(folder)["train"]]
    spec = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}

    def encoded(record: tf.Tensor) -> tf.Tensor:
        return tf.io.parse_single_example(record, spec)["image/encoded"]

    def pixels(record: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(tf.io.decode_jpeg(encoded(record), channels=3), [224, 224])

    contents = list(tf.data.TFRecordDataset(names).map(encoded))
    decoded = seconds(lambda: [tf.io.decode_jpeg(content, channels=3) for content in contents], time.process_time)
    peers = {"tf.io.decode_jpeg alone": decoded}
    if importlib.util.find_spec("simplejpeg"):
        import simplejpeg

        files = [content.numpy() for content in contents]
        peers["simplejpeg alone"] = seconds(lambda: [simplejpeg.decode_jpeg(file) for file in files], time.process_time)
    shapes = np.array([tf.io.extract_jpeg_shape(content)[:2] for content in contents])
    seeds = np.arange(2 * len(contents)).reshape(-1, 2)
    for augment in ("none", "resnet"):
        windows, _ = AUGMENTATIONS[augment].draw(shapes, 224, seeds, np.zeros((len(contents), 0, 4)))

        def crop(windows: np.ndarray = windows) -> None:
            for content, window in zip(contents, windows, strict=True):
                tf.io.decode_and_crop_jpeg(content, window, channels=3)

        cropped = seconds(crop, time.process_time)
        for what, theirs in peers.items():
            show(f"decode and crop, augment={augment}", cropped, what, theirs, megabytes)
    peers["tf.data: read, decode, resize"] = epoch_seconds(tf.data.TFRecordDataset(names).map(pixels).batch(32))
    read = seconds(lambda: [split.content.read(number) for number in range(len(split))], time.process_time)
    peer = epoch_seconds(tf.data.TFRecordDataset(names))
    show("read records by the index", read, "tf.data.TFRecordDataset", peer, megabytes)
    for augment in ("none", "resnet", "inception"):
        ours = epoch_seconds(split.batches(32, 224, augment=augment))
        for what, theirs in peers.items():
            show(f"batches, augment={augment}", ours, what, theirs, megabytes)


def show(what: str, ours: float, peer: str, theirs: float, megabytes: float) -> None:
    """Print both speeds and their ratio."""
    print(f"{what:34} {megabytes / ours:8.0f} MB/s   {peer:34} {megabytes / theirs:8.0f} MB/s   {theirs / ours:5.2f} x")


def main() -> None:
    """Run all measurements, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=600)
    count = parser.parse_args().images
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = create_photos(folder / "photos", count)
        contents = [file.read_bytes() for file in files]
        megabytes = sum(map(len, contents)) / 1e6
        print(f"{count} images, {megabytes:.0f} MB; the ratio is ours to the peer's speed")

        def build_shards() -> None:
            sources = find_images(folder / "photos").splits["train"]
            for index in range(4):
                own = sources[index * count // 4 : (index + 1) * count // 4]
                write_shard(folder / shard_name("train", index, 4), own, lambda: None)

        def copy() -> None:
            shutil.rmtree(folder / "copy", ignore_errors=True)
            shutil.copytree(folder / "photos", folder / "copy")

        def decode() -> None:
            for content in contents:
                with Image.open(io.BytesIO(content)) as image:
                    image.load()

        checked = seconds(lambda: [encode_image(content) for content in contents])
        decoded = seconds(decode)
        built = seconds(build_shards)
        show("check JPEG files", checked, "decode them with Pillow", decoded, megabytes)
        show("build shards in one process", built, "decode them with Pillow", decoded, megabytes)
        show("build shards in one process", built, "check JPEG files", checked, megabytes)
        show("build shards in one process", built, "copy the files", seconds(copy), megabytes)
        shards = find_shards(folder)["train"]
        read = seconds(lambda: [len(data) for file in shards for _, data in read_records(file)])
        names = [str(file) for file in shards]
        peer = seconds(lambda: sum(1 for _ in tf.data.TFRecordDataset(names, buffer_size=1 << 20).as_numpy_iterator()))
        count_only = seconds(lambda: int(tf.data.TFRecordDataset(names).reduce(0, lambda total, _: total + 1)))
        show("read records", read, "tf.data.TFRecordDataset to Python", peer, megabytes)
        show("read records", read, "tf.data.TFRecordDataset, in C++", count_only, megabytes)
        compare_training(folder, megabytes)


if __name__ == "__main__":
    main()
