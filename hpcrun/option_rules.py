"""Rules about the values of a workload's options: choices, limits, and dependencies between options."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError, closest_match, pluralize
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@frozen
class Rule:
    """A rule about the values of an option, from the key ``requires`` of its table.

    ``{ when = "arch=inception_v3", min = 75 }`` sets ``min``, ``max`` or ``choices`` of the option if a different
    option has a certain value (``"arch=vgg16|vgg19"``: one of these values; flags are ``true`` or ``false``).

    Other rules apply if the option with the rule is given: ``{ option = "fine-tune" }`` requires ``--fine-tune``, too;
    ``{ job = "run" }`` requires a job as the value of ``--run``; ``{ excludes = "fine-tune" }`` refuses both options;
    ``{ multiple_of = "heads" }`` requires a multiple of the value of ``--heads``, if that is given, too.

    ``{ when = "strategy=one", max_ranks = 1 }`` limits the ranks of the job. ``{ divides_ranks = true }``, for the
    number of ranks that train one replica of the model, requires a number of ranks that is a multiple of the value;
    ``{ multiple_of_ranks = true }`` requires a value that is a multiple of the number of ranks. For a number of ranks
    with a role of their own, ``{ other_ranks = 2 }`` requires at least two more.

    Attributes:
        when: Condition, as OPTION=VALUE, under which the rule applies; empty: always.
        min: The smallest valid value.
        max: The largest valid value.
        choices: The valid values.
        option: The option that is required if the option with the rule is given.
        job: The option that must name a job, not the file of a Keras model, if the option with the rule is given.
        excludes: The option that must not be given with the option with the rule.
        multiple_of: The option of whose value the value must be a multiple.
        min_ranks: The smallest valid number of ranks.
        max_ranks: The largest valid number of ranks.
        divides_ranks: Whether the value must divide the number of ranks.
        multiple_of_ranks: Whether the number of ranks must divide the value.
        other_ranks: The smallest number of ranks besides those that the value counts.
        defaults: The defaults of all options.
    """

    defaults: Mapping[str, Any]
    when: str = ""
    min: float | None = None
    max: float | None = None
    choices: tuple[Any, ...] | None = None
    option: str = ""
    job: str = ""
    excludes: str = ""
    multiple_of: str = ""
    min_ranks: int | None = None
    max_ranks: int | None = None
    divides_ranks: bool = False
    multiple_of_ranks: bool = False
    other_ranks: int | None = None

    def require(self, name: str, option: str, values: Mapping[str, Any]) -> None:
        """Refuse values that break the rule.

        Args:
            name: The workload's name.
            option: The option to which the rule belongs.
            values: The values of all options.

        Raises:
            HpcrunError: A value breaks the rule.
        """
        value = values[option]
        if value is None or not self.applies(values):
            return
        condition = self._condition(values)
        hint = f"hpcrun workload show {name} lists its options"
        require_in_range(name, option, {"min": self.min, "max": self.max}, value, condition)
        if self.choices is not None and isinstance(value, bool) and value not in self.choices:
            raise HpcrunError(f"{name}: {_format_option(option, value)} is impossible{condition}", hint=hint)
        require_choice(name, option, self.choices, value, condition)
        if value == self.defaults[option]:
            return
        if self.job and str(values[self.job]).endswith((".keras", ".h5")):
            message = f"{name}: {_format_option(option, value)} needs a job, and --{self.job} is a model"
            raise HpcrunError(message, hint=f"--{self.job} JOB: last, a job id, a name or a run directory")
        if self.excludes and values[self.excludes] != self.defaults[self.excludes]:
            message = f"{name}: {_format_option(option, value)} has no effect with --{self.excludes}"
            raise HpcrunError(message, hint=f"omit --{option}, or --{self.excludes}")
        if self.multiple_of and (factor := values[self.multiple_of]) and value % factor:
            message = f"{name}: {_format_option(option, value)} is not a multiple of --{self.multiple_of}={factor}"
            multiple = -(-value // factor) * factor
            raise HpcrunError(message, hint=f"--{option}={multiple}, or another --{self.multiple_of}")
        if self.option and values[self.option] == self.defaults[self.option]:
            message = f"{name}: {_format_option(option, value)} needs --{self.option}"
            raise HpcrunError(message, hint=f"give --{self.option}, too, or omit --{option}")

    @property
    def limits_ranks(self) -> bool:
        """Whether the rule limits the number of ranks."""
        return any((self.min_ranks, self.max_ranks, self.divides_ranks, self.multiple_of_ranks, self.other_ranks))

    def require_ranks(self, name: str, option: str, values: Mapping[str, Any], ranks: int) -> None:
        """Refuse a number of ranks that breaks the rule.

        Args:
            name: The workload's name.
            option: The option to which the rule belongs.
            values: The values of all options.
            ranks: The number of ranks of the job.

        Raises:
            HpcrunError: The number of ranks breaks the rule.
        """
        if not self.applies(values):
            return
        value = values[option]
        if self.divides_ranks and value and ranks % value:
            raise HpcrunError(
                f"{name}: {_format_option(option, value)} does not divide the ranks of the job, {ranks}",
                hint=f"--ntasks {-(-ranks // value) * value}, before --, or another --{option}",
            )
        if self.multiple_of_ranks and value and value % ranks:
            message = f"{name}: {_format_option(option, value)} is not a multiple of the ranks of the job, {ranks}"
            raise HpcrunError(
                message + self._condition(values),
                hint=f"-- --{option}={-(-value // ranks) * ranks}, or another number of ranks",
            )
        if self.other_ranks and value and ranks < (needed := value + self.other_ranks):
            message = f"{name}: {_format_option(option, value)}{self._condition(values)} needs {needed} ranks"
            raise HpcrunError(
                f"{message}, {self.other_ranks} of them for other roles, and the job has {ranks}",
                hint=f"--ntasks {needed}, before --, or a smaller --{option}",
            )
        low, high = self.min_ranks or 1, self.max_ranks or ranks
        if low <= ranks <= high:
            return
        other, count, limit = self.when.partition("=")[0], *((high, "at most") if ranks > high else (low, "at least"))
        message = f"{name}: {_format_option(other, values[other])} runs on {limit} {pluralize(count, 'rank')}"
        line = f"--ntasks {count}" if count > 1 else "--nodes 1 --ntasks-per-node 1"
        raise HpcrunError(f"{message}, and the job has {ranks}", hint=f"{line}, before --")

    def _condition(self, values: Mapping[str, Any]) -> str:
        """Return the condition of the rule for a message; empty if the rule has none."""
        other = self.when.partition("=")[0]
        return f" with {_format_option(other, values[other])}" if other else ""

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition of the rule is met.

        Args:
            values: The values of all options.
        """
        other, _, wanted = self.when.partition("=")
        return not other or format_value(values[other]) in wanted.split("|")


