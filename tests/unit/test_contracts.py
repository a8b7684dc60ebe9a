"""The contracts on imports in pyproject.toml, which `lint-imports` checks: they leave no module out."""

import tomllib
from pathlib import Path

import hpcrun

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS, ISLAND, IMPORTS = CONTRACTS[:3]


def modules():
    """Return the names of all modules and packages right below hpcrun."""
    found = [path for path in Path(hpcrun.__file__).parent.iterdir() if not path.name.startswith(("_", "."))]
    return {path.stem for path in found if path.suffix == ".py" or (path / "__init__.py").exists()}


def named(words):
    return sorted(word.removeprefix("hpcrun.") for word in words)


def test_the_import_contracts_list_all_modules():
    assert named(ISLAND["source_modules"]) == sorted(modules() - {"train"})
    assert named(IMPORTS["forbidden_modules"]) == sorted(modules() - {"train", "options", "permissions", "errors"})


def test_the_architecture_page_lists_the_checked_layers():
    text = (ROOT / "docs/architecture.md").read_text()
    chain = text[text.index("    cli > ") :].partition("\n\n")[0]
    assert " ".join(chain.split()) == " > ".join(LAYERS["layers"])
