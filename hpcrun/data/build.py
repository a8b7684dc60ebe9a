"""Building a data set: its shards in parallel, and its description in ``dataset.json``.

A build that was interrupted goes on where it stopped: each shard gets its name when it is complete, and
``.build.jsonl`` lists the complete ones, under a line that identifies the build.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from hpcrun.data.index import index_name, write_index
from hpcrun.data.layout import DESCRIPTION, JOURNAL, LABELS, SKIPPED, shard_name
from hpcrun.data.shards import IMAGES_PER_SHARD, ShardResult
from hpcrun.data.workers import ShardTask, write_shards
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from hpcrun.data.sources import Dataset


@dataclass(frozen=True)
class Options:
    """How a data set is built.

    Attributes:
        shards: Number of shards of each split; one for each 1,024 images without it.
        resize: Height and width in pixels; 0 for the images' own.
        raw: Whether to store pixels instead of JPEG files.
    """

    shards: dict[str, int]
    resize: int = 0
    raw: bool = False


def build(
    dataset: Dataset, out: Path, options: Options, workers: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Build a data set, or the shards of it that a stopped build left out.

    Args:
        dataset: Its images.
        out: The folder of its shards; it is created.
        options: How it is built.
        workers: Number of processes.
        report: Called now and then with the number of images that are done, and of all.

    Returns:
        The content of ``dataset.json``.

    Raises:
        HpcrunError: The folder has other files or shards of another build, or the disk is full.
    """
    tasks = _plan(dataset, out, options)
    identity = _identify(dataset, options)
    with _lock(out) as journal:
        done = _resume(out, journal, identity)
        total, before = (
            sum(len(task.sources) for task in tasks),
            sum(len(task.sources) for task in tasks if task.file.name in done),
        )
        report(before, total)
        left = [task for task in tasks if task.file.name not in done]
        for result in write_shards(left, workers, lambda images: report(before + images, total)):
            done[result.name] = result
            journal.writelines(f"{line}\n" for line in _lines([result]))
            journal.flush()
        return _finish(dataset, out, options, [done[task.file.name] for task in tasks])


def _finish(dataset: Dataset, out: Path, options: Options, results: list[ShardResult]) -> dict[str, Any]:
    """Write the files that describe a data set whose shards are complete."""
    description = _describe(dataset, options, results)
    skipped = [line for result in results for line in result.skipped]
    (out / LABELS).write_text("".join(f"{name}\n" for name in dataset.labels))
    (out / SKIPPED).write_text("".join(f"{path}\t{reason}\n" for path, reason in skipped), errors="surrogateescape")
    for split in dataset.splits:
        own = [result.records for result in results if result.name.startswith(f"{split}-")]
        write_index(out / index_name(split), own)
    (out / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    (out / JOURNAL).unlink()
    return description


def _plan(dataset: Dataset, out: Path, options: Options) -> list[ShardTask]:
    tasks = []
    for split, sources in dataset.splits.items():
        count = options.shards.get(split) or max(1, -(-len(sources) // IMAGES_PER_SHARD))
        if count > max(1, len(sources)):
            raise HpcrunError(
                f"{count} shards of {split} cannot hold {len(sources)} images",
                hint=f"--shards {len(sources)}, or fewer",
            )
        bounds = [len(sources) * k // count for k in range(count + 1)]
        tasks += [
            ShardTask(
                out / shard_name(split, k, count), sources[bounds[k] : bounds[k + 1]], options.resize, options.raw
            )
            for k in range(count)
        ]
    return tasks


def _identify(dataset: Dataset, options: Options) -> str:
    """Return a hash of all that decides what the shards contain."""
    found = hashlib.sha256(repr((options, dataset.labels)).encode())
    for split, sources in dataset.splits.items():
        for source in sources:
            found.update(repr((split, source.name, source.label, source.offset)).encode(errors="surrogateescape"))
            if source.content is not None:
                found.update(source.content)
            else:
                state = os.stat(source.file)  # noqa: PTH116 - millions of paths
                found.update(repr((source.file, state.st_size, state.st_mtime_ns)).encode(errors="surrogateescape"))
    return found.hexdigest()


@contextmanager
def _lock(out: Path) -> Iterator[TextIO]:
    """Create the folder, and open its journal for this build alone."""
    out.mkdir(parents=True, exist_ok=True)
    existed = (out / JOURNAL).exists()
    entries = sorted(entry.name for entry in out.iterdir())
    if entries and not existed:
        raise HpcrunError(f"{out} is not empty: it has {entries[0]}", hint="give another folder, or remove this one")
    with (out / JOURNAL).open("a+") as journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HpcrunError(
                f"another process is building {out}", hint="wait for it, or give another folder"
            ) from None
        yield journal


def _resume(out: Path, journal: TextIO, identity: str) -> dict[str, ShardResult]:
    """Return the complete shards of a stopped build, by name; remove its incomplete ones."""
    journal.seek(0)
    first, *lines = journal.read().splitlines() or [""]
    if first and first != json.dumps({"build": identity}):
        raise HpcrunError(
            f"{out} has a build of other images, or with other options, that was stopped",
            hint="give another folder, or remove this one",
        )
    results = [ShardResult.from_json(line) for line in lines]
    done = {result.name: result for result in results if result and (out / result.name).exists()}
    for draft in out.glob(".*.part"):
        draft.unlink()
    journal.truncate(0)
    journal.writelines(f"{line}\n" for line in [json.dumps({"build": identity}), *_lines(done.values())])
    journal.flush()
    return done


def _lines(results: Iterable[ShardResult]) -> Iterator[str]:
    return (json.dumps(asdict(result)) for result in results)


def _describe(dataset: Dataset, options: Options, results: list[ShardResult]) -> dict[str, Any]:
    """Return the content of ``dataset.json``."""
    splits = {}
    for split in dataset.splits:
        own = [result for result in results if result.name.startswith(f"{split}-")]
        labels: Counter[int] = Counter()
        converted: Counter[str] = Counter()
        for result in own:
            labels.update(result.labels)
            converted.update(result.converted)
        splits[split] = {
            "images": sum(result.images for result in own),
            "shards": len(own),
            "bytes": sum(result.bytes for result in own),
            "images_of_class": {name: labels[label] for label, name in enumerate(dataset.labels, 1)},
            "converted": dict(sorted(converted.items())),
            "skipped": sum(len(result.skipped) for result in own),
        }
    return {"classes": len(dataset.labels), "resize": options.resize, "raw": options.raw, "splits": splits}
