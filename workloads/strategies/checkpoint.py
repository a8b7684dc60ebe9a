"""Checkpoint of training, and exit of the process after a stop signal."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import keras
import numpy as np

import hpcrun.run

if TYPE_CHECKING:
    from pathlib import Path


class Checkpoint:
    """A NumPy file with weights, optimizer state and position of training.

    Args:
        folder: The run directory; None outside of a job.
        variables: The variables of the model and the optimizer.
        writes: Whether this rank writes the file.
    """

    def __init__(self, folder: Path | None, variables: list[keras.Variable], *, writes: bool) -> None:
        self.file = folder / "checkpoints" / "strategies.npz" if folder else None
        self.variables, self.writes = variables, writes

    def write(self, epoch: int, step: int) -> None:
        """Write the file on one rank; all ranks that share the variables must call this function."""
        values = {f"v{number}": keras.ops.convert_to_numpy(each) for number, each in enumerate(self.variables)}
        if self.writes and self.file:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            temporary_file = self.file.with_suffix(".new")
            with temporary_file.open("wb") as file:
                np.savez(file, epoch=epoch, step=step, **values)
            temporary_file.replace(self.file)

    def read(self) -> tuple[int, int]:
        """Set the variables to the values in the file, if it exists.

        Returns:
            The next epoch, and the next step in it.
        """
        if not self.file or not self.file.exists():
            return 0, 0
        with np.load(self.file) as values:
            for number, variable in enumerate(self.variables):
                variable.assign(values[f"v{number}"])
            return int(values["epoch"]), int(values["step"])


def stop(epoch: int, step: int) -> NoReturn:
    """End this rank after a signal and a checkpoint.

    Args:
        epoch: The number of completed epochs.
        step: The number of completed steps in the next epoch.
    """
    signal_number = hpcrun.run.checkpoint_requested()
    if os.environ.get("HPCRUN_RANK", "0") == "0":
        name = signal.Signals(signal_number).name if signal_number else "the signal of another rank"
        print(f"stopped by {name} in epoch {epoch + 1}, after {step} steps; started again, it continues there")
    sys.stdout.flush()
    # exit without waiting for TensorFlow's threads, which may wait for other ranks
    os._exit(128 + (signal_number or signal.SIGTERM))
