"""Checks of the fields of dataclasses with values from users: resources and site files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FieldError(ValueError):
    """An invalid value of a field.

    Args:
        field: The field's name.
        value: The invalid value.
        reason: A text about the valid values.
        parents: The names of the enclosing fields, outermost first.

    Attributes:
        others: The errors about other fields of the same object.
    """

    others: tuple[FieldError, ...] = ()

    def __init__(self, field: str, value: object, reason: str, parents: tuple[str, ...] = ()) -> None:
        super().__init__(f"{field} = {value!r}: {reason}")
        self.field, self.value, self.reason, self.parents = field, value, reason, parents


def check_fields(instance: object, checks: Mapping[str, Callable[[Any], object]]) -> None:
    """Check the fields of a dataclass that are set: the value, each element of a tuple, or each key of a dict.

    Raises:
        FieldError: A check failed; the attribute ``others`` of the error contains the errors of the other failed
            checks.
    """
    faults = []
    for field, check in checks.items():
        value = getattr(instance, field)
        for element in value if isinstance(value, tuple | dict) else (value,):
            try:
                if element is not None:
                    check(element)
            except ValueError as error:
                faults.append(FieldError(field, element, str(error)))
    if faults:
        faults[0].others = tuple(faults[1:])
        raise faults[0]


def require_positive(count: int) -> None:
    """Check that a count is at least 1."""
    if not isinstance(count, int) or count < 1:
        raise ValueError("must be a whole number, at least 1")


def require_one_line(text: str) -> None:
    """Check that a text is one line of printable characters."""
    if not isinstance(text, str) or not text or not text.isprintable():
        raise ValueError("must be one line of printable text")


def require_names(text: str) -> None:
    """Check that a text is one line with at least one name; commas separate names."""
    require_one_line(text)
    if not any(name.strip() for name in text.split(",")):
        raise ValueError("must contain a name")


def require_not_negative(count: int) -> None:
    """Check that a count is at least 0."""
    if not isinstance(count, int) or count < 0:
        raise ValueError("must be a whole number, at least 0")
