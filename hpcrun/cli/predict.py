"""``hpcrun predict``: predict the classes of images with the saved model of a job."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import keras_program, output
from hpcrun.cli.keras_program import BestModel, SavedModel
from hpcrun.cli.parameters import Json
from hpcrun.cli.progress_bar import progress
from hpcrun.errors import HpcrunError, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_MESSAGES = 20


def predict(
    model: SavedModel,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Classes to show for each image.")] = 5,
    best: BestModel = False,
    as_json: Json = False,
) -> None:
    """Predict the classes of images with the saved model of a job.

    It runs on this machine. The exit code is 1 if an image cannot be read.

    \b
    Examples:
      hpcrun predict last rose.jpg
      hpcrun predict resnet50 holiday/*.jpg --top 1 --json
      hpcrun predict model.keras rose.jpg
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs.run_arguments import find_run_or_file

    file, files = find_run_or_file(model), _list_files(images)
    records: list[dict[str, Any]] = [{"image": str(image)} for image in files]
    with tempfile.TemporaryDirectory(prefix="hpcrun-predict-") as folder:
        readable_files = {number: path for number, path in enumerate(_prepare(files, records, Path(folder))) if path}
        result: dict[str, Any] = {"images": []}
        if readable_files:
            request = {"model": str(file), "best": best, "top": top, "files": list(map(str, readable_files.values()))}
            with progress("images") as report:
                result = keras_program.call("predict_files", request, report)
    for number, values in zip(readable_files, result["images"], strict=True):
        records[number] |= values
    if as_json:
        output.value({"model": result.get("model"), "epoch": result.get("epoch"), "images": records})
    else:
        rows = [
            ("" if prediction_index else record["image"], prediction["class"], f"{prediction['probability']:.4f}")
            for record in records
            for prediction_index, prediction in enumerate(record.get("predictions", ()))
        ]
        if rows:
            output.table(("image", "class", "probability"), rows)
    if errors := [f"{record['image']}: {record['error']}" for record in records if "error" in record]:
        more_line = [f"and {len(errors) - _MAX_MESSAGES} more"] * (len(errors) > _MAX_MESSAGES)
        lines = "\n".join([*errors[:_MAX_MESSAGES], *more_line])
        raise HpcrunError(f"{pluralize(len(errors), 'image')} cannot be read:\n{lines}", exit_code=1)


def _list_files(images: "Sequence[Path]") -> list[Path]:
    """Return image files; files in folders are sorted by name.

    Raises:
        HpcrunError: An image does not exist, or a folder has no file.
    """
    image_files: list[Path] = []
    for image in images:
        files = sorted(file for file in image.rglob("*") if file.is_file()) if image.is_dir() else [image]
        if not files or not image.exists():
            message = f"{image} has no files" if image.is_dir() else f"there is no image {image}"
            raise HpcrunError(message, hint="give image files, or folders of them")
        image_files += files
    return image_files


def _prepare(files: "Sequence[Path]", records: list[dict[str, Any]], folder: Path) -> list[Path | None]:
    """Convert images as `hpcrun data build` does, if Pillow is installed; record why an image cannot be read.

    Args:
        files: The images.
        records: A record for each image, which receives its ``error``.
        folder: Folder for converted images.

    Returns:
        The file to read for each image; None if it cannot be read.

    Raises:
        HpcrunError: A converted image cannot be written.
    """
    try:
        from hpcrun.data.images import encode_image
    except ImportError:  # without Pillow, TensorFlow reads JPEG, PNG, GIF and BMP files itself
        return [file.absolute() for file in files]
    prepared: list[Path | None] = []
    for number, file in enumerate(files):
        try:
            content = file.read_bytes()
            image = encode_image(content)
        except (OSError, ValueError) as error:
            records[number]["error"] = getattr(error, "strerror", None) or str(error)
            prepared.append(None)
            continue
        if image.data is content:
            prepared.append(file.absolute())
        else:
            prepared.append(folder / f"{number}.jpg")
            _write_image(folder / f"{number}.jpg", image.data)
    return prepared


def _write_image(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        hint = "free some disk space, or set TMPDIR to a folder that has some"
        raise HpcrunError(f"{file.parent}, for converted images: {error.strerror}", hint=hint, exit_code=1) from None
