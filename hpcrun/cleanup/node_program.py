"""Builder of the program that runs on nodes, from the source of a few modules: nodes need Python, but not hpcrun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODULES = ("schedulers/processes", "cleanup/job_identity", "removal", "cleanup/leftover_files", "cleanup/node")
"""The modules of the program in import order; they import only each other and the standard library."""

_PROGRAM = """\
import json, sys, types
texts, request = json.loads({content!r})
for name, text in texts.items():
    for module in [name[:index] for index, letter in enumerate(name) if letter == "."] + [name]:
        if module not in sys.modules:
            sys.modules[module] = types.ModuleType(module)
            sys.modules[module].__path__ = []
            package, _, attribute = module.rpartition(".")
            if package:
                setattr(sys.modules[package], attribute, sys.modules[module])
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
sys.modules[name].main(request)
"""


def build_program(request: dict[str, Any]) -> str:
    """Return the source of a program that executes a request to `hpcrun.cleanup.node.main`."""
    package = Path(__file__).parents[1]
    texts = {f"hpcrun.{name.replace('/', '.')}": (package / f"{name}.py").read_text() for name in MODULES}
    return _PROGRAM.format(content=json.dumps([texts, request]))
