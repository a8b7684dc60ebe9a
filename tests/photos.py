"""Real images as JPEG files, in one folder for each class, from the data that scikit-learn comes with."""

import random
from pathlib import Path

from PIL import Image

PHOTOS = ("china", "flower")


def write_photos(folder: Path, count: int, *, size: int = 64, seed: int = 0) -> Path:
    """Write random parts of scikit-learn's two photos, a temple and a flower.

    Args:
        folder: Gets a folder for each of `PHOTOS`.
        count: Number of images of each class.
        size: Height and width in pixels.
        seed: Of the parts.

    Returns:
        The folder.
    """
    import sklearn

    draw = random.Random(seed)
    for name in PHOTOS:
        (folder / name).mkdir(parents=True)
        with Image.open(Path(sklearn.__file__).parent / "datasets/images" / f"{name}.jpg") as photo:
            for number in range(count):
                side = draw.randint(photo.height // 2, photo.height)
                left, top = draw.randint(0, photo.width - side), draw.randint(0, photo.height - side)
                part = photo.resize((size, size), box=(left, top, left + side, top + side))
                part.save(folder / name / f"{number:03}.jpg")
    return folder


def write_digits(folder: Path, count: int, *, size: int = 32) -> Path:
    """Write handwritten digits, scikit-learn's 1,797 of 8 x 8 pixels, ten classes.

    Args:
        folder: Gets a folder for each digit.
        count: Number of images in all.
        size: Height and width in pixels.

    Returns:
        The folder.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number in range(count):
        name = str(digits.target[number])
        (folder / name).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((digits.images[number] * 255 / 16).astype("uint8")).convert("RGB")
        image.resize((size, size), Image.Resampling.BICUBIC).save(folder / name / f"{number:04}.jpg", quality=95)
    return folder
