"""What templates may do: a rendered script may hold anything, but rendering it does nothing.

Jinja's sandbox keeps templates from Python's inner parts. It lets them call whatever else they find, such as a path's
`unlink`; so here is what they may call.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jinja2 import FileSystemBytecodeCache, runtime, utils
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

if TYPE_CHECKING:
    from jinja2.bccache import Bucket

_VALUES = (str, bool, int, float, list, tuple, dict)
"""Types whose methods have no effect; those that would change a list or dict, Jinja's sandbox refuses."""

_HELPERS = (utils.Cycler, utils.Joiner)
_OBJECTS = (runtime.Macro, runtime.BlockReference, runtime.LoopContext, runtime.Undefined, utils.Joiner)
"""Jinja's own. An undefined one, when it is called, tells that it is."""

_CALLABLE = (safe_range, dict, utils.Namespace, *_HELPERS)


class Environment(ImmutableSandboxedEnvironment):
    """An environment whose templates can call macros, blocks, filters, and methods of plain values; nothing else."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may look at an attribute: never at one with an underscore in front."""
        return not attr.startswith("_") and super().is_safe_attribute(obj, attr, value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call something."""
        if isinstance(obj, _OBJECTS) or any(obj is one for one in _CALLABLE):
            return True
        owner = type(getattr(obj, "__self__", None))
        return owner in _HELPERS or (owner in _VALUES and obj.__name__ not in {"format", "format_map"})


class Compiled(FileSystemBytecodeCache):
    """Compiled templates of this user. They are code: a file that somebody else could have written is not loaded."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "sandboxed-%s")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a template's code where the file is this user's alone."""
        name = self._get_cache_filename(bucket)
        with suppress(OSError, ValueError, EOFError, TypeError):
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(opened, "rb") as file:
                status = os.fstat(opened)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                    bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template's code; a full disk, or a folder of somebody else's, costs time and no more."""
        with suppress(OSError):
            super().dump_bytecode(bucket)
