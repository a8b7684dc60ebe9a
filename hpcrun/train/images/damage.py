"""Handling of damaged images: skip them before training, or end training with an error that names the image."""

from __future__ import annotations

import re
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.train.backends import add_error_explanation
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

_NAMES_OF_OPERATIONS = re.compile(r"\{\{.*?\}\}|\[Op:.*?\]")
_MAX_LISTED = 5  # maximum number of damaged images listed in a message
_recent_reads: deque[tuple[Callable[[int], str | None], int]] = deque(maxlen=4096)
_HINT = "copy or build it again, or leave out damaged images: skip_bad=True, --skip-bad of workloads"


def gather_problems(problems: Sequence[str], broken_shards: Sequence[str] = (), *, skip_bad: bool) -> None:
    """Report the damaged images of all ranks. Collective.

    Args:
        problems: A message for each damaged image that this rank found.
        broken_shards: A message for each shard of which the rest, an unknown number of images, cannot be read.
        skip_bad: Whether damaged images are left out, with a warning; if not, they are an error.

    Raises:
        HpcrunError: An image is damaged, and `skip_bad` is false; raised on all ranks, with the same message.
    """
    problems_of_ranks = checked_allgather("damaged images", (list(broken_shards), list(problems)))
    all_broken_shards, all_damaged_images = (
        [one for part in parts for one in part] for parts in zip(*problems_of_ranks, strict=True)
    )
    all_problems = all_broken_shards + all_damaged_images
    if all_problems and not skip_bad:
        raise HpcrunError(all_problems[0], hint=_HINT)
    if all_problems and world().rank == 0:
        omitted_line = f"\n  and {len(all_problems) - _MAX_LISTED} more" if len(all_problems) > _MAX_LISTED else ""
        lines = "".join(f"\n  {problem}" for problem in all_problems[:_MAX_LISTED])
        parts = [pluralize(len(all_damaged_images), "damaged image")] if all_damaged_images else []
        parts += [f"the rest of {pluralize(len(all_broken_shards), 'shard')}"] if all_broken_shards else []
        print(f"WARNING: {' and '.join(parts)} left out:{lines}{omitted_line}", file=sys.stderr)


def find_undamaged(check: Callable[[int], str | None], images: int) -> Array:
    """Check all images, each rank a part, and return the indices of the undamaged images. Collective.

    Args:
        check: Function that decodes an image, given its number, and returns an error message; None if undamaged.
        images: The number of images.

    Raises:
        HpcrunError: All images are damaged.
    """
    this_rank = world()
    local_image_numbers = range(this_rank.rank, images, this_rank.size)
    with ThreadPoolExecutor(this_rank.threads) as pool:
        problems = {
            number: problem
            for number, problem in zip(local_image_numbers, pool.map(check, local_image_numbers), strict=True)
            if problem
        }
    gather_problems(list(problems.values()), skip_bad=True)
    damaged_numbers = [
        number
        for numbers_of_rank in checked_allgather("numbers of damaged images", list(problems))
        for number in numbers_of_rank
    ]
    if len(damaged_numbers) == images:
        raise HpcrunError(f"all {images} images are damaged")
    return np.setdiff1d(np.arange(images), damaged_numbers)


def check_image(content: bytes) -> str | None:
    """Decode an image file; return an error message if TensorFlow cannot decode it, else None."""
    try:
        with tf.device("CPU"):
            if tf.io.is_jpeg(content):
                tf.io.decode_jpeg(
                    content, channels=3, ratio=8
                )  # decodes all data to 1/8 of height and width, which is faster
            else:
                tf.io.decode_image(content, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        reason = _NAMES_OF_OPERATIONS.sub("", error.message.splitlines()[0]).strip()
        return f"not an image that TensorFlow decodes: {reason}"
    return None


def record_reads(check: Callable[[int], str | None], image_numbers: Sequence[int]) -> None:
    """Record the images that are read, because an error of TensorFlow does not name the damaged image.

    Args:
        check: See the parameter of `find_undamaged`.
        image_numbers: Indices of the images.
    """
    if not _recent_reads:
        add_error_explanation(_find_damaged_image)
    _recent_reads.extend((check, number) for number in image_numbers)


def _find_damaged_image(error: Exception) -> HpcrunError | None:
    """Return an error that names the damaged image that was read last; None if the error has a different cause."""
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    problems = (check(number) for check, number in reversed(list(_recent_reads)))
    problem = next(filter(None, problems), None)
    return HpcrunError(problem, hint=_HINT) if problem else None
