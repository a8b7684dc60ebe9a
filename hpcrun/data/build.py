"""Builder of a data set: it writes the shards in parallel, and their description to ``dataset.json``.

An interrupted build can be resumed: a shard gets its final name when it is complete, and ``.build.jsonl`` lists the
complete shards below a line that identifies the build.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from hpcrun.data.index import index_name, write_index
from hpcrun.data.layout import DESCRIPTION, JOURNAL, LABELS, SKIPPED, shard_name
from hpcrun.data.shard_files import IMAGES_PER_SHARD, ShardResult
from hpcrun.data.workers import ShardTask, write_shards
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from hpcrun.data.image_sources import Dataset


@frozen
class Options:
    """The options of a build.

    Attributes:
        shards: Number of shards by split; a split without a number gets one shard per 1,024 images.
        resize: Height and width of the stored images in pixels; 0 keeps the size of each image.
        raw: Whether to store pixels instead of JPEG files.
    """

    shards: dict[str, int]
    resize: int = 0
    raw: bool = False


def build(
    dataset: Dataset, out: Path, options: Options, workers: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Build a data set, or resume its interrupted build.

    Args:
        dataset: Images by split, and names of the classes.
        out: Folder for the shards; created if it does not exist.
        options: Number and format of the stored images and shards.
        workers: Number of processes.
        report: Function that is called repeatedly with the number of finished images and the number of all images.

    Returns:
        The content of ``dataset.json``.

    Raises:
        HpcrunError: The folder has unrelated files or files of a different build, or the disk is full.
    """
    try:
        return _build(dataset, out, options, workers, report)
    except OSError as error:
        raise HpcrunError(
            f"{error.filename or out}: {error.strerror or error}",
            hint="free some disk space, or give another folder; the same command resumes the build",
            exit_code=1,
        ) from None


def _build(
    dataset: Dataset, out: Path, options: Options, workers: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    tasks = _plan(dataset, out, options)
    identity = _identify(dataset, options)
    with _lock(out) as journal:
        results = _resume(out, journal, identity)
        total_images, resumed_images = (
            sum(len(task.sources) for task in tasks),
            sum(len(task.sources) for task in tasks if task.file.name in results),
        )
        report(resumed_images, total_images)
        remaining_tasks = [task for task in tasks if task.file.name not in results]
        for result in write_shards(
            remaining_tasks, workers, lambda images: report(resumed_images + images, total_images)
        ):
            results[result.name] = result
            journal.writelines(f"{line}\n" for line in _to_json_lines([result]))
            journal.flush()
        return _finish(dataset, out, options, [results[task.file.name] for task in tasks])


def _finish(dataset: Dataset, out: Path, options: Options, results: list[ShardResult]) -> dict[str, Any]:
    """Write the files that describe a data set whose shards are complete."""
    description = _describe(dataset, options, results)
    skipped_lines = [line for result in results for line in result.skipped]
    (out / LABELS).write_text("".join(f"{name}\n" for name in dataset.labels), errors="surrogateescape")
    (out / SKIPPED).write_text(
        "".join(f"{_escape(path)}\t{reason}\n" for path, reason in skipped_lines), errors="surrogateescape"
    )
    for split in dataset.splits:
        shard_records = [result.records for result in results if result.name.startswith(f"{split}-")]
        write_index(out / index_name(split), shard_records)
    (out / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    (out / JOURNAL).unlink()
    return description


def _escape(path: str) -> str:
    """Return a path in which control characters, such as line breaks, are escaped."""
    return "".join(repr(character)[1:-1] if ord(character) < ord(" ") else character for character in path)


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
    """Return a hash of the options and the input files, which determine the content of the shards."""
    digest = hashlib.sha256(repr((options, dataset.labels)).encode())
    for split, sources in dataset.splits.items():
        for source in sources:
            digest.update(repr((split, source.name, source.label, source.offset)).encode(errors="surrogateescape"))
            if source.content is not None:
                digest.update(source.content)
            else:
                try:
                    file_stat = os.stat(source.file)  # noqa: PTH116 - millions of paths
                except OSError:  # a link without its target
                    file_stat = os.lstat(source.file)
                digest.update(
                    repr((source.file, file_stat.st_size, file_stat.st_mtime_ns)).encode(errors="surrogateescape")
                )
    return digest.hexdigest()


@contextmanager
def _lock(out: Path) -> Iterator[TextIO]:
    """Create the folder, and open its journal under an exclusive lock."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HpcrunError(f"{out}: {error.strerror}", hint="give a new or empty folder for the shards") from None
    has_journal = (out / JOURNAL).exists()
    entries = sorted(entry.name for entry in out.iterdir())
    if entries and not has_journal:
        hint = "give a new or empty folder for the shards"
        if DESCRIPTION in entries:
            raise HpcrunError(f"{out} has a complete data set already", hint=f"hpcrun data info {out} shows it; {hint}")
        raise HpcrunError(f"{out} is not empty: it has {entries[0]}", hint=hint)
    with (out / JOURNAL).open("a+") as journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HpcrunError(
                f"another process is building {out}", hint="wait for it, or give another folder"
            ) from None
        yield journal


def _resume(out: Path, journal: TextIO, identity: str) -> dict[str, ShardResult]:
    """Return the complete shards of an interrupted build, by file name; remove incomplete shards."""
    journal.seek(0)
    identity_line, *result_lines = journal.read().splitlines() or [""]
    if identity_line and identity_line != json.dumps({"build": identity}):
        raise HpcrunError(
            f"{out} has an interrupted build of other images, or with other options",
            hint="give another folder, or remove this one",
        )
    recorded_results = [ShardResult.from_json(line) for line in result_lines]
    results = {result.name: result for result in recorded_results if result and (out / result.name).exists()}
    for temporary_file in out.glob(".*.part"):
        temporary_file.unlink()
    journal.truncate(0)
    journal.writelines(f"{line}\n" for line in [json.dumps({"build": identity}), *_to_json_lines(results.values())])
    journal.flush()
    return results


def _to_json_lines(results: Iterable[ShardResult]) -> Iterator[str]:
    return (json.dumps(asdict(result)) for result in results)


def _describe(dataset: Dataset, options: Options, results: list[ShardResult]) -> dict[str, Any]:
    """Return the content of ``dataset.json``."""
    splits = {}
    for split in dataset.splits:
        split_results = [result for result in results if result.name.startswith(f"{split}-")]
        labels: Counter[int] = Counter()
        converted: Counter[str] = Counter()
        for result in split_results:
            labels.update(result.labels)
            converted.update(result.converted)
        splits[split] = {
            "images": sum(result.images for result in split_results),
            "shards": len(split_results),
            "bytes": sum(result.bytes for result in split_results),
            "images_of_class": {name: labels[label] for label, name in enumerate(dataset.labels, 1)},
            "converted": dict(sorted(converted.items())),
            "skipped": sum(len(result.skipped) for result in split_results),
        }
    return {"classes": len(dataset.labels), "resize": options.resize, "raw": options.raw, "splits": splits}
