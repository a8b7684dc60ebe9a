"""Help pages: panels of commands and options, complete names, one sentence for each, and an example."""

import importlib
import re
from pathlib import Path

import pytest

from hpcrun.cli import main

SUBCOMMANDS = {
    "site": ["init", "list", "show", "diff", "check", "schema", "test", "add", "update", "remove", "allow"],
    "data": ["build", "imagenet", "mnist", "cifar10", "synthetic", "info", "split"],
    "workload": ["list", "show", "new"],
}
PAGES = ["", *main.COMMANDS, *(f"{group} {name}" for group, names in SUBCOMMANDS.items() for name in names)]
EXAMPLES = re.compile(r"^  Examples:\n((?:    .*\n)+)", re.MULTILINE)


def rows(page):
    """Return the names and descriptions of the rows below the headings of a page."""
    found = []
    for panel in re.split(r"^\S.*:\n", page, flags=re.MULTILINE)[1:]:
        starts = re.finditer(r"^  ( *-.*?|\S+)(?:  +|\n {10,})(\S.*(?:\n {7,}\S.*)*)", panel, re.MULTILINE)
        found += [(name.strip(), " ".join(text.split())) for name, text in (start.groups() for start in starts)]
    return found


@pytest.fixture
def page(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def read(command):
        code, out, err = cli(*command.split(), "--help")
        assert (code, err) == (0, "")
        return out

    return read


@pytest.mark.parametrize("command", PAGES)
def test_page_has_complete_lines_and_an_example(page, command):
    text = page(command)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    (examples,) = EXAMPLES.findall(text)
    below_usage = text.partition("\n")[2].replace(examples, "")
    assert re.findall(r".*(?:\u2026|[^J]\.\.\.$|[<>\u2500\u2502]).*", below_usage, re.MULTILINE) == []
    assert f"hpcrun {command}".strip() in examples


@pytest.mark.parametrize("command", PAGES)
def test_each_row_is_one_sentence(page, command):
    described = rows(page(command))
    assert "-h, --help" in dict(described)
    own = {name: text for name, text in described if "-completion" not in name}  # Typer wrote those texts
    assert {
        name: text for name, text in own.items() if not re.fullmatch(r"(?:[A-Z]|slurm|hpcrun).{4,108}\.", text)
    } == {}
    assert {name: text for name, text in own.items() if re.search(r"\. [A-Z]", text)} == {}


def test_option_names_are_complete(page):
    text = page("submit")
    for name in ("--output-on-all-ranks", "--ntasks-per-node, --n-per-node N", "--gpus-per-node, --devices-per-node"):
        assert name in text


def test_commands_come_in_panels_with_the_first_lines_of_their_own_pages(page):
    listed = dict(rows(page("")))
    assert set(main.COMMANDS) <= set(listed)
    assert all(f"\n{panel}:\n" in page("") for panel in main.PANELS)
    for name in main.COMMANDS:
        (first, *_) = re.findall(r"\n\n((?:  .+\n)+)", page(name))
        assert listed[name] == " ".join(first.split())


def test_every_command_has_a_module():
    for name in main.COMMANDS:
        module = importlib.import_module(f"hpcrun.cli.{main.MODULES.get(name, name)}")
        assert hasattr(module, name) or hasattr(module, "group")
    modules = {file.stem for file in Path(main.__file__).parent.glob("*.py")}
    assert {main.MODULES.get(name, name) for name in main.COMMANDS} <= modules | set(SUBCOMMANDS)


def test_default_of_an_option_ends_its_sentence(page):
    assert "default: plain." in dict(rows(page("hostfile")))["--format FORMAT"]
    assert "default: 5." in dict(rows(page("cleanup")))["--grace SECONDS"]


@pytest.mark.parametrize("command", PAGES)
def test_a_default_is_described_once(page, command):
    assert all(description.count("default:") <= 1 for _, description in rows(page(command)))
