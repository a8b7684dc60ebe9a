"""Command-line parameters that ``submit``, ``run``, ``resubmit`` and ``site test`` share."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import dataclasses
import inspect
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal

import typer

from hpcrun.cli import completion
from hpcrun.cli.help_page import Command
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_options import JobOptions, list_parameters

RESOURCE_PANEL = "Resources (Slurm's own names and formats)"
JOB_PANEL = "Job"
Text = str | None


def option(*names: str, help: str, metavar: str | None = None, panel: str = RESOURCE_PANEL, **more: Any) -> Any:
    """Return a Typer option without a default in its help, because hpcrun passes on only options that the user set."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **more)


@frozen
class ResourceParameters:
    """Command-line options for the fields of `hpcrun.resources.Resources`, which have the same names."""

    nodes: Annotated[int | None, option("-N", "--nodes", metavar="N", help="Number of nodes.")] = None
    ntasks: Annotated[int | None, option("-n", "--ntasks", metavar="N", help="Number of MPI ranks in total.")] = None
    ntasks_per_node: Annotated[
        int | None,
        option(
            "--ntasks-per-node",
            "--n-per-node",
            metavar="N",
            help="Number of MPI ranks on each node; default: one per GPU, else one.",
        ),
    ] = None
    cpus_per_task: Annotated[
        int | None, option("-c", "--cpus-per-task", metavar="N", help="Number of CPU cores of each rank.")
    ] = None
    gpus_per_node: Annotated[
        Text,
        option(
            "--gpus-per-node",
            "--devices-per-node",
            metavar="[TYPE:]N",
            help="Number of GPUs on each node; default: all, if the site file has their number.",
        ),
    ] = None
    mem: Annotated[Text, option("--mem", metavar="SIZE", help="Memory on each node, as 4000 (MiB) or 16G.")] = None
    mem_per_gpu: Annotated[Text, option("--mem-per-gpu", metavar="SIZE", help="Memory for each GPU.")] = None
    mem_per_cpu: Annotated[Text, option("--mem-per-cpu", metavar="SIZE", help="Memory for each CPU core.")] = None
    time: Annotated[
        Text, option("-t", "--time", metavar="TIME", help="Time limit, as 90 (minutes), 1:30:00 or 2-12 (days-hours).")
    ] = None
    partition: Annotated[Text, option("-p", "--partition", metavar="NAME", help="Partition.")] = None
    account: Annotated[Text, option("-A", "--account", metavar="NAME", help="Account to charge.")] = None
    qos: Annotated[Text, option("-q", "--qos", metavar="NAME", help="Quality of service.")] = None
    constraint: Annotated[
        Text, option("-C", "--constraint", metavar="LIST", help="Node features that the job requires.")
    ] = None
    nodelist: Annotated[Text, option("-w", "--nodelist", metavar="NODES", help="Nodes that the job must run on.")] = (
        None
    )
    exclude: Annotated[Text, option("--exclude", metavar="NODES", help="Nodes to exclude.")] = None
    dependency: Annotated[
        Text, option("-d", "--dependency", metavar="LIST", help="Jobs to wait for, as afterok:1234 or afterany:last.")
    ] = None
    job_name: Annotated[
        Text, option("-J", "--job-name", metavar="NAME", help="Job name; default: the target's name.")
    ] = None
    exclusive: Annotated[bool, option("--exclusive", help="Share the nodes with no other job.")] = False
    mail_type: Annotated[Text, option("--mail-type", metavar="LIST", help="Events that send mail, as END,FAIL.")] = None
    mail_user: Annotated[Text, option("--mail-user", metavar="ADDRESS", help="Address that gets the mail.")] = None
    sbatch: Annotated[
        list[str],
        option("--sbatch", metavar="OPTION", help="Any other option of sbatch, as --sbatch=--hold (repeatable)."),
    ] = dataclasses.field(default_factory=list)

    def explicit(self) -> dict[str, Any]:
        """Return the resources that the user set, by field name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(ResourceParameters)}
        return {name: value for name, value in values.items() if not (value is None or value is False or value == [])}


@frozen
class JobParameters(ResourceParameters):
    """Parameters of ``submit``, ``run`` and ``resubmit``; `hpcrun.job_options` declares the parameters in `options`."""

    site: Annotated[
        Text,
        option(
            "--site",
            panel=JOB_PANEL,
            metavar="NAME",
            help="Site or site file; default: detected.",
            autocompletion=completion.sites,
        ),
    ] = None
    variables: Annotated[
        list[str],
        option(
            "-x",
            panel=JOB_PANEL,
            metavar="KEY=VALUE",
            help="Variable to export to every rank, without shell expansion (repeatable).",
        ),
    ] = dataclasses.field(default_factory=list)
    options: JobOptions = JobOptions()
    snapshot: Annotated[
        bool | None,
        option(
            "--snapshot/--no-snapshot",
            panel=JOB_PANEL,
            help="Run a copy of your code, which later edits do not change; default: the site's.",
        ),
    ] = None
    image: Annotated[
        Text,
        option(
            "--container",
            panel=JOB_PANEL,
            metavar="IMAGE",
            help="Container image to run the ranks in; default: the site's, if any.",
        ),
    ] = None
    no_container: Annotated[
        bool,
        option("--no-container", panel=JOB_PANEL, help="Run the ranks outside the site's container."),
    ] = False
    dry_run: Annotated[
        bool,
        option("--dry-run", panel=JOB_PANEL, help="Print the script, and submit nothing."),
    ] = False
    as_json: Annotated[bool, option("--json", panel=JOB_PANEL, help="Print one JSON value.")] = False

    @property
    def container(self) -> str | Literal[False] | None:
        """The requested image; False for --no-container, None if neither option was given.

        Raises:
            HpcrunError: Both options were given.
        """
        if self.image is not None and self.no_container:
            raise HpcrunError(
                f"--container={self.image} and --no-container contradict each other", hint="leave one out"
            )
        return False if self.no_container else self.image

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the variables of -x as pairs of name and value.

        Raises:
            HpcrunError: A variable is not KEY=VALUE.
        """
        return tuple(_parse_variable(text) for text in self.variables)


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        hint = f"-x exports a variable to every rank; use --exclude={text} for sbatch's -x"
        if re.fullmatch("[A-Z_][A-Z0-9_]*", text):  # mpirun's -x NAME, without a value
            hint = f'-x {text}="${text}" exports the value that it has here'
        raise HpcrunError(f"-x {text}: not KEY=VALUE", hint=hint)
    return name, value


