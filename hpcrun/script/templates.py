"""Jinja templates of job scripts: search in layers, overriding, and checks."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import jinja2
import jinja2.nodes

from hpcrun import paths, sandbox
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers.rank_variables import data_variable
from hpcrun.script import quoting
from hpcrun.sites import trust
from hpcrun.sites.source import SiteSource

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
    ("provenance", "provenance_of_scheduler"), "the library file launch.bash, or a block teardown,"
)
_REMOVED_BLOCKS |= {"rank": "hpcrun_launch, by its options in the block launch,"}
"""Blocks that templates no longer have, with the replacement of each; see docs/templates.md."""


class _LayeredLoader(jinja2.BaseLoader):
    """A loader of templates from all layers; a template that extends its own name extends that of the layer below."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders

    def get_source(
        self,
        environment: jinja2.Environment,
        template: str,
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        layer_number, _, name = template.rpartition(":")
        if ".." in name.split("/") or name.startswith("/"):  # the path is outside the folders of templates
            raise jinja2.TemplateNotFound(name)
        for number, folder in enumerate(self.folders[int(layer_number or 0) :], int(layer_number or 0)):
            file = folder / name
            if file.is_file():
                # the layer number is part of the name, so that join_path can continue in the next lower layer
                if template != f"{number}:{name}":
                    return f'{{% extends "{number}:{name}" %}}', None, None
                text = _read_template(file)
                if folder != paths.shipped_folder("templates"):
                    _require_known_blocks(environment, text, file, self.folders[number + 1 :])
                return text, str(file), None
        raise jinja2.TemplateNotFound(name)


def _require_known_blocks(
    environment: jinja2.Environment, text: str, file: Path, lower_folders: tuple[Path, ...]
) -> None:
    """Refuse a template with a block that no template of a lower layer has, because the block would not be rendered."""
    try:
        syntax_tree = environment.parse(text)
    except jinja2.TemplateSyntaxError:
        return  # compiling the template raises the error
    if not syntax_tree.find(jinja2.nodes.Extends):
        return
    known_blocks = {name for folder in lower_folders for other in folder.glob("*.j2") for name in _block_names(other)}
    blocks = list(syntax_tree.find_all(jinja2.nodes.Block))
    known_blocks.update(inner_block.name for block in blocks for inner_block in block.find_all(jinja2.nodes.Block))
    for block in (block for block in blocks if block.name not in known_blocks):
        if block.name in _REMOVED_BLOCKS:
            message = f"{file}:{block.lineno}: job scripts have no block {block.name} any more"
            raise HpcrunError(message, hint=f"{_REMOVED_BLOCKS[block.name]} does that now; see docs/templates.md")
        closest_name = closest_match(block.name, sorted(known_blocks))
        hint = f"did you mean {closest_name}?" if closest_name else f"blocks: {', '.join(sorted(known_blocks))}"
        raise HpcrunError(f"{file}:{block.lineno}: job scripts have no block {block.name}", hint=hint)


def _block_names(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return re.findall(r"\{%[-+]? *block +(\w+)", file.read_text(encoding="utf-8"))
    return []


def _read_template(file: Path) -> str:
    """Read a template, and check that it is trusted, because it is bash code that runs as this user."""
    try:
        source = SiteSource.read(file)
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file", hint=HINT) from None
    trust.require_trusted_template(source)
    return source.text


class _Environment(sandbox.TemplateEnvironment):
    def join_path(self, template: str, parent: str) -> str:
        layer_number, _, name = parent.rpartition(":")
        if ":" in template:
            return template
        return f"{int(layer_number) + 1}:{template}" if layer_number and name == template else template


def create_environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    """Return the Jinja environment for templates in some folders, highest layer first."""
    cache_folder = paths.user_cache_folder("templates")
    environment = _Environment(
        loader=_LayeredLoader(folders),
        bytecode_cache=sandbox.PrivateBytecodeCache(str(cache_folder)) if cache_folder.is_dir() else None,
        undefined=jinja2.StrictUndefined,
        comment_start_string="<#",  # {# occurs in bash, as in ${#array[@]}
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "quote": quoting.quote,
        "expand": quoting.expand,
        "directive": quoting.quote_directive,
        "word": quoting.quote_word,
        "words": quoting.quote_words,
        "wrapped": quoting.wrap_options,
        "variables": quoting.list_variables,
        "data_variable": data_variable,
    }
    return environment


def check_template(text: str, name: str) -> None:
    """Check the syntax of a template without rendering it.

    Args:
        text: The template.
        name: The name of the template in messages.

    Raises:
        HpcrunError: The syntax is wrong; the message contains the line.
    """
    try:
        create_environment(()).parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise HpcrunError(f"{name}:{error.lineno}: {error.message}", hint=HINT, exit_code=1) from None
