"""Readers of MNIST and CIFAR-10, from their original files or from Keras's cache."""

from __future__ import annotations

import ast
import gzip
import io
import math
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from hpcrun.data.image_sources import Dataset, ImageSource, shuffle
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Samples = Iterator[tuple[bytes, int]]
    """Pixels of an image, uint8 (height, width, channels), and its class from 0."""

_DIGITS = tuple("0123456789")
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE_PIXELS, _PLANE_BYTES = 32, 32 * 32
"""Height and width of a CIFAR-10 image in pixels, and bytes of one colour channel."""
_READ_ERRORS = (
    OSError, EOFError, ValueError, KeyError, SyntaxError, zipfile.BadZipFile, tarfile.TarError, zlib.error,
)  # fmt: skip
"""Exceptions that reading a damaged file raises."""
_PREFIX_BY_SPLIT = {"train": "train", "validation": "t10k"}


def _keras_cache() -> Path:
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "datasets"


def find_mnist(folder: Path | None) -> Dataset:
    """Return MNIST, read from its four original files (with or without .gz), or from ``mnist.npz``.

    Args:
        folder: Folder of the files; None: Keras's cache.

    Raises:
        HpcrunError: The files are missing or damaged.
    """
    data_folder = folder or _keras_cache()
    archive = data_folder / "mnist.npz"
    if _has_idx_files(data_folder):
        return _make_dataset(
            _DIGITS, (28, 28, 1), data_folder, lambda split: _read_idx(data_folder, _PREFIX_BY_SPLIT[split])
        )
    if archive.is_file():
        return _make_dataset(_DIGITS, (28, 28, 1), archive, lambda split: _read_npz(archive, split))
    raise _missing_error(
        "MNIST", folder, "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
        "t10k-labels-idx1-ubyte.gz of https://yann.lecun.com/exdb/mnist, or mnist.npz of Keras",
    )  # fmt: skip


def find_cifar10(folder: Path | None) -> Dataset:
    """Return CIFAR-10, read from its binary or Python version, as an archive or unpacked.

    Args:
        folder: Folder of the archive, or of the files, which may be up to two levels below it; None: Keras's cache.

    Raises:
        HpcrunError: The data are missing or damaged.
    """
    data_folder = folder or _keras_cache()
    for name, read in _CIFAR_BATCHES.items():
        for batch_file in _find_batch_files(data_folder, name):
            files = {
                entry.name.removesuffix(".bin"): entry.read_bytes
                for entry in batch_file.parent.iterdir()
                if entry.is_file()
            }
            return _make_cifar10(files, read, batch_file.parent)
    for name, read in _CIFAR_ARCHIVES.items():
        if (archive := data_folder / name).is_file():
            return _make_cifar10(_unpack(archive), read, archive)
    raise _missing_error(
        "CIFAR-10",
        folder,
        "cifar-10-binary.tar.gz or cifar-10-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html",
    )


def select_reader(folder: Path) -> Callable[[Path], Dataset] | None:
    """Return `find_mnist` or `find_cifar10` if a folder has the original files of MNIST or CIFAR-10; else None.

    Raises:
        HpcrunError: The folder has both.
    """
    has_cifar10 = any((folder / name).is_file() for name in _CIFAR_ARCHIVES) or any(
        True for name in _CIFAR_BATCHES for _ in _find_batch_files(folder, name)
    )
    has_mnist = _has_idx_files(folder) or (folder / "mnist.npz").is_file()
    if has_mnist and has_cifar10:
        raise HpcrunError(
            f"{folder} has both MNIST and CIFAR-10",
            hint=f"hpcrun data cifar10 RECORDS --from {folder} makes shards of one",
        )
    return find_cifar10 if has_cifar10 else find_mnist if has_mnist else None