def read_rules(name: str, option: str, table: Mapping[str, Mapping[str, Any]]) -> list[Rule]:
    """Read the rules of an option.

    Args:
        name: The workload's name, for messages.
        option: The name of the option.
        table: The declarations of all options, by name.

    Raises:
        HpcrunError: A rule has an unknown key, or names an option that does not exist.
    """
    defaults = {each: declaration.get("default") for each, declaration in table.items()}
    rules = []
    for given in table[option].get("requires", []):
        try:
            rule = Rule(defaults, **given)
        except TypeError:
            message = f"{name}: its option --{option} has an invalid rule: {given!r}"
            raise HpcrunError(message, hint='requires = [{ when = "OPTION=VALUE", min = 75 }]') from None
        for other in filter(
            None, (rule.when.partition("=")[0], rule.option, rule.job, rule.excludes, rule.multiple_of)
        ):
            if other not in table:
                closest_name = closest_match(other, list(table))
                message = f"{name}: a rule of its option --{option} names --{other}, which it does not have"
                raise HpcrunError(
                    message, hint=f"did you mean {closest_name}?" if closest_name else "name one of its options"
                )
        rules.append(rule)
    return rules


def format_value(value: Any) -> str:
    """Format a value as in a condition ``OPTION=VALUE`` of ``workload.toml``, where flags are ``true`` or ``false``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_option(option: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option}={value}"


def require_in_range(name: str, option: str, declaration: Mapping[str, Any], value: Any, condition: str = "") -> None:
    """Refuse a number outside the limits of its option.

    Args:
        name: The workload's name.
        option: The option.
        declaration: The declaration of the option, with its limits ``min`` and ``max``.
        value: The value.
        condition: The condition under which the limits apply, for the message.

    Raises:
        HpcrunError: The number is too small or too large, NaN or infinite.
    """
    minimum, maximum = declaration.get("min"), declaration.get("max")
    if isinstance(value, float) and not isfinite(value) and (minimum, maximum) != (None, None):
        message = f"{name}: --{option}={value}: must be a finite number"
        raise HpcrunError(message, hint=f"hpcrun workload show {name} lists its options")
    if value is None or not ((minimum is not None and value < minimum) or (maximum is not None and value > maximum)):
        return
    limits = {"at least": minimum, "at most": maximum}
    valid_range = " and ".join(f"{words} {limit}" for words, limit in limits.items() if limit is not None)
    raise HpcrunError(
        f"{name}: --{option}={value}: must be {valid_range}{condition}",
        hint=f"hpcrun workload show {name} lists its options",
    )


def require_choice(
    name: str,
    option: str,
    choices: Sequence[Any] | None,
    value: Any,
    condition: str = "",
    *,
    hints: Mapping[str, str] | None = None,
) -> None:
    """Refuse a value that is not one of the choices of its option.

    Args:
        name: The workload's name.
        option: The option.
        choices: The valid values; None: any value.
        value: The value.
        condition: The condition under which the choices apply, for the message.
        hints: Hints for certain invalid values, by value.

    Raises:
        HpcrunError: The value is not one of the choices.
    """
    if value is None or choices is None or value in choices:
        return
    closest_choice = closest_match(str(value), list(map(str, choices)))
    hint = f"did you mean {closest_choice}?" if closest_choice else f"hpcrun workload show {name} lists its options"
    raise HpcrunError(
        f"{name}: --{option}={value}: must be one of {', '.join(map(str, choices))}{condition}",
        hint=(hints or {}).get(str(value), hint),
    )


def require_share(name: str, option: str, minimum: int, value: int, ranks: int, *, group: int = 1) -> None:
    """Refuse a value if the share of each rank, or group of ranks, would be below the minimum.

    Args:
        name: The workload's name.
        option: The option, whose value all ranks share.
        minimum: The smallest share that a rank needs.
        value: The value of the option.
        ranks: The number of ranks of the job.
        group: The number of ranks that get the same share, because they train one replica of the model.

    Raises:
        HpcrunError: The value is too small.
    """
    shares = ranks // group
    if value >= minimum * shares:
        return
    takers = "all ranks" if group == 1 else f"groups of {group} ranks"
    message = f"{name}: --{option}={value} is divided among {takers}, and the job has {shares}"
    smaller = f", or request at most {pluralize(value // minimum * group, 'rank')}" if value >= minimum else ""
    raise HpcrunError(message, hint=f"-- --{option}={minimum * shares} or more{smaller}")


def require_divisible(name: str, option: str, value: int, ranks: int, workers: int) -> None:
    """Refuse a value that virtual workers cannot share equally.

    Args:
        name: The workload's name.
        option: The option, whose value all ranks share.
        value: The value of the option.
        ranks: The number of ranks of the job.
        workers: The number of virtual workers of each rank; 1 for none.

    Raises:
        HpcrunError: The value is not a multiple of the number of all workers.
    """
    total = ranks * workers
    if workers > 1 and value % total:
        raise HpcrunError(
            f"{name}: --{option}={value} does not divide among {total} workers "
            f"(ranks: {ranks}, --virtual-workers={workers})",
            hint=f"-- --{option}={-(-value // total) * total}, or another --virtual-workers",
        )
