"""The import contracts in pyproject.toml, which `lint-imports` checks, list every module."""

import ast
import re
import tomllib
from pathlib import Path

import hpcrun
from hpcrun.launchers import REGISTRY

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS, ISLAND, IMPORTS = CONTRACTS[:3]


def module_names():
    """Return the names of the top-level modules and packages of hpcrun."""
    found = [path for path in Path(hpcrun.__file__).parent.iterdir() if not path.name.startswith(("_", "."))]
    return {path.stem for path in found if path.suffix == ".py" or (path / "__init__.py").exists()}


def short_names(module_names):
    return sorted(name.removeprefix("hpcrun.") for name in module_names)


def test_the_import_contracts_list_all_modules():
    assert short_names(ISLAND["source_modules"]) == sorted(module_names() - {"train"})
    assert short_names(IMPORTS["forbidden_modules"]) == sorted(
        module_names() - {"train", "run", "data", "declared_options", "option_rules", "permissions", "errors", "frozen"}
    )


def test_the_architecture_page_lists_the_checked_layers():
    text = (ROOT / "docs/architecture.md").read_text()
    chain = text[text.index("    cli | api > ") :].partition("\n\n")[0]
    assert " ".join(chain.split()) == " > ".join(LAYERS["layers"])


def compared_launchers(file):
    """Return the comparisons of a Python file between a launcher and a name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Compare):
            constants = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            if constants & set(REGISTRY.built_in) and "launcher" in ast.unparse(node):
                yield f"{file}:{node.lineno}: {ast.unparse(node)}"


def test_only_launchers_know_their_names():
    package = Path(hpcrun.__file__).parent
    python = [file for file in package.rglob("*.py") if file.parent.name != "launchers"]
    assert [found for file in python for found in compared_launchers(file)] == []
    names = "|".join(REGISTRY.built_in)
    branch = re.compile(
        rf"launcher\w*[}}\"]* *(=|!=|==|/|in) *[\"']?({names})\b|^ *({names})(\||\)|/)", re.MULTILINE | re.IGNORECASE
    )
    for file in (package / "shell").glob("*.bash"):
        assert not branch.search(file.read_text()), file
