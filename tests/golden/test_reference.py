"""The JSON Schema for editors and the page of all keys match the model.

After an intended change, run ``HPCRUN_UPDATE_GOLDEN=1 python -m pytest tests/golden`` and review the diff.
"""

import json
import os
import tomllib
from pathlib import Path

import jsonschema
import pytest

from hpcrun import paths
from hpcrun.sites.key_reference import render_page
from hpcrun.sites.schema import SCHEMA_FILE, site_file_schema

ROOT = Path(__file__).parents[2]
GENERATED = {
    f"site-configs/{SCHEMA_FILE}": lambda: json.dumps(site_file_schema(), indent=2) + "\n",
    "docs/site-keys.md": render_page,
}
SHIPPED = sorted(paths.shipped_folder("site-configs").glob("*.toml"))
INVALID = [
    'launcher = "mpirum"', "hosts = 5", "mpi.flavour = 'x'", "name = 'x'", "partitions.gpu.max_nodes = 'many'",
    "schema = 99", "environment.A = 1", "gpu.order = ['a']",
]  # fmt: skip


@pytest.mark.parametrize("name", GENERATED)
def test_files_generated_from_the_model_are_current(name):
    text = GENERATED[name]()
    if os.environ.get("HPCRUN_UPDATE_GOLDEN"):
        (ROOT / name).write_text(text)
    hint = "the model has changed: run HPCRUN_UPDATE_GOLDEN=1 python -m pytest tests/golden"
    assert (ROOT / name).read_text() == text, hint


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_site_files_name_the_schema_and_are_valid(file):
    assert file.read_text().partition("\n")[0] == f"#:schema ./{SCHEMA_FILE}", (
        f"the first line of {file.name} must be this one"
    )
    jsonschema.validate(tomllib.loads(file.read_text()), site_file_schema())


@pytest.mark.parametrize("text", INVALID)
def test_the_schema_rejects_what_hpcrun_rejects(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), site_file_schema())


def test_editors_can_read_the_schema():
    schema = site_file_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    assert '"null"' not in json.dumps(schema)
    assert {"type": "string", "enum": ["srun", "mpirun", "mpiexec", "ibrun", "none"]} in schema["properties"][
        "launcher"
    ]["anyOf"]
    assert schema["properties"]["launcher"]["default"] == "srun"
    tables = [schema, *schema["definitions"].values()]
    keys = [(key, facts) for table in tables for key, facts in table["properties"].items()]
    assert [key for key, facts in keys if not facts.get("description")] == []
    assert all(table["additionalProperties"] is False for table in tables)
