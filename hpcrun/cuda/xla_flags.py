"""Parsing and formatting of the flag in XLA_FLAGS that names a CUDA root, as in xla/parse_flags_from_env.cc."""

from __future__ import annotations

import re
from pathlib import Path

DATA_DIR = "--xla_gpu_cuda_data_dir"
_FLAG = re.compile(r"""(-[-\w]*)(?:=(?:"((?:\\.|[^"\\])*)"?|'([^']*)'?|(\S*)))?\S*""", re.ASCII | re.DOTALL)


def names_flag_file(flags: str) -> bool:
    """Return whether the value of XLA_FLAGS is the name of a file with flags."""
    return bool(flags.strip()) and not flags.lstrip().startswith("-")


def parse_data_dir(flags: str) -> Path | None:
    """Return the CUDA root that XLA_FLAGS names; the last flag counts; None if no flag names a root.

    Args:
        flags: Flags separated by blanks; values may be quoted, with backslash escapes in double quotes.
    """
    if names_flag_file(flags):
        return None
    root = ""
    for name, double, single, plain in _FLAG.findall(flags):
        if name == DATA_DIR:
            root = re.sub(r"\\(.)", r"\1", double, flags=re.DOTALL) or single or plain
    return Path(root) if root else None


def format_data_dir(root: Path) -> str:
    """Format the flag for a CUDA root; the value is in double quotes if it contains blanks or begins with a quote."""
    value = str(root)
    if re.search(r"\s|^['\"]", value):
        escaped_value = re.sub(r'([\\"])', r"\\\1", value)
        value = f'"{escaped_value}"'
    return f"{DATA_DIR}={value}"
