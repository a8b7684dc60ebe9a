"""Plugins: launchers and schedulers, which installed packages can add by entry points."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Plugin = TypeVar("Plugin")


@frozen
class Registry(Generic[Plugin]):
    """The plugins of one kind: built-in plugins, and plugins of installed packages.

    Attributes:
        kind: The kind of plugin, such as ``launcher``. A built-in plugin is a constant in its module, such as
            ``LAUNCHER`` in ``hpcrun.launchers.srun``. Packages use the entry point group ``hpcrun.launchers``.
        base: The class of the plugins.
        built_in: The names of the built-in plugins.
        alternative: Text for messages: the setting that a site file may contain instead of a name.
    """

    kind: str
    base: type
    built_in: tuple[str, ...]
    alternative: str = ""

    @property
    def group(self) -> str:
        """The group of entry points."""
        return f"hpcrun.{self.kind}s"

    def _entry_points(self) -> EntryPoints:
        from importlib.metadata import (
            entry_points,
        )  # this import is slow, and most site files name only built-in plugins

        return entry_points(group=self.group)

    def list_names(self) -> list[str]:
        """Return the names of all plugins: built-in plugins, then plugins of installed packages."""
        return [*self.built_in, *sorted(self._entry_points().names - set(self.built_in))]

    def require(self, name: str) -> str:
        """Check that a plugin exists, and return its name.

        Raises:
            ValueError: No plugin has this name; the message lists the known names.
        """
        if name not in self.built_in and name not in (known_names := self.list_names()):
            closest_name = closest_match(name, known_names)
            suggestion = f"did you mean {closest_name}? " if closest_name else ""
            raise ValueError(f"unknown {self.kind}; {suggestion}known here: {', '.join(known_names)}{self.alternative}")
        return name

    def load(self, name: str) -> Plugin:
        """Load the plugin with a name.

        Raises:
            HpcrunError: No plugin has this name, or its package cannot be imported.
        """
        if name in self.built_in:
            built_in: Plugin = getattr(import_module(f"{self.group}.{name}"), self.kind.upper())
            return built_in
        for entry in self._entry_points().select(name=name):
            try:
                plugin = entry.load()
            except Exception as error:
                message = f"{self.kind} {name}: {entry.value} cannot be imported: {error}"
                hint = f"reinstall or remove the package {entry.dist and entry.dist.name}"
                raise HpcrunError(message, hint=hint) from error
            if isinstance(plugin, self.base) and getattr(plugin, "name", "") == name:
                return cast("Plugin", plugin)
            base_name = f"{self.base.__module__}.{self.base.__name__}"
            message = f"{self.kind} {name}: {entry.value} is not an {base_name} of that name"
            raise HpcrunError(message, hint=f"correct the entry point of the package {entry.dist and entry.dist.name}")
        raise HpcrunError(f"unknown {self.kind} {name!r}", hint=f"one of {', '.join(self.list_names())}")