def _find_batch_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files of a name in a folder and up to two levels below it, where Keras unpacks an archive."""
    for pattern in (name, f"*/{name}", f"*/*/{name}"):
        yield from sorted(folder.glob(pattern))


def _missing_error(name: str, folder: Path | None, files: str) -> HpcrunError:
    return HpcrunError(
        f"{name} is not in {folder or _keras_cache()}",
        hint=f"put {files} there" + ("" if folder else ", or give their folder with --from"),
    )


def _damage_error(path: Path, error: Exception) -> HpcrunError:
    return HpcrunError(f"{path}: damaged, or other data: {error}", hint="copy it again")


def _make_dataset(
    labels: tuple[str, ...], shape: tuple[int, int, int], source_path: Path, read: Callable[[str], Samples]
) -> Dataset:
    """Make a data set from the samples that `read` returns for each split, and shuffle the training images."""
    splits = {}
    for split in _PREFIX_BY_SPLIT:
        try:
            samples = list(read(split))
        except _READ_ERRORS as error:
            raise _damage_error(source_path, error) from None
        splits[split] = [
            ImageSource(
                str(source_path), f"{split}-{number:05}", label + 1, labels[label], number, len(pixels), pixels, shape
            )
            for number, (pixels, label) in enumerate(samples)
        ]
    return Dataset({**splits, "train": shuffle(splits["train"])}, labels)


_IDX_KINDS = "images-idx3-ubyte", "labels-idx1-ubyte"
_IDX_HEADERS = struct.Struct(">4I"), struct.Struct(">2I")
"""Headers of the files of `_IDX_KINDS`: a number for the type, and the sizes of the array."""
_IDX_TYPES = 2051, 2049


def _has_idx_files(folder: Path) -> bool:
    """Return whether a folder has the four original files of MNIST."""
    return all(
        _find_idx_file(folder, f"{prefix}-{kind}") for prefix in _PREFIX_BY_SPLIT.values() for kind in _IDX_KINDS
    )


def _find_idx_file(folder: Path, name: str) -> Path | None:
    """Return the file with this name, or with suffix .gz, or with ``.idx`` for ``-idx`` as on some download sites."""
    names = [name, f"{name}.gz", name.replace("-idx", ".idx")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_idx(folder: Path, prefix: str) -> Samples:
    contents = []
    for kind, header, type_number in zip(_IDX_KINDS, _IDX_HEADERS, _IDX_TYPES, strict=True):
        file = _find_idx_file(folder, f"{prefix}-{kind}") or folder / f"{prefix}-{kind}"
        try:
            contents.append(_read_idx_file(file, header, type_number))
        except _READ_ERRORS as error:
            raise _damage_error(file, error) from None
    yield from _split_samples(contents[0], contents[1], 28 * 28)


def _read_idx_file(file: Path, header: struct.Struct, type_number: int) -> bytes:
    data = file.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if len(data) < header.size:
        raise ValueError(f"it has only {len(data)} bytes")
    found_type, *sizes = header.unpack_from(data)
    if found_type != type_number or len(data) - header.size != math.prod(sizes):
        shape = " x ".join(map(str, sizes))
        raise ValueError(
            f"its type is {found_type}, not {type_number}"
            if found_type != type_number
            else f"it has {len(data) - header.size} of {shape} bytes"
        )
    return data[header.size :]


def _split_samples(pixels: bytes, labels: bytes, size: int) -> Samples:
    if len(pixels) != size * len(labels) or not labels:
        raise ValueError(f"{len(pixels)} bytes of pixels are not {len(labels)} images of {size}")
    for number, label in enumerate(labels):
        if label > 9:
            raise ValueError(f"label {label} of image {number} is not one of 0 to 9")
        yield pixels[number * size : (number + 1) * size], label


def _read_npz(archive: Path, split: str) -> Samples:
    suffix = "train" if split == "train" else "test"
    with zipfile.ZipFile(archive) as file:
        yield from _split_samples(
            _read_npy(file.read(f"x_{suffix}.npy")), _read_npy(file.read(f"y_{suffix}.npy")), 28 * 28
        )


def _read_npy(content: bytes) -> bytes:
    """Return the data of an array of uint8 in NumPy's format, version 1 (numpy.lib.format)."""
    header_end = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:header_end].decode("latin-1"))
    if content[:6] != b"\x93NUMPY" or header["descr"] != "|u1" or header["fortran_order"]:
        raise ValueError(f"not an array of uint8 in C order: {header['descr']}")
    return content[header_end:]


