"""``hpcrun site allow``: allow site files and templates that other users can write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.add import SkipConfirmation  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.review import confirm, show_diff
from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from hpcrun.sites.source import SiteSource


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
        str | None,
        typer.Option("--owner", metavar="USER", help="User whose files are all allowed, without review."),
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the permission of files or of a user.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the allowed files and users.")] = False,
    yes: SkipConfirmation = False,
    as_json: Json = False,
) -> None:
    """Allow site files and templates that other users wrote or can write.

    Their lines run as you, so each file is shown first: the whole file, or its changes since the version that you
    allowed. Your own files and root's need no permission if nobody else can write them; files of a project (.hpcrun/)
    always need it, because they may come with a repository.

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
        _allow_owner(owner, must_revoke=revoke, yes=yes)
    elif revoke:
        _revoke(names or [])
    else:
        _allow(names or [], yes=yes)


def _list(*, as_json: bool) -> None:
    from hpcrun.sites import trust

    allowed_entries = trust.list_allowed()
    if as_json:
        output.value(allowed_entries)
        return
    rows = [
        (f"all files of {entry['owner']}" if "owner" in entry else entry["file"], entry["allowed"])
        for entry in allowed_entries
    ]
    if rows:
        output.table(("allowed", "since"), rows)
    else:
        output.message("no files are allowed yet: hpcrun site allow SITE shows the files of a site first")


def _allow_owner(name: str, *, must_revoke: bool, yes: bool) -> None:
    from hpcrun.sites import trust

    if must_revoke:
        if not trust.revoke_owner(name):
            raise HpcrunError(
                f"files of user {name} were not allowed as a whole", hint="hpcrun site allow --list", exit_code=1
            )
        output.message(f"files of user {name} are no longer used unless they are allowed one by one")
        return
    import pwd

    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        raise HpcrunError(f"there is no user {name!r} here", hint="--owner takes a login name, as in ls -l") from None
    confirm(
        f"Run everything that user {name} writes into site files and templates?",
        yes=yes,
        decline_message="nothing was allowed",
    )
    trust.allow_owner(name, uid)
    output.message(f"files of user {name} that nobody else can write are used from now on")


def _revoke(names: list[str]) -> None:
    from hpcrun import paths
    from hpcrun.sites import trust

    if not names:
        raise HpcrunError(
            "--revoke needs a file, a folder or a site", hint="hpcrun site allow --list lists the allowed files"
        )
    for name in names:
        allowed_files = [Path(entry["file"]) for entry in trust.list_allowed() if "file" in entry]
        path = Path(paths.expand_user(name)).absolute()
        matching_files = [file for file in allowed_files if path in {file, *file.parents}] or [
            entry for entry in allowed_files if entry.stem == name
        ]
        if not matching_files:
            suggestion = closest_match(name, [*map(str, allowed_files), *(entry.stem for entry in allowed_files)])
            hint = f"did you mean {suggestion}?" if suggestion else "hpcrun site allow --list lists the allowed files"
            raise HpcrunError(f"{name} was not allowed", hint=hint, exit_code=1)
        for file in matching_files:
            trust.revoke_file(file)
            output.message(f"{file} must be allowed again")


def _allow(names: list[str], *, yes: bool) -> None:
    from hpcrun.sites import layer_files, trust

    sources = _select_sources(names)
    refused_sources = [source for source in sources if trust.refusal_reason(source)]
    if not refused_sources:
        output.message(f"{', '.join(str(source.file) for source in sources)}: already used, no permission needed")
        return
    for source in refused_sources:
        output.message(f"{source.file}: {trust.refusal_reason(source)}")
        allowed_text = trust.read_allowed_text(source.file)
        name = str(source.file)
        show_diff(layer_files.diff_texts({name: allowed_text} if allowed_text is not None else {}, {name: source.text}))
    subject = f"these {len(refused_sources)} files" if len(refused_sources) > 1 else "it"
    confirm(f"Use {subject} as shown?", yes=yes, decline_message="nothing was allowed")
    trust.allow_files(refused_sources)
    output.message(f"allowed: {', '.join(str(source.file) for source in refused_sources)}")


def _select_sources(names: list[str]) -> list[SiteSource]:
    """Return the files that the arguments name; for a site also all templates, which render the site's job scripts."""
    from hpcrun import paths
    from hpcrun.sites import layer_files, loader, project

    sources_by_file: dict[Path, SiteSource] = {}
    unallowed_project, site_names = project.find_unused_project(), loader.list_site_files(paths.config_layers())
    if unallowed_project and (
        not names or any((unallowed_project.folder / f"{name}.toml").is_file() for name in names)
    ):  # all files of a project are allowed together
        names = [*(names or [loader.load_selected_site().site.name]), str(unallowed_project.folder)]
    for name in names or [loader.load_selected_site().site.name]:
        path = Path(paths.expand_user(name)).absolute()
        if name not in site_names and path.is_dir():
            sources = list(layer_files.read_sources(path).values())
        elif name not in site_names and path.suffix != ".toml" and path.is_file():
            sources = [layer_files.read_source(path)]
        else:
            folders = [folder for _, folder in paths.config_layers()[1:]]
            sources = list(loader.load_site(name, include_unallowed=True).sources)
            sources += [
                layer_files.read_source(file) for folder in folders for file in layer_files.list_templates(folder)
            ]
        sources_by_file |= {source.file: source for source in sources}
    return list(sources_by_file.values())
