"""``hpcrun site check``: check site files without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.finding import Finding
    from hpcrun.sites.loader import LoadedSite


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SITE]...",
            help="Sites, site files or folders of them; default: all.",
            autocompletion=completion.sites,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check site files on any machine, without a cluster.

    The command checks all site files in a folder.

    Errors prevent all jobs: unknown keys, wrong types and values, setup and
    teardown lines that bash cannot parse. Warnings name valid values that are probably mistakes: an mpi.type that does
    not fit the MPI library, defaults beyond the limits. hpcrun doctor compares a site file with its cluster.

    Exit code 0: no errors, perhaps warnings. 1: errors.

    \b
    Examples:
      hpcrun site check
      hpcrun site check ./mycluster.toml
      hpcrun site check .
      hpcrun site check --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import paths
    from hpcrun.sites import loader

    known_sites = sorted(loader.list_site_files(paths.config_layers()))
    reports = [_check_site(name) for given in names or known_sites for name in _expand_folder(given)]
    has_errors = any(report["error"] for report in reports)
    if as_json:
        output.value(
            [{**report, "warnings": [finding.as_json() for finding in report["warnings"]]} for report in reports]
        )
        raise typer.Exit(int(has_errors))
    _print_warnings(reports)
    if has_errors:
        raise HpcrunError("\n".join(report["error"] for report in reports if report["error"]), exit_code=1)
    output.message(f"{output.sites([report['site'] for report in reports])}: valid")


def _expand_folder(name: str) -> list[str]:
    """Return the names of the site files in a folder; for a file or the name of a site, return the argument."""
    from hpcrun import paths
    from hpcrun.sites import loader

    folder = Path(paths.expand_user(name))
    if folder.is_file() and folder.suffix != ".toml":
        hint = "a site file ends in .toml; hpcrun site init writes one for this cluster"
        raise HpcrunError(f"{name} is not a site file", hint=hint)
    if name in loader.list_site_files(paths.config_layers()) or not folder.is_dir():
        return [name]
    files = [str(file) for file in sorted(folder.resolve().glob("*.toml"))]
    if not files:
        hint = "name the folder of its *.toml files, or a site: hpcrun site list"
        raise HpcrunError(f"{name}: a folder without site files", hint=hint)
    return files


def _check_site(name: str) -> dict[str, Any]:
    """Return the errors and warnings of one site."""
    from hpcrun.sites import loader
    from hpcrun.sites.lint import rules

    try:
        loaded_site = loader.load_site(name, include_unallowed=True)
    except HpcrunError as error:
        return {"site": name, "error": str(error), "warnings": []}
    findings = rules.lint_site(loaded_site)
    errors = [rules.format_finding(finding, name) for finding in findings if finding.severity == "error"]
    warnings = [*_find_unallowed_files(loaded_site), *(finding for finding in findings if finding.severity != "error")]
    return {"site": name, "error": "\n".join(errors) or None, "warnings": warnings}


def _find_unallowed_files(site: LoadedSite) -> Iterator[Finding]:
    """Yield a warning for each project file that is not used because it is not allowed."""
    from hpcrun.finding import warning
    from hpcrun.sites import trust

    for source in site.sources:
        if trust.is_project_file(source) and (reason := trust.refusal_reason(source)):
            yield warning("site file", f"not used: {reason}", f"hpcrun site allow {source.file}", str(source.file))


def _print_warnings(reports: Sequence[dict[str, Any]]) -> None:
    """Print each warning once; a site that extends another site repeats its warnings."""
    from hpcrun.sites.lint import rules

    lines = [rules.format_finding(warning, report["site"]) for report in reports for warning in report["warnings"]]
    for line in dict.fromkeys(lines):
        output.message(f"WARNING: {line}")
