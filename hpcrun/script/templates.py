"""Jinja templates of job scripts: where they are found, which one overrides which, and what they may call."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import jinja2
import jinja2.nodes

from hpcrun import paths, sandbox
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers.variables import data_variable
from hpcrun.script import quoting
from hpcrun.sites import trust
from hpcrun.sites.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HINT = "a template may override the blocks of templates/base.sh.j2; see docs/templates.md"
_REMOVED_BLOCKS = dict.fromkeys(("record", "goes_on", "leaves"), "the library file record.bash")
_REMOVED_BLOCKS |= dict.fromkeys(("ask", "traps", "orphans"), "the library file signals.bash")
_REMOVED_BLOCKS |= dict.fromkeys(
    ("requeue", "nodes", "job_id", "becomes", "ranks_code"), "the library file slurm.bash or local.bash"
)
_REMOVED_BLOCKS |= dict.fromkeys(
    ("provenance", "provenance_of_scheduler"), "the library file launch.bash, or your own block teardown,"
)
_REMOVED_BLOCKS |= {"rank": "hpcrun_launch, by its options in the block launch,"}
"""Blocks that templates no longer have, and what replaces each; see docs/templates.md."""


class _Layers(jinja2.BaseLoader):
    """Loads templates from all layers. A template that extends its own name gets that of the next lower layer."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders

    def get_source(
        self,
        environment: jinja2.Environment,
        template: str,
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        level, _, name = template.rpartition(":")
        if ".." in name.split("/") or name.startswith("/"):  # outside of the folders of templates
            raise jinja2.TemplateNotFound(name)
        for number, folder in enumerate(self.folders[int(level or 0) :], int(level or 0)):
            file = folder / name
            if file.is_file():
                # the level is part of the name, so that join_path can continue below it
                if template != f"{number}:{name}":
                    return f'{{% extends "{number}:{name}" %}}', None, None
                text = _read(file)
                if folder != paths.shipped_folder("templates"):
                    _require_known_blocks(environment, text, file, self.folders[number + 1 :])
                return text, str(file), None
        raise jinja2.TemplateNotFound(name)


def _require_known_blocks(environment: jinja2.Environment, text: str, file: Path, lower: tuple[Path, ...]) -> None:
    """Refuse a template that overrides a block which no template below it has: nothing would render it."""
    try:
        parsed = environment.parse(text)
    except jinja2.TemplateSyntaxError:
        return  # compiling it raises the error
    if not parsed.find(jinja2.nodes.Extends):
        return
    known = {name for folder in lower for other in folder.glob("*.j2") for name in _block_names(other)}
    blocks = list(parsed.find_all(jinja2.nodes.Block))
    known.update(inner.name for block in blocks for inner in block.find_all(jinja2.nodes.Block))
    for block in (block for block in blocks if block.name not in known):
        if block.name in _REMOVED_BLOCKS:
            what = f"{file}:{block.lineno}: job scripts have no block {block.name} any more"
            raise HpcrunError(what, hint=f"{_REMOVED_BLOCKS[block.name]} does that now; see docs/templates.md")
        like = closest_match(block.name, sorted(known))
        meant = f"did you mean {like}?" if like else f"blocks: {', '.join(sorted(known))}"
        raise HpcrunError(f"{file}:{block.lineno}: job scripts have no block {block.name}", hint=meant)


def _block_names(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return re.findall(r"\{%[-+]? *block +(\w+)", file.read_text(encoding="utf-8"))
    return []


def _read(file: Path) -> str:
    """Read a template. Its text is bash that runs as this user."""
    try:
        source = Source.read(file)
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file", hint=HINT) from None
    trust.require_trusted_template(source)
    return source.text


class _Environment(sandbox.TemplateEnvironment):
    def join_path(self, template: str, parent: str) -> str:
        level, _, name = parent.rpartition(":")
        if ":" in template:
            return template
        return f"{int(level) + 1}:{template}" if level and name == template else template


def create_environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    """Return the Jinja environment for templates in these folders, highest layer first."""
    compiled = paths.user_cache_folder("templates")
    environment = _Environment(
        loader=_Layers(folders),
        bytecode_cache=sandbox.PrivateBytecodeCache(str(compiled)) if compiled.is_dir() else None,
        undefined=jinja2.StrictUndefined,
        comment_start_string="<#",  # {# is bash's, as in ${#array[@]}
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "quote": quoting.quote,
        "expand": quoting.expand,
        "directive": quoting.directive,
        "word": quoting.word,
        "words": quoting.words,
        "wrapped": quoting.wrapped,
        "variables": quoting.variables,
        "data_variable": data_variable,
    }
    return environment


def check_template(text: str, name: str) -> None:
    """Check the syntax of a template without rendering it.

    Args:
        text: The template.
        name: Its name in messages.

    Raises:
        HpcrunError: The syntax is wrong; names the line.
    """
    try:
        create_environment(()).parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise HpcrunError(f"{name}:{error.lineno}: {error.message}", hint=HINT, exit_code=1) from None
