"""``hpcrun data info``: show the content of a data set."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.data import require_libraries
from hpcrun.cli.parameters import Json
from hpcrun.cli.progress_bar import progress
from hpcrun.errors import HpcrunError, pluralize

if TYPE_CHECKING:
    from hpcrun.data.info import SplitInfo

_SAMPLES = 32
_MAX_CLASSES = 20
"""Maximum numbers of samples in the picture, and of classes in the table."""


def info(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with shards.")],
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="FILE", help="Write a picture of 32 samples, as samples.png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read all records of a data set; show counts, classes, sizes and damage.

    The exit code is 1 if records are damaged or missing.

    \b
    Examples:
      hpcrun data info records
      hpcrun data info records --sheet samples.png
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data.info import draw_samples, file_size, inspect_split
    from hpcrun.data.layout import find_shards, read_labels

    shards, names = find_shards(folder), read_labels(folder)
    total = sum(file_size(file) for files in shards.values() for file in files)
    done_bytes = 0
    with progress("bytes") as report:

        def count(size: int) -> None:
            nonlocal done_bytes
            done_bytes += size
            report(done_bytes, total)

        splits = {
            split: inspect_split(split, files, names, _SAMPLES if sheet else 0, count)
            for split, files in shards.items()
        }
    if sheet:
        samples = next((info.samples for info in splits.values() if info.samples), [])
        output.message(f"{sheet}: {draw_samples(samples, sheet)} samples")
    if as_json:
        output.value({split: info.to_json(names) for split, info in splits.items()})
    else:
        _show(splits, names)
    damage_messages = [message for info in splits.values() for message in info.damaged]
    if damage_messages:
        lines = "\n".join(damage_messages[:20]) + f"\nand {len(damage_messages) - 20} more" * (
            len(damage_messages) > 20
        )
        faults = pluralize(len(damage_messages), "fault")
        hint = "copy the data again, or build them anew"
        raise HpcrunError(f"{folder} has damaged data ({faults}):\n{lines}", hint=hint, exit_code=1)


def _show(splits: "dict[str, SplitInfo]", names: list[str]) -> None:
    from hpcrun.data.info import class_name

    rows = []
    for split, info in splits.items():
        shape = info.to_json(names)
        sizes = " x ".join(_range(shape[key]) for key in ("height", "width") if shape[key])
        formats = ", ".join(f"{count:,} {kind}" for kind, count in sorted(info.formats.items()))
        rows.append((split, f"{info.images:,}", len(info.labels), info.shards, f"{info.bytes:,}", formats, sizes))
    output.table(("split", "images", "classes", "shards", "bytes", "formats", "height x width"), rows)
    labels = sorted({label for info in splits.values() for label in info.labels})
    output.show("")
    output.table(
        ("label", "class", *splits),
        [
            (label, class_name(label, names), *(f"{info.labels[label]:,}" for info in splits.values()))
            for label in labels[:_MAX_CLASSES]
        ],
    )
    if len(labels) > _MAX_CLASSES:
        output.show(f"and {len(labels) - _MAX_CLASSES} more classes (--json lists all)")


def _range(values: list[float]) -> str:
    minimum, median, maximum = values
    return f"{minimum:g}" if minimum == maximum else f"{minimum:g}-{maximum:g} (median {median:g})"
