"""Synthetic images, whose class a network can learn."""

from __future__ import annotations

import colorsys
import io
import random
from typing import TYPE_CHECKING

from PIL import Image

from hpcrun.data.sources import Dataset, Source

if TYPE_CHECKING:
    from pathlib import Path


def make_images(out: Path, images: dict[str, int], classes: int, size: int) -> Dataset:
    """Return random images: noise with a rectangle, whose hue is that of the image's class.

    Args:
        out: The folder of the data set.
        images: Number of images of each split.
        classes: Number of classes.
        size: Height and width in pixels.
    """
    names = tuple(f"class-{label:0{len(str(classes))}}" for label in range(1, classes + 1))
    splits = {}
    for number, (split, count) in enumerate(images.items()):
        draw = random.Random(number)  # noqa: S311 - not a secret
        splits[split] = [
            Source(
                str(out),
                f"{split}-{k:07}.jpeg",
                k % classes + 1,
                names[k % classes],
                k,
                0,
                _draw(draw, k % classes, classes, size),
            )
            for k in range(count)
        ]
    return Dataset(splits, names)


def _draw(draw: random.Random, label: int, classes: int, size: int) -> bytes:
    noise = Image.frombytes("RGB", (8, 8), draw.randbytes(8 * 8 * 3)).resize((size, size), Image.Resampling.BILINEAR)
    red, green, blue = colorsys.hsv_to_rgb(label / classes, 1, 0.9)
    width, height = draw.randint(size // 3, size - 1), draw.randint(size // 3, size - 1)
    corner = draw.randint(0, size - width), draw.randint(0, size - height)
    noise.paste((int(red * 255), int(green * 255), int(blue * 255)), (*corner, corner[0] + width, corner[1] + height))
    stream = io.BytesIO()
    noise.save(stream, "JPEG", quality=90)
    return stream.getvalue()
