"""Removal of TensorFlow's start-up messages, which no environment variable suppresses."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DROPPED_PREFIXES = (b"WARNING: All log messages before absl::InitializeLog()", b"I0000 00:00:")


@contextmanager
def drop_startup_messages() -> Iterator[None]:
    """Drop TensorFlow's start-up messages from stderr inside the block; print all other messages at the end."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            captured.seek(0)
            for line in captured:
                if not line.startswith(DROPPED_PREFIXES):
                    os.write(2, line)
