"""``hpcrun site allow``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.add import Yes  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.showing import confirm, show
from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from hpcrun.sites.source import Source


def allow(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SITE|FILE]...",
            help="Sites, files or folders; default: the site used here.",
            autocompletion=completion.sites,
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER", help="Use all files of this user, whatever is in them.")
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take back what was allowed.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List what was allowed.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let site files and templates be used that somebody else can write, or wrote.

    Their lines run as you, so each is shown first: all of it the first time,
    and when it has changed, what has. Files of your own, or root's, that
    nobody else can write, need not be allowed; those of a project (.hpcrun/)
    always, for they may have come with a repository.

    \b
    Examples:
      hpcrun site allow mycluster
      hpcrun site allow .hpcrun
      hpcrun site allow /shared/lab/sites/templates/slurm.sh.j2
      hpcrun site allow --owner labadmin
      hpcrun site allow --list
      hpcrun site allow --revoke mycluster
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    if owner and names:
        raise HpcrunError(f"--owner {owner} allows all of a user's files", hint="leave the names out, or --owner")
    if listed:
        _list(as_json=as_json)
    elif owner:
        _owner(owner, revoke=revoke, yes=yes)
    elif revoke:
        _revoke(names or [])
    else:
        _allow(names or [], yes=yes)


def _list(*, as_json: bool) -> None:
    from hpcrun.sites import trust

    told = trust.list_allowed()
    if as_json:
        output.value(told)
        return
    rows = [(f"all files of {one['owner']}" if "owner" in one else one["file"], one["allowed"]) for one in told]
    output.table(("allowed", "since"), rows)


def _owner(name: str, *, revoke: bool, yes: bool) -> None:
    from hpcrun.sites import trust

    if revoke:
        if not trust.revoke_owner(name):
            raise HpcrunError(f"files of {name} were not allowed as such", hint="hpcrun site allow --list", exit_code=1)
        output.message(f"files of {name} are used no longer unless they are allowed")
        return
    import pwd

    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        raise HpcrunError(
            f"there is no user {name!r} here", hint="--owner takes a login name, as ls -l shows it"
        ) from None
    confirm(f"Run whatever {name} writes into site files and templates?", yes=yes, otherwise="nothing was allowed")
    trust.allow_owner(name, uid)
    output.message(f"files of {name} that nobody else can write are used from now on")


def _revoke(names: list[str]) -> None:
    from hpcrun import paths
    from hpcrun.sites import trust

    if not names:
        raise HpcrunError(
            "nothing says what is to be taken back", hint="hpcrun site allow --list lists what was allowed"
        )
    for name in names:
        known = [Path(one["file"]) for one in trust.list_allowed() if "file" in one]
        path = Path(paths.expand_user(name)).absolute()
        meant = [file for file in known if path in {file, *file.parents}] or [one for one in known if one.stem == name]
        if not meant:
            like = closest_match(name, [*map(str, known), *(one.stem for one in known)])
            hint = f"did you mean {like}?" if like else "hpcrun site allow --list lists what was allowed"
            raise HpcrunError(f"{name} was not allowed", hint=hint, exit_code=1)
        for file in meant:
            trust.revoke_file(file)
            output.message(f"{file} must be allowed again")


def _allow(names: list[str], *, yes: bool) -> None:
    from hpcrun.sites import layer_files, trust

    sources = _sources(names)
    refused = [source for source in sources if trust.refusal_reason(source)]
    if not refused:
        output.message(f"{', '.join(str(one.file) for one in sources)}: used already; nothing is to be allowed")
        return
    for source in refused:
        output.message(f"{source.file}: {trust.refusal_reason(source)}")
        before = trust.read_allowed_text(source.file)
        name = str(source.file)
        show(layer_files.diff_texts({name: before} if before is not None else {}, {name: source.text}))
    what = f"these {len(refused)} files" if len(refused) > 1 else "it"
    confirm(f"Use {what} as shown?", yes=yes, otherwise="nothing was allowed")
    trust.allow_files(refused)
    output.message(f"allowed: {', '.join(str(one.file) for one in refused)}")


def _sources(names: list[str]) -> list[Source]:
    """Return the files that are meant: of a site also all templates, for it is rendered with them."""
    from hpcrun import paths
    from hpcrun.sites import layer_files, loader, project

    found: dict[Path, Source] = {}
    unused, known = project.find_unused_project(), loader.list_site_files(paths.config_layers())
    if unused and (
        not names or any((unused.folder / f"{name}.toml").is_file() for name in names)
    ):  # it is used as a whole
        names = [*(names or [loader.load_selected_site().site.name]), str(unused.folder)]
    for name in names or [loader.load_selected_site().site.name]:
        path = Path(paths.expand_user(name)).absolute()
        if name not in known and path.is_dir():
            sources = list(layer_files.read_sources(path).values())
        elif name not in known and path.suffix != ".toml" and path.is_file():
            sources = [layer_files.read_source(path)]
        else:
            folders = [folder for _, folder in paths.config_layers()[1:]]
            sources = list(loader.load_site(name, unallowed=True).sources)
            sources += [
                layer_files.read_source(file) for folder in folders for file in layer_files.list_templates(folder)
            ]
        found |= {source.file: source for source in sources}
    return list(found.values())
