"""The options that ``hpcrun submit`` and ``hpcrun run`` share, declared once."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from hpcrun.cli import completion
from hpcrun.errors import HpcrunError

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # click's, which Typer carries under a private name
RESOURCES = "Resources (Slurm's own names and formats)"
JOB = "Job"
Text = str | None


def option(*names: str, help: str, metavar: str | None = None, panel: str = RESOURCES, **more: Any) -> Any:
    """Return a Typer option without a default to show: what is not said is not emitted."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **more)


@dataclasses.dataclass
class ResourceOptions:
    """Options named as the fields of `hpcrun.resources.Resources`."""

    nodes: Annotated[int | None, option("-N", "--nodes", metavar="N", help="Nodes.")] = None
    ntasks: Annotated[int | None, option("-n", "--ntasks", metavar="N", help="MPI ranks in all.")] = None
    ntasks_per_node: Annotated[
        int | None,
        option(
            "--ntasks-per-node",
            "--n-per-node",
            metavar="N",
            help="MPI ranks on each node; default one per GPU, else one.",
        ),
    ] = None
    cpus_per_task: Annotated[
        int | None, option("-c", "--cpus-per-task", metavar="N", help="CPU cores of each rank.")
    ] = None
    gpus_per_node: Annotated[
        Text,
        option(
            "--gpus-per-node",
            "--devices-per-node",
            metavar="[TYPE:]N",
            help="GPUs on each node; default all, where the site knows their number.",
        ),
    ] = None
    mem: Annotated[Text, option("--mem", metavar="SIZE", help="Memory on each node: 4000 (MiB), 16G.")] = None
    mem_per_gpu: Annotated[Text, option("--mem-per-gpu", metavar="SIZE", help="Memory for each GPU.")] = None
    mem_per_cpu: Annotated[Text, option("--mem-per-cpu", metavar="SIZE", help="Memory for each CPU core.")] = None
    time: Annotated[
        Text, option("-t", "--time", metavar="TIME", help="Time limit: 90 (minutes), 1:30:00, 2-12, UNLIMITED.")
    ] = None
    partition: Annotated[Text, option("-p", "--partition", metavar="NAME", help="Partition.")] = None
    account: Annotated[Text, option("-A", "--account", metavar="NAME", help="Account that pays.")] = None
    qos: Annotated[Text, option("-q", "--qos", metavar="NAME", help="Quality of service.")] = None
    constraint: Annotated[Text, option("-C", "--constraint", metavar="LIST", help="Features nodes must have.")] = None
    nodelist: Annotated[Text, option("-w", "--nodelist", metavar="NODES", help="Nodes the job must have.")] = None
    exclude: Annotated[Text, option("--exclude", metavar="NODES", help="Nodes the job must not have.")] = None
    dependency: Annotated[
        Text, option("-d", "--dependency", metavar="LIST", help="Jobs to wait for: afterok:1234, afterany:last.")
    ] = None
    job_name: Annotated[Text, option("-J", "--job-name", metavar="NAME", help="Name; default the target's.")] = None
    exclusive: Annotated[bool, option("--exclusive", help="Share the nodes with no other job.")] = False
    mail_type: Annotated[Text, option("--mail-type", metavar="LIST", help="When to send mail: END,FAIL.")] = None
    mail_user: Annotated[Text, option("--mail-user", metavar="ADDRESS", help="Where to send mail.")] = None
    sbatch: Annotated[
        list[str],
        option("--sbatch", metavar="OPTION", help="Any other, as --sbatch='--reservation=maint'; repeatable."),
    ] = dataclasses.field(default_factory=list)

    def said(self) -> dict[str, Any]:
        """Return what somebody set, by field name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(ResourceOptions)}
        return {name: value for name, value in values.items() if not (value is None or value is False or value == [])}


@dataclasses.dataclass
class JobOptions(ResourceOptions):
    """All that submit and run share."""

    site: Annotated[
        Text,
        option(
            "--site",
            panel=JOB,
            metavar="NAME",
            help="Site or site file; default: detected.",
            autocompletion=completion.sites,
        ),
    ] = None
    variables: Annotated[
        list[str],
        option("-x", panel=JOB, metavar="KEY=VALUE", help="Export on every rank, taken literally; repeatable."),
    ] = dataclasses.field(default_factory=list)
    no_gpu: Annotated[bool, option("--no-gpu", panel=JOB, help="Use no GPU, even where there are some.")] = False
    output_on_all_ranks: Annotated[
        bool,
        option(
            "--output-on-all-ranks",
            panel=JOB,
            help="Show every rank's output, not only rank 0's. (Each rank has a file of its own in any case.)",
        ),
    ] = False
    log_level: Annotated[
        str, option("--log-level", panel=JOB, metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR; default WARNING.")
    ] = "WARNING"
    cpu_bind: Annotated[
        Text,
        option(
            "--cpu-bind",
            panel=JOB,
            metavar="KIND",
            help="Bind each rank to its share of the node's cores, to the sockets of this share, or to nothing: cores, "
            "sockets, none. Default: the site's, else cores.",
        ),
    ] = None
    fusion_threshold_kb: Annotated[
        int | None,
        option(
            "--fusion-threshold",
            panel=JOB,
            metavar="KB",
            help="hpcrun.train sends gradients in pieces of this many KB; default 2048; 0: one message a tensor.",
        ),
    ] = None
    snapshot: Annotated[
        bool | None,
        option(
            "--snapshot/--no-snapshot",
            panel=JOB,
            help="Run a copy of your code as it is now: editing it later changes nothing. Default: the site's.",
        ),
    ] = None
    image: Annotated[
        Text,
        option(
            "--container",
            panel=JOB,
            metavar="IMAGE",
            help="Run the ranks in this container image, started as the site says. Default: the site's image, if any.",
        ),
    ] = None
    no_container: Annotated[
        bool, option("--no-container", panel=JOB, help="Run the ranks on the host, whatever the site says.")
    ] = False
    dry_run: Annotated[
        bool,
        option("--dry-run", panel=JOB, help="Print the script, and on stderr a summary; write and submit nothing."),
    ] = False
    as_json: Annotated[bool, option("--json", panel=JOB, help="Print one JSON value for scripts.")] = False

    @property
    def container(self) -> str | Literal[False] | None:
        """The image that somebody asked for, False for none.

        Raises:
            HpcrunError: Both were asked for.
        """
        if self.image is not None and self.no_container:
            raise HpcrunError(
                f"--container={self.image} and --no-container contradict each other", hint="leave one out"
            )
        return False if self.no_container else self.image

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the -x variables.

        Raises:
            HpcrunError: One is not KEY=VALUE.
        """
        return tuple(_variable(text) for text in self.variables)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise HpcrunError(
            f"-x {text}: not KEY=VALUE",
            hint=f"-x exports a variable to every rank; sbatch's exclude is spelled --exclude={text} here",
        )
    return name, value


