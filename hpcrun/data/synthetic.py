"""Synthetic images whose classes a network can learn."""

from __future__ import annotations

import colorsys
import io
import random
from typing import TYPE_CHECKING

from PIL import Image

from hpcrun.data.image_sources import Dataset, ImageSource

if TYPE_CHECKING:
    from pathlib import Path


def make_images(out: Path, images: dict[str, int], classes: int, size: int) -> Dataset:
    """Return random images: noise, and a rectangle whose hue depends on the class.

    Args:
        out: Folder of the data set, recorded as the origin of the images.
        images: Number of images of each split.
        classes: Number of classes.
        size: Height and width in pixels.
    """
    names = tuple(f"class-{label:0{len(str(classes))}}" for label in range(1, classes + 1))
    splits = {}
    for seed, (split, count) in enumerate(images.items()):
        generator = random.Random(seed)  # noqa: S311 - not a secret
        splits[split] = [
            ImageSource(
                str(out),
                f"{split}-{index:07}.jpeg",
                index % classes + 1,
                names[index % classes],
                index,
                0,
                _draw_image(generator, index % classes, classes, size),
            )
            for index in range(count)
        ]
    return Dataset(splits, names)


def _draw_image(generator: random.Random, label: int, classes: int, size: int) -> bytes:
    image = Image.frombytes("RGB", (8, 8), generator.randbytes(8 * 8 * 3)).resize(
        (size, size), Image.Resampling.BILINEAR
    )
    red, green, blue = colorsys.hsv_to_rgb(label / classes, 1, 0.9)
    width, height = generator.randint(size // 3, size - 1), generator.randint(size // 3, size - 1)
    corner = generator.randint(0, size - width), generator.randint(0, size - height)
    image.paste((int(red * 255), int(green * 255), int(blue * 255)), (*corner, corner[0] + width, corner[1] + height))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
