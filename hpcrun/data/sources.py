"""The images of a data set before it is built: where the content of each lies, and its label."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TRAIN_FOLDERS, VALIDATION_FOLDERS = ("train",), ("validation", "val", "valid", "test")
_SEED = 12345
"""Of the shuffle, as in Inception's scripts."""


@dataclass(frozen=True, slots=True)
class Source:
    """An image; data sets have millions of them.

    Attributes:
        file: The path of the file with its content.
        name: Its name in the record.
        label: Its class, from 1; 0 is the background, which no image of a folder has.
        text: The name of its class.
        offset: Where its content begins in the file, in bytes: not 0 in an archive.
        size: Its content's length in bytes; None for the whole file.
        content: Its content, if it is not read from the file.
        shape: Height, width and channels of raw pixels (uint8); None for an image file.
        extra: Further features of its record.
    """

    file: str
    name: str
    label: int
    text: str
    offset: int = 0
    size: int | None = None
    content: bytes | None = field(default=None, repr=False)
    shape: tuple[int, int, int] | None = None
    extra: tuple[tuple[str, str | tuple[float, ...] | tuple[int, ...]], ...] = ()

    def read(self) -> bytes:
        """Return its content.

        Raises:
            OSError: The file cannot be read.
        """
        if self.content is not None:
            return self.content
        with Path(self.file).open("rb") as stream:
            stream.seek(self.offset)
            return stream.read() if self.size is None else stream.read(self.size)


@dataclass(frozen=True)
class Dataset:
    """The images of a data set, by split, in the order of their records.

    Attributes:
        splits: The images of ``train`` and ``validation``.
        labels: The names of the classes; the first one is label 1.
    """

    splits: dict[str, list[Source]]
    labels: tuple[str, ...]


def find_images(folder: Path, *, validation: float = 0.0, labels: Sequence[str] = ()) -> Dataset:
    """Return the images of a folder with a folder for each class, shuffled, the same way each time.

    Folders ``train`` and ``validation`` (or ``val``, ``valid``, ``test``), each with the same classes, are its splits.

    Args:
        folder: The folder.
        validation: Fraction of each class for validation, 0 to below 1.
        labels: The classes in the order of their labels; sorted by name without it.

    Raises:
        HpcrunError: There are no images, or classes that are not in `labels`.
    """
    if not folder.is_dir():
        raise HpcrunError(f"{folder} is not a folder", hint="give a folder with one folder of images for each class")
    folders = {entry.name: entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    train = next((folders[name] for name in TRAIN_FOLDERS if name in folders), None)
    other = next((folders[name] for name in VALIDATION_FOLDERS if name in folders), None)
    if not (train and other and len(folders) == 2):
        names = tuple(labels) or class_names(folder)
        found = list_images(folder, names)
        return Dataset(_split(shuffle(found), validation), names)
    if validation:
        raise HpcrunError(
            f"{folder} has the folders {train.name} and {other.name} already",
            hint="leave out --validation, or give one of these folders",
        )
    names = tuple(labels) or class_names(train)
    splits = {"train": list_images(train, names), "validation": list_images(other, names)}
    return Dataset({split: shuffle(found) for split, found in splits.items()}, names)


def shuffle(images: list[Source]) -> list[Source]:
    """Return images in a random order, the same one each time."""
    shuffled = list(images)
    random.Random(_SEED).shuffle(shuffled)  # noqa: S311 - not a secret
    return shuffled


def _split(images: Iterable[Source], fraction: float) -> dict[str, list[Source]]:
    """Return images by split: this fraction of each class is for validation, but never all of a class."""
    if not fraction:
        return {"train": list(images)}
    by_label: dict[int, list[Source]] = defaultdict(list)
    for image in images:
        by_label[image.label].append(image)
    held_out = {
        id(image) for group in by_label.values() for image in group[: min(round(fraction * len(group)), len(group) - 1)]
    }
    splits: dict[str, list[Source]] = {"train": [], "validation": []}
    for group in (by_label[label] for label in by_label):
        for image in group:
            splits["validation" if id(image) in held_out else "train"].append(image)
    return {name: shuffle(found) for name, found in splits.items()}


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders in a folder, sorted; hidden ones are left out."""
    names = (entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return tuple(sorted(names))


def list_images(folder: Path, names: Sequence[str]) -> list[Source]:
    """Return the files below the folder of each class, sorted by path; hidden files are left out.

    Args:
        folder: The folder of the classes.
        names: The classes; the first one is label 1.

    Raises:
        HpcrunError: There is another class, or no file.
    """
    if unknown := sorted(set(class_names(folder)) - set(names)):
        raise HpcrunError(
            f"{folder}: folders without a label: {', '.join(unknown[:5])}",
            hint="the classes of all splits must be the same, and in the file of labels if there is one",
        )
    images: list[Source] = []
    for label, name in enumerate(names, 1):
        for file in sorted((folder / name).rglob("*")):
            path = file.relative_to(folder)
            if file.is_file() and not any(part.startswith(".") for part in path.parts):
                images += [Source(str(file), str(path), label, name)]
    if not images:
        raise HpcrunError(f"there are no images in {folder}/<class>/", hint=f"for example {folder}/roses/image1.jpg")
    return images
