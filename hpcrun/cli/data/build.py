"""``hpcrun data build``, ``imagenet``, ``mnist``, ``cifar10`` and ``synthetic``: write a data set."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import signal
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.data import require_libraries
from hpcrun.cli.parameters import Json
from hpcrun.cli.progress_bar import progress
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.data.image_sources import Dataset

OutputFolder = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder for the data set: new, empty, or of a stopped build.")
]
_SHARDS_HELP = "Number of training shards; default: one per 1,024 images."
_VALIDATION_SHARDS_HELP = "Number of validation shards; default: one per 1,024 images."
ShardsOption = Annotated[int | None, typer.Option("--shards", min=1, max=99999, metavar="N", help=_SHARDS_HELP)]
ValidationShards = Annotated[
    int | None, typer.Option("--validation-shards", min=1, max=99999, metavar="N", help=_VALIDATION_SHARDS_HELP)
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, metavar="N", help="Processes; default: one a core.")]
_MAX_SIDE_PIXELS = 8192
"""Maximum of --resize: each process holds such an image, of 200 MB, in memory."""
Resize = Annotated[
    int | None,
    typer.Option(
        "--resize",
        min=1,
        max=_MAX_SIDE_PIXELS,
        metavar="PIXELS",
        help="Height and width to resize images to; default: no resizing.",
    ),
]
RawPixels = Annotated[bool, typer.Option("--raw", help="Store pixels (uint8) instead of JPEG files.")]
SourceFolder = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Folder of the original files; default: Keras's cache.")
]


def build(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with one folder of images for each class.")],
    out: OutputFolder,
    validation: Annotated[
        float,
        typer.Option(
            "--validation", min=0, max=0.99, metavar="FRACTION", help="Part of each class for validation, as 0.1."
        ),
    ] = 0.0,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="Classes in the order of their labels; default: by name."),
    ] = None,
    shards: ShardsOption = None,
    validation_shards: ValidationShards = None,
    resize: Resize = None,
    raw: RawPixels = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Build a data set from a folder with one folder of images for each class.

    Images that are not JPEG in RGB are converted, and damaged ones are left
    out and listed in OUT/skipped.txt. The same command resumes a stopped build.
    If DIR has folders train and validation, these become the splits.

    \b
    Examples:
      hpcrun data build photos records --validation 0.1
      hpcrun data build photos records --resize 64 --raw
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.image_sources import find_images

    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        problem = f"DIR and OUT are the same folder: {folder}" if out.resolve() == folder.resolve() else ""
        hint = f"give a new folder for the shards: hpcrun data build {folder} {folder.resolve().name}-records"
        raise HpcrunError(problem or f"OUT is in DIR, where it would be a class: {out}", hint=hint)
    if isnan(validation):  # Typer compares with the limits, which is false for nan
        hint = "--validation=FRACTION: Part of each class for validation, as 0.1."
        raise HpcrunError("--validation: nan is not in the range 0<=x<=0.99", hint=hint)
    names = _read_names(labels) if labels else ()
    dataset = find_images(folder, validation=validation, labels=names, report=output.message)
    _build(
        dataset,
        out,
        {"train": shards, "validation": validation_shards},
        workers,
        as_json=as_json,
        resize=resize,
        raw=raw,
    )


def imagenet(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the original archives, as downloaded.")],
    out: OutputFolder,
    shards: Annotated[
        int, typer.Option("--shards", min=1, max=99999, metavar="N", help="Number of training shards.")
    ] = 1024,
    validation_shards: Annotated[
        int, typer.Option("--validation-shards", min=1, max=99999, metavar="N", help="Number of validation shards.")
    ] = 128,
    resize: Resize = None,
    raw: RawPixels = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Build ImageNet (ILSVRC 2012) from its original archives, in place.

    \b
    DIR has, as downloaded:
      ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar
      imagenet_2012_validation_synset_labels.txt  class of each validation image
    and, if you have them:
      imagenet_lsvrc_2015_synsets.txt     classes in the order of their labels
      imagenet_metadata.txt               names of the classes
      imagenet_2012_bounding_boxes.csv    bounding boxes

    \b
    Examples:
      hpcrun data imagenet downloads records
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.imagenet import find_imagenet

    dataset = find_imagenet(folder, output.message)
    _build(
        dataset,
        out,
        {"train": shards, "validation": validation_shards},
        workers,
        as_json=as_json,
        resize=resize,
        raw=raw,
    )


def mnist(
    out: OutputFolder,
    source: SourceFolder = None,
    shards: ShardsOption = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Build MNIST (handwritten digits, 28 x 28, grey) from its original files.

    \b
    Examples:
      hpcrun data mnist records --from downloads
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.small_sets import find_mnist

    _build(find_mnist(source), out, {"train": shards}, workers, as_json=as_json)


def cifar10(
    out: OutputFolder,
    source: SourceFolder = None,
    shards: ShardsOption = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Build CIFAR-10 (32 x 32, colour, 10 classes) from its original files.

    \b
    Examples:
      hpcrun data cifar10 records --from downloads
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.small_sets import find_cifar10

    _build(find_cifar10(source), out, {"train": shards}, workers, as_json=as_json)


def synthetic(
    out: OutputFolder,
    images: Annotated[int, typer.Option("--images", min=1, metavar="N", help="Number of training images.")] = 1024,
    validation_images: Annotated[
        int, typer.Option("--validation-images", min=0, metavar="N", help="Number of validation images.")
    ] = 128,
    classes: Annotated[int, typer.Option("--classes", min=1, metavar="N", help="Number of classes.")] = 10,
    size: Annotated[int, typer.Option("--size", min=8, metavar="PIXELS", help="Height and width.")] = 64,
    shards: ShardsOption = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Build a data set of random images whose class a network can learn.

    \b
    Examples:
      hpcrun data synthetic records --images 2000 --classes 10
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.synthetic import make_images

    image_counts = {"train": images, **({"validation": validation_images} if validation_images else {})}
    _build(make_images(out, image_counts, classes, size), out, {"train": shards}, workers, as_json=as_json)


def _read_names(file: Path) -> tuple[str, ...]:
    try:
        names = tuple(line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise HpcrunError(f"--labels={file}: {error}", hint="give a file with one class a line") from None
    if repeated := {name for name in names if names.count(name) > 1}:
        raise HpcrunError(f"--labels={file} has {', '.join(sorted(repeated))} more than once")
    return names


def _build(
    dataset: "Dataset",
    out: Path,
    shards: dict[str, int | None],
    workers: int | None,
    *,
    as_json: bool,
    resize: int | None = None,
    raw: bool = False,
) -> None:
    from hpcrun.data.build import Options, build
    from hpcrun.data.workers import default_workers

    counts = {split: count for split, count in shards.items() if count}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with progress("images") as report:
            description = build(dataset, out, Options(counts, resize or 0, raw), workers or default_workers(), report)
    except KeyboardInterrupt as interrupt:
        signal_number = interrupt.args[0] if interrupt.args else signal.SIGINT
        raise HpcrunError(
            f"stopped; {out} is incomplete", hint="the same command goes on from here", exit_code=128 + signal_number
        ) from None
    if as_json:
        output.value(description)
        return
    rows = [(split, *_cells(split_counts)) for split, split_counts in description["splits"].items()]
    output.table(("split", "images", "shards", "bytes", "converted", "skipped"), rows)
    output.message(f"{out}: {description['classes']} classes (labels.txt)")
    if not any(split_counts["images"] for split_counts in description["splits"].values()):
        raise HpcrunError(
            f"{out} has no images: all files were skipped", hint=f"cat {out / 'skipped.txt'}", exit_code=1
        )
    if any(split_counts["skipped"] for split_counts in description["splits"].values()):
        output.message(f"WARNING: files were skipped; {out / 'skipped.txt'} lists them with the reasons")


def _interrupt(signal_number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal_number)


def _cells(split_counts: dict[str, Any]) -> tuple[str, ...]:
    conversion_counts = ", ".join(f"{count} {kind}" for kind, count in split_counts["converted"].items())
    return (
        f"{split_counts['images']:,}",
        str(split_counts["shards"]),
        f"{split_counts['bytes']:,}",
        conversion_counts,
        str(split_counts["skipped"] or ""),
    )