def with_job_parameters(
    command: Callable[..., None], kind: type[ResourceParameters] = JobParameters
) -> Callable[..., None]:
    """Return a Typer command with the fields of a dataclass as additional parameters.

    Args:
        command: A function that receives an instance of the dataclass as argument ``parameters``.
        kind: The dataclass.
    """
    command_parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "parameters"]
    shared_parameters, options = [], {}
    for field in dataclasses.fields(kind):
        if field.name != "options":
            default = [] if field.default is dataclasses.MISSING else field.default
            shared_parameters.append(_keyword(field.name, field.type, default))
            continue
        for parameter, job_option in list_parameters():
            if command.__name__ in (job_option.commands or [command.__name__]):
                typer_option = option(
                    job_option.flag, panel=job_option.panel, metavar=job_option.metavar, help=job_option.help
                )
                parameter_list = command_parameters if job_option.commands else shared_parameters
                is_repeatable = parameter.default == ()
                annotation, default = (list[str], []) if is_repeatable else (parameter.annotation, parameter.default)
                parameter_list.append(_keyword(parameter.name, Annotated[annotation, typer_option], default))
                options[parameter.name] = job_option.convert or (lambda value: value)

    def wrapper(**arguments: Any) -> None:
        values = {
            field.name: arguments.pop(field.name) for field in dataclasses.fields(kind) if field.name != "options"
        }
        if options:
            values["options"] = JobOptions(**{name: convert(arguments.pop(name)) for name, convert in options.items()})
        command(parameters=kind(**values), **arguments)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    keyword_parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in command_parameters]
    wrapper.__signature__ = inspect.Signature(keyword_parameters + shared_parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*command_parameters, *shared_parameters]}
    return wrapper


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


class SplitCommand(Command):
    """A command with hpcrun's options and target before ``--``, and the program's arguments after ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments after ``--`` in ``ctx.meta``, and parse only the arguments before ``--``."""
        if "--" in args:
            split = args.index("--")
            args, ctx.meta["hpcrun.args"] = args[:split], tuple(args[split + 1 :])
        self._require_separate_options(args)
        return super().parse_args(ctx, args)

    def _require_separate_options(self, args: list[str]) -> None:
        """Reject an option that would take the next option as its value, as in ``--account --dry-run``.

        Raises:
            HpcrunError: An option is misplaced; ``--sbatch`` may have any option as its value.
        """
        options = [param for param in self.params if param.param_type_name == "option"]
        known_options = {name for param in options for name in (*param.opts, *param.secondary_opts)}
        metavars = {
            name: param.metavar for param in options if not getattr(param, "is_flag", False) for name in param.opts
        }
        for word, next_word in pairwise(args):
            is_option = next_word.partition("=")[0] in known_options
            if is_option and word in metavars and word != "--sbatch":
                form = f"{word}={metavars[word]}" if word.startswith("--") else f"{word} {metavars[word]}"
                raise HpcrunError(f"{word} has no value: {next_word} follows", hint=f"{form} {next_word}")

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Add the arguments after ``--`` to the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]
