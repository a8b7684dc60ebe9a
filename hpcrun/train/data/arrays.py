"""Checks whether data consist of arrays, and whether all ranks have the same arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.data.checksums import Checksum, sample_indices
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Data


def are_arrays(data: Data) -> bool:
    """Return whether data is an array, a tensor, or a structure of arrays and tensors."""
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    return bool(leaves) and all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves)


def check_same_arrays(data: Data, samples: int, batch_size: int | None) -> None:
    """Compare some samples of arrays between the ranks. Collective.

    Args:
        data: Arrays of (samples, ...), or a structure of such arrays.
        samples: The number of samples.
        batch_size: The global batch size.

    Raises:
        HpcrunError: The arrays differ between ranks.
    """
    if world().size == 1:
        return
    hint = (
        "give all ranks the same data in the same order, and one global batch size; seed shuffles and splits, "
        "and sort the names of files"
    )
    require_agreement({"batch size": batch_size, "number of samples": samples}, hint)
    arrays = (a if isinstance(a, np.ndarray) else keras.ops.convert_to_numpy(a) for a in keras.tree.flatten(data))
    require_agreement(
        {"checksums of some of the samples": [Checksum(a[sample_indices(samples)]) for a in arrays]}, hint
    )
