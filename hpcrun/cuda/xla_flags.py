"""The flag in XLA_FLAGS that names a CUDA root, parsed and quoted as XLA does (xla/parse_flags_from_env.cc)."""

from __future__ import annotations

import re
from pathlib import Path

DATA_DIR = "--xla_gpu_cuda_data_dir"
_FLAG = re.compile(r"""(-[-\w]*)(?:=(?:"((?:\\.|[^"\\])*)"?|'([^']*)'?|(\S*)))?\S*""", re.ASCII | re.DOTALL)


def names_flag_file(flags: str) -> bool:
    """Return whether XLA_FLAGS is the name of a file with flags."""
    return bool(flags.strip()) and not flags.lstrip().startswith("-")


def parse_data_dir(flags: str) -> Path | None:
    """Return the CUDA root in XLA_FLAGS, the last one of several; None without one.

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
    """Return the flag for a CUDA root, with the value in double quotes where it has blanks or quotes."""
    text = str(root)
    if re.search(r"\s|^['\"]", text):
        escaped = re.sub(r'([\\"])', r"\\\1", text)
        text = f'"{escaped}"'
    return f"{DATA_DIR}={text}"
