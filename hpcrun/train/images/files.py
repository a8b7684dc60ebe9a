"""Images as files in a folder for each class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcrun.data.sources import TRAIN_FOLDERS, VALIDATION_FOLDERS, class_names, list_images, shuffle
from hpcrun.errors import HpcrunError
from hpcrun.train.images.damage import check_image


@dataclass(frozen=True)
class ImageFiles:
    """The files of a split.

    Attributes:
        folder: The folder of the classes.
        paths: The path of each image, relative to it.
    """

    folder: Path
    paths: list[str]

    def read(self, number: int) -> bytes:
        """Return the content of an image file.

        Raises:
            HpcrunError: The file is empty.
            OSError: It cannot be read.
        """
        content = Path(self.folder, self.paths[number]).read_bytes()
        if not content:
            raise HpcrunError(f"{self.describe(number)}: the file is empty")
        return content

    def check(self, number: int) -> str | None:
        """Return what is wrong with an image; None if it can be read and decoded."""
        return check_image(self.read(number))

    def describe(self, number: int) -> str:
        """Return the path of an image."""
        return str(Path(self.folder, self.paths[number]))

    def select(self, numbers: np.ndarray[Any, Any]) -> ImageFiles:
        """Return some of the images."""
        return replace(self, paths=[self.paths[number] for number in numbers])


def split_folder(folder: Path, split: str) -> Path | None:
    """Return the folder of the classes of a split, or None if there is none."""
    names = TRAIN_FOLDERS if split == "train" else VALIDATION_FOLDERS
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def list_files(folder: Path, split: str) -> tuple[list[str], np.ndarray[Any, Any], list[str]]:
    """List the images of a split, in the order of the records that ``hpcrun data build`` would write.

    Args:
        folder: With the folders of the splits; the classes of ``train``, sorted by name, are those of all splits.
        split: ``train`` or ``validation``.

    Returns:
        Paths relative to the folder of the split's classes; labels from 0, int64; names of the classes.

    Raises:
        HpcrunError: The split has no images, or has classes that the training split lacks.
    """
    own, train = split_folder(folder, split), split_folder(folder, "train")
    if own is None:
        raise HpcrunError(f"{folder} has no folder {split}")
    names = class_names(train or own)
    images = shuffle(list_images(own, names))
    labels = np.array([image.label - 1 for image in images], np.int64)
    return [image.name for image in images], labels, list(names)
