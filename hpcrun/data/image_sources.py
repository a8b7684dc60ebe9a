"""Source images of a data set: the location of each image's content, and its label."""

from __future__ import annotations

import os
import random
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TRAIN_FOLDERS, VALIDATION_FOLDERS = ("train",), ("validation", "val", "valid", "test")
_SEED = 12345
"""Seed of the shuffle, as in Inception's scripts."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image and its label; an instance is small, because data sets have millions of images.

    Attributes:
        file: Path of the file or archive with the image.
        name: Name of the image in its record.
        label: Label of the class, from 1; 0 is background and does not occur in folders.
        text: Name of the class.
        offset: Offset of the content in the file in bytes; 0 unless the file is an archive.
        size: Length of the content in bytes; None: the whole file.
        content: The content; None: read from the file.
        shape: Height, width and channels of raw pixels (uint8); None for an image file.
        extra: Names and values of additional features of the record.
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
        """Return the content of the image.

        Raises:
            OSError: The file cannot be read.
        """
        if self.content is not None:
            return self.content
        with Path(self.file).open("rb") as stream:
            stream.seek(self.offset)
            return stream.read() if self.size is None else stream.read(self.size)


@frozen
class Dataset:
    """The images of a data set, by split, in the order of their records.

    Attributes:
        splits: Images by split, ``train`` and ``validation``.
        labels: Class names in the order of their labels; the first class has label 1.
    """

    splits: dict[str, list[ImageSource]]
    labels: tuple[str, ...]


def find_images(
    folder: Path,
    *,
    validation: float = 0.0,
    labels: Sequence[str] = (),
    report: Callable[[str], None] = lambda _line: None,
) -> Dataset:
    """Return the images of a folder with one subfolder per class, in a reproducible random order.

    Subfolders ``train`` and ``validation`` (or ``val``, ``valid``, ``test``) with the same classes become the splits.

    Args:
        folder: Folder of the images.
        validation: Fraction of each class to use for validation, from 0 to below 1.
        labels: Class names in the order of their labels; empty: the names of the subfolders, sorted.
        report: Function that is called with a line about what is left out, and about classes that cannot be learned.

    Raises:
        HpcrunError: There are no images, or classes that are not in `labels`.
    """
    if not folder.is_dir():
        raise HpcrunError(f"{folder} is not a folder", hint="give a folder with one folder of images for each class")
    split_folders = _find_split_folders(folder)
    train_folder, *validation_folders = split_folders or [folder]
    names = tuple(labels) or class_names(train_folder)
    if not validation_folders:
        images = list_images(train_folder, names)
        _report_doubts(train_folder, names, images, report)
        return Dataset(_split_by_class(shuffle(images), validation), names)
    validation_folder, *unused_folders = validation_folders
    if validation:
        raise HpcrunError(
            f"{folder} has the folders {train_folder.name} and {validation_folder.name} already",
            hint="leave out --validation, or give one of these folders",
        )
    for unused_folder in unused_folders:
        report(f"{unused_folder} is left out: {validation_folder.name} is the validation split")
    splits = {"train": list_images(train_folder, names), "validation": list_images(validation_folder, names)}
    _report_doubts(train_folder, names, splits["train"], report)
    return Dataset({split: shuffle(images) for split, images in splits.items()}, names)


def _report_doubts(
    folder: Path, names: Sequence[str], images: Iterable[ImageSource], report: Callable[[str], None]
) -> None:
    """Report files beside the folders of the classes, classes without images, and a single class."""
    files = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    if files:
        report(f"WARNING: files in {folder} are left out, since they are in no class: {_enumerate(files)}")
    labels = {image.label for image in images}
    if empty_names := [name for label, name in enumerate(names, 1) if label not in labels]:
        report(f"WARNING: no training images of a class: {_enumerate(empty_names)}")
    if len(names) == 1:
        report(f"WARNING: there is only one class, {names[0]}: a network has nothing to tell it from")


def _enumerate(names: Sequence[str]) -> str:
    """Return up to five names, and the number of the others."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} others" if len(names) > 5 else "")


def _find_split_folders(folder: Path) -> list[Path]:
    """Return the folders of the splits, ``train`` first; empty if the subfolders of a folder are classes."""
    subfolder_names = class_names(folder)
    split_names = [name for name in (*TRAIN_FOLDERS, *VALIDATION_FOLDERS) if name in subfolder_names]
    has_only_splits = len(split_names) == len(subfolder_names) and not set(split_names).isdisjoint(TRAIN_FOLDERS)
    if not has_only_splits:
        return []
    split_folders = [folder / name for name in split_names]
    for split_folder in split_folders:
        _require_readable(split_folder)
    return split_folders if all(map(class_names, split_folders)) else []


def shuffle(images: list[ImageSource]) -> list[ImageSource]:
    """Return images in a random but reproducible order."""
    shuffled_images = list(images)
    random.Random(_SEED).shuffle(shuffled_images)  # noqa: S311 - not a secret
    return shuffled_images


def _split_by_class(images: Iterable[ImageSource], fraction: float) -> dict[str, list[ImageSource]]:
    """Split images: a fraction of each class becomes the validation split, but never a whole class."""
    if not fraction:
        return {"train": list(images)}
    by_label: dict[int, list[ImageSource]] = defaultdict(list)
    for image in images:
        by_label[image.label].append(image)
    validation_ids = {
        id(image) for group in by_label.values() for image in group[: min(round(fraction * len(group)), len(group) - 1)]
    }
    splits: dict[str, list[ImageSource]] = {"train": [], "validation": []}
    for group in (by_label[label] for label in by_label):
        for image in group:
            splits["validation" if id(image) in validation_ids else "train"].append(image)
    return {name: shuffle(split_images) for name, split_images in splits.items()}


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of a folder's subfolders, without hidden ones."""
    names = (entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return tuple(sorted(names))


def list_images(folder: Path, names: Sequence[str]) -> list[ImageSource]:
    """Return the files of each class, in its folder and subfolders, sorted by path, without hidden files.

    Args:
        folder: Folder with one subfolder per class.
        names: Class names in the order of their labels; the first class has label 1.

    Raises:
        HpcrunError: A subfolder is not in `names` or cannot be read, or there are no files.
    """
    if unknown := sorted(set(class_names(folder)) - set(names)):
        raise HpcrunError(
            f"{folder}: folders without a label: {', '.join(unknown[:5])}",
            hint="the classes of all splits must be the same, and in the file of labels if there is one",
        )
    if broken := [name for name in names if name.splitlines() != [name]]:
        hint = "rename it: a file of labels has one class a line"
        raise HpcrunError(f"{folder}: the name of a folder has a line break: {broken[0]!r}", hint=hint)
    images: list[ImageSource] = []
    for label, name in enumerate(names, 1):
        if (folder / name).is_dir():
            _require_readable(folder / name)
        for file in sorted((folder / name).rglob("*")):
            path = file.relative_to(folder)
            if any(part.startswith(".") for part in path.parts):
                continue
            if file.is_dir():
                _require_readable(file)
            elif file.is_file() or file.is_symlink():  # a link without its target is skipped later, with the reason
                images += [ImageSource(str(file), str(path), label, name)]
    if not images:
        raise HpcrunError(f"there are no images in {folder}/<class>/", hint=f"for example {folder}/roses/image1.jpg")
    return images


def _require_readable(folder: Path) -> None:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise HpcrunError(
            f"{folder}: permission denied", hint=f"chmod u+rx {shlex.quote(str(folder))}, or move it away"
        )
