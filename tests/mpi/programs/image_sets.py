"""Read images from shards and folders, and print digests of the batches, and the errors of damaged images."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np

from hpcrun.train import images
from hpcrun.train.images import records
from hpcrun.train.images.augmentation import AUGMENTATIONS
from hpcrun.train.ranks.world import world

folder, quick, me = Path(sys.argv[1]), sys.argv[2:] == ["quick"], world()


def batches(data):
    """Yield the whole batches of an epoch, put together from the shards of all ranks."""
    for (x, y), share in data:
        own = (x.numpy(), y.numpy()) if share.numpy() > 0 else (x.numpy()[:0], y.numpy()[:0])
        gathered = me.comm.allgather(own) if me.size > 1 else [own]
        order = np.argsort(np.concatenate([np.arange(len(y)) * me.size + rank for rank, (_, y) in enumerate(gathered)]))
        yield tuple(np.concatenate(part)[order] for part in zip(*gathered, strict=True))


def digest(data, epochs=2):
    """Return a digest of each epoch."""
    whole = [[part.tobytes() for batch in batches(data) for part in batch] for _ in range(epochs)]
    return [hashlib.sha256(b"".join(parts)).hexdigest()[:8] for parts in whole]


def error(function):
    """Return the message of the error that a function raises."""
    try:
        function()
    except hpcrun.train.HpcrunError as raised:
        return str(raised)
    return ""


digests: dict[str, list[str]] = {}
found: dict[str, Any] = {}
all_of_them = {"records": list(AUGMENTATIONS), "foreign": ["none"], "tree": ["resnet"]}
for source, augments in ({"foreign": ["resnet"]} if quick else all_of_them).items():
    split = images.read_split(folder / source, "train")
    for augment in augments:
        digests[f"{source} {augment}"] = digest(split.batches(7, 16, augment=augment, shuffle=True, seed=3))
found["errors"] = {
    "split": error(lambda: images.read_split(folder / "tree", "test")),
    "folder": error(lambda: images.read_split(folder / "nowhere", "train")),
    "label": error(lambda: images.read_split(folder / "labels", "train")),
    "indexed label": error(lambda: images.read_split(folder / "indexed labels", "train")),
    "scan": error(lambda: images.read_split(folder / "damaged", "train")),
    "empty": error(lambda: images.read_split(folder / "empty", "train")),
    "types": error(lambda: images.read_split(folder / "types", "train")),
    "short": error(lambda: images.read_split(folder / "short", "train")),
}
found["good"] = {
    source: len(images.read_split(folder / source, "train", skip_bad=True))
    for source in (
        "damaged",
        "changed",
        "photos",
        "labels",
        "indexed labels",
        "unnamed",
        "empty",
        "short",
        "types",
        "truncated",
    )
}
found["names of good"] = images.read_split(folder / "unnamed", "train", skip_bad=True).names


def read_at_once(content):
    """Return how many reads of threads fail that open the same shard at the same time."""
    sys.setswitchinterval(1e-6)
    failed = 0
    with ThreadPoolExecutor(4) as pool:
        for _ in range(500):
            records._open_cached.cache_clear()
            failed += sum(future.exception() is not None for future in [pool.submit(content.read, 0) for _ in range(4)])
    sys.setswitchinterval(0.005)
    return failed


found["failed"] = read_at_once(images.read_split(folder / "records", "train").content)
reads: list[int] = []
split = images.read_split(folder / "foreign", "train")


class CountedRecords(records.Records):
    """Records that remember which of them were read."""

    def read(self, number):
        """Read a record."""
        reads.append(number)
        return super().read(number)


shards: Any = split.content
split = replace(split, content=CountedRecords(shards.files, shards.index))
cached = split.batches(7, 16, augment="resnet", shuffle=True, seed=3, cache=True)
content = [[sorted(x.sum((1, 2, 3)).tolist()) for x, _ in batches(cached)] for _ in range(5)]
own = [number for number in reads if number % me.size == me.rank]  # those that this rank keeps
found["same batches"] = content[:2] == [
    [sorted(x.sum((1, 2, 3)).tolist()) for x, _ in batches(epoch)]
    for epoch in [split.batches(7, 16, augment="resnet", shuffle=True, seed=3)] * 2
]
found["own images read"] = sum(me.comm.allgather(len(own))) if me.size > 1 else len(own)
if quick:
    print("RESULT", json.dumps({**found, "digests": digests}), flush=True)
    sys.exit()
validation = images.read_split(folder / "records", "validation")
found |= {"digests": digests, "names": split.names, "validation": sorted(validation.labels.tolist())}
found["ordered"] = digest(validation.batches(4, 16, cache=True))
found["pixels"] = [
    x.sum((1, 2, 3)).tolist() for x, _ in batches(images.read_split(folder / "pixels", "train").batches(20, 12))
]
shapes, seeds = np.tile([300, 400], (200, 1)), np.arange(400, dtype=np.int32).reshape(200, 2)
boxes = np.tile([[[0.8, 0.8, 1.0, 1.0], [0.0] * 4]], (200, 1, 1))
top, left, height, width = AUGMENTATIONS["inception"].draw(shapes, 224, seeds, boxes)[0].T
inside = (top >= 0) & (left >= 0) & (top + height <= 300) & (left + width <= 400)
covered = np.clip(top + height - 240, 0, 60) * np.clip(left + width - 320, 0, 80)  # of the box of 60 x 80 pixels
found["windows"] = [
    bool(inside.all()),
    bool((covered >= 480 - 80).all()),
    len(set(zip(top, left, height, strict=True))) > 190,
]

model = hpcrun.train.Model(keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]))
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
if me.size == 1:  # with several ranks, the error ends all
    for source in ("changed", "photos"):
        split = images.read_split(folder / source, "train")
        found["errors"][source] = error(lambda split=split: model.evaluate(split.batches(8, 16)))
print("RESULT", json.dumps(found), flush=True)
