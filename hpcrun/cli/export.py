"""``hpcrun export``: convert the saved model of a job to a format for other programs."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli import keras_program
from hpcrun.cli import output as cli_output
from hpcrun.cli.keras_program import BestModel, SavedModel
from hpcrun.cli.parameters import Json
from hpcrun.errors import HpcrunError


class Format(StrEnum):
    """Format of an exported model."""

    savedmodel = "savedmodel"
    keras = "keras"
    onnx = "onnx"


_FILE_SUFFIXES = {Format.savedmodel: "", Format.keras: ".keras", Format.onnx: ".onnx"}


def export(
    model: SavedModel,
    export_format: Annotated[
        Format,
        typer.Option("--format", metavar="FORMAT", help="Format: savedmodel (a folder of TensorFlow), keras or onnx."),
    ] = Format.savedmodel,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PATH", help="New file or folder; default: by the job's name."),
    ] = None,
    best: BestModel = False,
    as_json: Json = False,
) -> None:
    """Export the saved model of a job for other programs.

    The exported model contains the preprocessing, and takes images as uint8. The class names are written to labels.txt
    in the same folder.

    \b
    Examples:
      hpcrun export last
      hpcrun export resnet50 --format onnx -o flowers.onnx
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs.run_arguments import find_run_or_file

    source = find_run_or_file(model)
    name = source.name if source.is_dir() else source.stem  # the directories of a sweep's runs end in .0, .1, ...
    target = (output or Path(name + _FILE_SUFFIXES[export_format])).absolute()
    if target.exists():
        raise HpcrunError(f"{target} exists", hint="give another PATH with -o, or remove it first")
    if not target.parent.is_dir():
        raise HpcrunError(f"there is no folder {target.parent}", hint="create it first, or give another PATH")
    if (ending := _FILE_SUFFIXES[export_format]) and target.suffix != ending:
        raise HpcrunError(f"--output={output}: a file of this format ends in {ending}", hint=f"-o {output}{ending}")
    other_formats = [one for one, suffix in _FILE_SUFFIXES.items() if suffix and suffix == target.suffix]
    if other_formats and not ending:
        raise HpcrunError(f"--output={output}: a SavedModel is a folder", hint=f"give --format {other_formats[0]}, too")
    request = {"model": str(source), "best": best, "format": export_format.value, "output": str(target)}
    cli_output.message(f"exporting {source} ...")
    exported_model = keras_program.call("export_model", request)
    if as_json:
        cli_output.value(exported_model)
        return
    names = f", with the names of its classes in {exported_model['labels']}" if exported_model["labels"] else ""
    cli_output.message(f"exported {exported_model['model']}{names}:")
    print(exported_model["output"])
