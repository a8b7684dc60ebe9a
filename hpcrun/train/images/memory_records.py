"""Images in memory, as records that are encoded on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.data.example import encode_example
from hpcrun.data.images import EncodedImage
from hpcrun.data.shard_files import features_of
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from hpcrun.data.image_sources import ImageSource


@frozen
class SourceRecords:
    """The raw images of a split.

    Attributes:
        sources: The images, with their shapes and contents.
    """

    sources: Sequence[ImageSource]

    def read(self, image_index: int) -> bytes:
        """Return the record of an image, a serialized ``tf.train.Example``."""
        source = self.sources[image_index]
        height, width, channels = source.shape or (0, 0, 0)
        return encode_example(features_of(source, EncodedImage(source.read(), height, width, channels, "RAW")))

    def check(self, image_index: int) -> str | None:  # noqa: ARG002 - the interface of ImageFiles
        """Return None: the images were checked when they were read."""
        return None

    def describe(self, image_index: int) -> str:
        """Return the file and the name of an image, as text."""
        return f"{self.sources[image_index].file}: {self.sources[image_index].name}"

    def select(self, image_indices: np.ndarray[Any, Any]) -> SourceRecords:
        """Return a subset of the images, given their indices."""
        return SourceRecords([self.sources[image_index] for image_index in image_indices])
