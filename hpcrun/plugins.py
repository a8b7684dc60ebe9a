"""Parts of hpcrun that installed packages can add: launchers and schedulers, found by entry points."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Plugin = TypeVar("Plugin")


@dataclass(frozen=True)
class Registry(Generic[Plugin]):
    """The plugins of one kind: hpcrun's own, and those of installed packages.

    Attributes:
        kind: Its name. hpcrun's own are in the package ``hpcrun.KINDs``, each in a module of its name, as the
            constant ``KIND``; entry points are in a group of the package's name.
        base: The class of the plugins.
        built_in: The names of hpcrun's own.
        alternative: What else a site file may contain instead of a name, for messages.
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
        from importlib.metadata import entry_points  # slow, and the names in most site files are built in

        return entry_points(group=self.group)

    def list_names(self) -> list[str]:
        """Return all names: hpcrun's own, then those of installed packages."""
        return [*self.built_in, *sorted(self._entry_points().names - set(self.built_in))]

    def require(self, name: str) -> str:
        """Check that a plugin exists, and return its name.

        Raises:
            ValueError: No plugin has this name; the message lists the known ones.
        """
        if name not in self.built_in and name not in (known := self.list_names()):
            like = closest_match(name, known)
            suggestion = f"did you mean {like}? " if like else ""
            raise ValueError(f"unknown {self.kind}; {suggestion}known here: {', '.join(known)}{self.alternative}")
        return name

    def load(self, name: str) -> Plugin:
        """Load the plugin of a name.

        Raises:
            HpcrunError: No plugin has this name, or its package cannot be imported.
        """
        if name in self.built_in:
            built_in: Plugin = getattr(import_module(f"{self.group}.{name}"), self.kind.upper())
            return built_in
        for entry in self._entry_points().select(name=name):
            try:
                found = entry.load()
            except Exception as error:
                what = f"{self.kind} {name}: {entry.value} cannot be imported: {error}"
                hint = f"reinstall or remove the package {entry.dist and entry.dist.name}"
                raise HpcrunError(what, hint=hint) from error
            if isinstance(found, self.base) and getattr(found, "name", "") == name:
                return cast("Plugin", found)
            base = f"{self.base.__module__}.{self.base.__name__}"
            what = f"{self.kind} {name}: {entry.value} is not an {base} of that name"
            raise HpcrunError(what, hint=f"correct the entry point of the package {entry.dist and entry.dist.name}")
        raise HpcrunError(f"unknown {self.kind} {name!r}", hint=f"one of {', '.join(self.list_names())}")
