"""A sandbox for templates, because rendering a template must have no side effects.

Jinja's sandbox blocks access to Python's internals, but lets templates call other methods, such as a path's `unlink`.
This sandbox allows only calls of listed functions and types.
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

_VALUE_TYPES = (str, bool, int, float, list, tuple, dict)
"""Types whose methods have no side effects; Jinja's sandbox blocks methods that change a list or dict."""

_HELPER_TYPES = (utils.Cycler, utils.Joiner)
_CALLABLE_TYPES = (runtime.Macro, runtime.BlockReference, runtime.LoopContext, runtime.Undefined, utils.Joiner)
"""Callable types of Jinja. Calling an undefined value raises an error."""

_CALLABLES = (safe_range, dict, utils.Namespace, *_HELPER_TYPES)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A Jinja environment whose templates can call only macros, blocks, filters, and methods of simple types."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may read an attribute: never one that begins with an underscore."""
        return not attr.startswith("_") and super().is_safe_attribute(obj, attr, value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call an object."""
        if isinstance(obj, _CALLABLE_TYPES) or any(obj is one for one in _CALLABLES):
            return True
        owner = type(getattr(obj, "__self__", None))
        return owner in _HELPER_TYPES or (owner in _VALUE_TYPES and obj.__name__ not in {"format", "format_map"})


class PrivateBytecodeCache(FileSystemBytecodeCache):
    """A cache of compiled templates, which does not load code that other users could have written."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "sandboxed-%s")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a template's code if only this user can access the file."""
        name = self._get_cache_filename(bucket)
        with suppress(OSError, ValueError, EOFError, TypeError):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                file_stat = os.fstat(descriptor)
                if (
                    stat.S_ISREG(file_stat.st_mode)
                    and file_stat.st_uid == os.geteuid()
                    and not file_stat.st_mode & 0o077
                ):
                    bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store a template's code; errors, such as a full disk, are ignored."""
        with suppress(OSError):
            super().dump_bytecode(bucket)
