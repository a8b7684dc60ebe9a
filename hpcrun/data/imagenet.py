"""Reader of ImageNet (ILSVRC 2012) from its original archives, without unpacking them.

The folder of the archives may also have files of Inception's scripts (models/research/inception/inception/data): the
classes in the order of their labels, their English names, the classes of the validation images, and bounding boxes.
"""

from __future__ import annotations

import tarfile
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from hpcrun.data.image_sources import Dataset, ImageSource, shuffle
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TRAIN_ARCHIVE, VALIDATION_ARCHIVE = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
VALIDATION_LABELS = "imagenet_2012_validation_synset_labels.txt"
SYNSETS, NAMES, BOXES = "imagenet_lsvrc_2015_synsets.txt", "imagenet_metadata.txt", "imagenet_2012_bounding_boxes.csv"
_URL = "https://www.image-net.org/challenges/LSVRC/2012"


def find_imagenet(folder: Path, report: Callable[[str], None]) -> Dataset:
    """Return the images of the archives in a folder.

    Args:
        folder: Folder of the archive of training images, of validation images, or both, and of the file with the
            classes of the validation images. Without a file of classes, labels are in the order of the synset ids.
        report: Called with a message before an archive is read.

    Raises:
        HpcrunError: Files are missing, damaged, or inconsistent with each other.
    """
    archives = {"train": folder / TRAIN_ARCHIVE, "validation": folder / VALIDATION_ARCHIVE}
    if not any(file.is_file() for file in archives.values()):
        raise HpcrunError(
            f"{folder} has neither {TRAIN_ARCHIVE} nor {VALIDATION_ARCHIVE}",
            hint=f"after signing in at {_URL}, download both, and put them there; they are read without unpacking",
        )
    boxes = _read_boxes(folder / BOXES)
    sources: dict[str, list[tuple[ImageSource, str]]] = {}
    if archives["train"].is_file():
        report(f"reading the table of contents of {TRAIN_ARCHIVE}")
        sources["train"] = list(_list_training(archives["train"]))
    if archives["validation"].is_file():
        report(f"reading the table of contents of {VALIDATION_ARCHIVE}")
        sources["validation"] = list(_list_validation(archives["validation"], folder / VALIDATION_LABELS))
    synsets = _read_lines(folder / SYNSETS) or sorted({synset for pairs in sources.values() for _, synset in pairs})
    labels = {synset: label for label, synset in enumerate(synsets, 1)}
    if unknown := sorted({synset for pairs in sources.values() for _, synset in pairs} - labels.keys()):
        raise HpcrunError(f"{folder / SYNSETS} lacks {', '.join(unknown[:3])}", hint="copy this file again")
    names = dict(line.split("\t", 1) for line in _read_lines(folder / NAMES) if "\t" in line)
    splits = {
        split: shuffle([_add_label(source, synset, labels, names, boxes) for source, synset in pairs])
        for split, pairs in sources.items()
    }
    return Dataset(splits, tuple(names.get(synset, synset) for synset in synsets))


def _add_label(
    source: ImageSource, synset: str, labels: dict[str, int], names: dict[str, str], boxes: dict[str, list[list[float]]]
) -> ImageSource:
    image_boxes = boxes.get(source.name.rpartition("/")[2], [])
    extra_features: list[tuple[str, str | tuple[float, ...] | tuple[int, ...]]] = [("image/class/synset", synset)]
    if image_boxes:
        corners = zip(("xmin", "ymin", "xmax", "ymax"), zip(*image_boxes, strict=True), strict=True)
        extra_features += [(f"image/object/bbox/{name}", values) for name, values in corners]
        extra_features += [("image/object/bbox/label", (labels[synset],) * len(image_boxes))]
    return replace(source, label=labels[synset], text=names.get(synset, synset), extra=tuple(extra_features))


@contextmanager
def _open_archive(archive: Path, member: str, stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Open an archive, or the archive that is its `member`; damage that is found while it is open is an error.

    Images are read at their offsets in the archive, which therefore cannot be compressed.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            yield tar
    except tarfile.TarError as error:
        name = f"{archive}: {member}" if member else archive
        raise HpcrunError(f"{name}: a damaged archive: {error}", hint=f"download {archive.name} again") from None


def _list_training(archive: Path) -> Iterator[tuple[ImageSource, str]]:
    """List the images of an archive that contains one archive for each class."""
    with archive.open("rb") as file, _open_archive(archive, "", file) as outer:
        for member in outer:
            stream = outer.extractfile(member)
            if not (stream and member.name.endswith(".tar")):
                continue
            with _open_archive(archive, member.name, stream) as inner:
                for image in inner:
                    if image.isfile():
                        start = member.offset_data + image.offset_data
                        yield (
                            ImageSource(str(archive), image.name, 0, "", start, image.size),
                            member.name.removesuffix(".tar"),
                        )


def _list_validation(archive: Path, labels: Path) -> Iterator[tuple[ImageSource, str]]:
    """List the validation images; line k of the file of labels is the class of image k."""
    synsets = _read_lines(labels)
    with archive.open("rb") as file, _open_archive(archive, "", file) as tar:
        members = sorted((member for member in tar if member.isfile()), key=lambda member: member.name)
    if len(synsets) != len(members):
        problem = f"has {len(synsets)} lines for {len(members)} images" if synsets else "does not exist"
        raise HpcrunError(
            f"{labels} {problem}",
            hint="line k is the synset id (such as n01440764) of image k; the file is part of Inception's scripts",
        )
    for member, synset in zip(members, synsets, strict=True):
        yield ImageSource(str(archive), member.name, 0, "", member.offset_data, member.size), synset


def _read_boxes(file: Path) -> dict[str, list[list[float]]]:
    """Return the bounding boxes of each image: xmin, ymin, xmax, ymax as fractions of the image's width and height."""
    boxes: dict[str, list[list[float]]] = defaultdict(list)
    for number, line in enumerate(_read_lines(file), 1):
        name, *corners = line.split(",")
        try:
            xmin, ymin, xmax, ymax = map(float, corners)
        except ValueError:
            raise HpcrunError(f"{file}:{number}: {line!r} is not NAME,xmin,ymin,xmax,ymax") from None
        if not (0 <= xmin < xmax <= 1 and 0 <= ymin < ymax <= 1):
            raise HpcrunError(
                f"{file}:{number}: {line!r} is not a box in the image: 0 <= min < max <= 1",
                hint="corners are fractions of the image's width and height; correct the line, or remove it",
            )
        boxes[name].append([xmin, ymin, xmax, ymax])
    return boxes


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file in UTF-8", hint="copy this file again") from None
