"""Small images of two colours, as a folder and as TFRecords, for workloads with other libraries than TensorFlow."""

import random

from PIL import Image

from hpcrun.data import build
from hpcrun.data.image_sources import find_images


def write_two_colours(tree, shards, *, train=8, validation=3):
    """Write so many images of each colour into a folder, and the same ones as TFRecords into another."""
    draw = random.Random(1)
    for split, count in (("train", train), ("validation", validation)):
        for name, channel in (("blue", 2), ("red", 0)):
            (tree / split / name).mkdir(parents=True)
            for number in range(count):
                colour = [draw.randrange(60) for _ in range(3)]
                colour[channel] += 190
                Image.new("RGB", (40, 36), tuple(colour)).save(tree / split / name / f"{number}.png")
    build.build(find_images(tree), shards, build.Options({"train": 2, "validation": 1}), 1, print)
