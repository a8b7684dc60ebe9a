"""Images for training and evaluation, from TFRecord shards or folders of files; a rank reads only its own images.

train = images.read_split("records", "train")
model.fit(train.batches(256, 224, augment="resnet", shuffle=True))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcrun.train.images.image_set import ImageSet as ImageSet
    from hpcrun.train.images.image_set import read_cifar10 as read_cifar10
    from hpcrun.train.images.image_set import read_split as read_split

_MODULES = dict.fromkeys(["ImageSet", "read_cifar10", "read_split"], "image_set")
__all__ = sorted(_MODULES)  # noqa: PLE0605  (one table lists the public names and their modules)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