def with_job_options(command: Callable[..., None], kind: type[ResourceOptions] = JobOptions) -> Callable[..., None]:
    """Give a Typer command options that others have too.

    Args:
        command: A function whose parameter ``options`` is to be them.
        kind: Which.
    """
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=field.type,
            default=[] if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(kind)
    ]

    def flat(**given: Any) -> None:
        options = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        command(options=options, **given)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__signature__ = inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in own] + shared)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return flat


class SplitCommand(TyperCommand):
    """A command whose line splits at ``--``: options and target before it, the program's own words behind it."""

    def __init__(self, *args: Any, **facts: Any) -> None:
        # thirty options are read in panels; the other commands do without the time that rich takes
        super().__init__(*args, **{**facts, "rich_markup_mode": "rich"})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what follows ``--`` from being taken for options or target; commands find it in ``ctx.meta``."""
        if "--" in args:
            split = args.index("--")
            args, ctx.meta["hpcrun.args"] = args[:split], tuple(args[split + 1 :])
        try:
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            hint = f"the program's own options and arguments go after --; hpcrun {self.name} --help lists hpcrun's"
            if isinstance(error, typer.BadParameter) and (described := getattr(error.param, "help", None)):
                hint = described
            raise HpcrunError(error.format_message().split(" (Possible")[0].strip(), hint=hint) from None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show in the usage line what may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]
