"""The flag of XLA_FLAGS that names a CUDA root, read and written as XLA does (xla/parse_flags_from_env.cc)."""

from __future__ import annotations

import re
from pathlib import Path

DATA_DIR = "--xla_gpu_cuda_data_dir"
_FLAG = re.compile(r"""(-[-\w]*)(?:=(?:"((?:\\.|[^"\\])*)"?|'([^']*)'?|(\S*)))?\S*""", re.ASCII | re.DOTALL)


def of_a_file(flags: str) -> bool:
    """Return whether XLA_FLAGS name a file of flags, and are none themselves."""
    return bool(flags.strip()) and not flags.lstrip().startswith("-")


def data_dir(flags: str) -> Path | None:
    """Return the CUDA root that XLA_FLAGS name: of several the last; None where there is none.

    Args:
        flags: Flags between blanks; a value may stand in quotes, and backslashes count in double ones.
    """
    if of_a_file(flags):
        return None
    root = ""
    for name, double, single, plain in _FLAG.findall(flags):
        if name == DATA_DIR:
            root = re.sub(r"\\(.)", r"\1", double, flags=re.DOTALL) or single or plain
    return Path(root) if root else None


def naming(root: Path) -> str:
    """Return the flag that names a CUDA root, in double quotes where blanks or quotes would end its value."""
    text = str(root)
    if re.search(r"\s|^['\"]", text):
        escaped = re.sub(r'([\\"])', r"\\\1", text)
        text = f'"{escaped}"'
    return f"{DATA_DIR}={text}"