def _make_cifar10(
    files: dict[str, Callable[[], bytes]], read: Callable[[bytes], tuple[bytes, bytes]], source_path: Path
) -> Dataset:
    names = {"train": [f"data_batch_{k}" for k in range(1, 6)], "validation": ["test_batch"]}

    def samples(split: str) -> Samples:
        for name in names[split]:
            if name not in files:
                raise HpcrunError(f"{source_path} lacks {name}", hint="copy it again")
            try:
                for planes, label in _split_samples(*read(files[name]()), 3 * _PLANE_BYTES):
                    yield _interleave(planes), label
            except _READ_ERRORS as error:
                raise _damage_error(source_path / name, error) from None

    return _make_dataset(_CIFAR_CLASSES, (_SIDE_PIXELS, _SIDE_PIXELS, 3), source_path, samples)


def _interleave(planes: bytes) -> bytes:
    """Transpose pixels from (3, height, width) to (height, width, 3)."""
    colours = [
        Image.frombytes("L", (_SIDE_PIXELS, _SIDE_PIXELS), planes[k * _PLANE_BYTES : (k + 1) * _PLANE_BYTES])
        for k in range(3)
    ]
    return Image.merge("RGB", colours).tobytes()


def _unpack(archive: Path) -> dict[str, Callable[[], bytes]]:
    try:
        with tarfile.open(archive) as tar:
            files = {m.name.rpartition("/")[2].removesuffix(".bin"): tar.extractfile(m) for m in tar if m.isfile()}
            contents = {name: stream.read() for name, stream in files.items() if stream}
    except _READ_ERRORS as error:
        raise _damage_error(archive, error) from None
    return {name: partial(bytes, content) for name, content in contents.items()}


def _read_binary(content: bytes) -> tuple[bytes, bytes]:
    """Return the pixels and labels of a file of the binary version, in which a label precedes each image."""
    size = 1 + 3 * _PLANE_BYTES
    rows = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(row[1:] for row in rows), bytes(row[0] for row in rows)


class _PickledArray:
    """A NumPy array in a pickle file, loaded without NumPy."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.data = state[-1]


class _Unpickler(pickle.Unpickler):
    """Unpickler that allows only dictionaries, lists and arrays: other pickled objects could run arbitrary code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in {"_reconstruct", "ndarray", "dtype"}:
            return lambda *_: _PickledArray()
        if module.startswith("numpy") and name == "_frombuffer":  # protocol 5
            return lambda data, *_: _PickledArray(bytes(data))
        if (module, name) == ("_codecs", "encode"):  # bytes in protocols 0 to 2, written by Python 3
            return lambda text, _encoding: text.encode("latin-1")
        raise pickle.UnpicklingError(f"unexpected {module}.{name} in a file of CIFAR-10")


def _read_python(content: bytes) -> tuple[bytes, bytes]:
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        fields = {name if isinstance(name, bytes) else name.encode(): value for name, value in batch.items()}
        return fields[b"data"].data, bytes(fields[b"labels"])
    except Exception as error:  # noqa: BLE001  (a damaged pickle may raise any exception)
        raise ValueError(error) from None


_CIFAR_BATCHES = {"data_batch_1.bin": _read_binary, "data_batch_1": _read_python}
_CIFAR_ARCHIVES = {
    "cifar-10-binary.tar.gz": _read_binary,
    "cifar-10-python.tar.gz": _read_python,
    "cifar-10-batches-py.tar.gz": _read_python,
}
"""Names of the first training file and of the archive of each version of CIFAR-10, and the function that reads it."""
