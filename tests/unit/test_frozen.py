"""`frozen` makes the same classes as the standard library's `dataclass(frozen=True)`."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from hpcrun.frozen import FREQUENT, frozen


@frozen
class Point:
    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list, compare=False, repr=False)


@frozen(kw_only=True)
class Named(Point):
    name: str


@frozen
class Empty:
    pass


@dataclass(frozen=True)
class Standard:
    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list, compare=False, repr=False)


def test_instances_with_equal_fields_are_equal_and_have_one_hash():
    assert Point(1) == Point(1, 2, ["ignored"])
    assert len({Point(1), Point(1), Point(3), Empty(), Empty()}) == 3


def test_instances_of_other_classes_differ():
    assert Point(1) != Named(1, name="a")
    assert Named(1, name="a") != Named(1, name="b")


def test_an_instance_looks_like_one_of_the_standard_library():
    assert repr(Point(1)) == repr(Standard(1)).replace("Standard", "Point") == "Point(x=1, y=2)"
    assert repr(Named(1, name="a")) == "Named(x=1, y=2, name='a')"
    assert asdict(replace(Named(1, name="a"), y=5)) == {"x": 1, "y": 5, "notes": [], "name": "a"}


def test_fields_that_are_keyword_only_are_refused_by_position():
    values: tuple[Any, ...] = (1, 2, [], "b")
    with pytest.raises(TypeError, match="takes from 2 to 4 positional arguments"):
        Named(*values, name="a")


def test_methods_of_the_class_are_kept():
    @frozen
    class Own:
        x: int

        def __repr__(self):
            return "own"

    assert repr(Own(1)) == "own"


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {"x": 2}), ((1, 2, [], 4), {}), ((1,), {"z": 2}), ((1, 2, []), {"y": 3})]
)
def test_invalid_arguments_raise_the_error_of_the_standard_library(args, kwargs):
    with pytest.raises(TypeError) as expected:
        Standard(*args, **kwargs)
    with pytest.raises(TypeError) as error:
        Point(*args, **kwargs)
    assert (
        str(error.value).replace("Point", "Standard").partition("__init__()")[2]
        == str(expected.value).partition("__init__()")[2]
    )


def test_each_instance_is_made_alike_however_many_there_are():
    @frozen
    class Checked(Point):
        total: int = 0

        def __post_init__(self):
            object.__setattr__(self, "total", self.x + self.y)

    instances = [Checked(number) for number in range(2 * FREQUENT)]
    assert [each.total for each in instances] == [number + 2 for number in range(2 * FREQUENT)]
    assert len({id(each.notes) for each in instances}) == 2 * FREQUENT


def test_values_are_not_compared_with_anything():
    class Incomparable:  # noqa: PLW1641
        def __eq__(self, other):
            raise TypeError("an array of records")

    value: Any = Incomparable()
    assert Point(value).x is value
