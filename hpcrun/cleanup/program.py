"""The program that nodes run: the text of a few modules, so that a node needs Python and no hpcrun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODULES = ("schedulers/processes", "cleanup/belonging", "removal", "cleanup/files", "cleanup/sweep")
"""In the order in which they import each other; they import nothing else but the standard library."""

_PROGRAM = """\
import json, sys, types
texts, request = json.loads({content!r})
for name, text in texts.items():
    for module in [name[:at] for at, letter in enumerate(name) if letter == "."] + [name]:
        if module not in sys.modules:
            sys.modules[module] = types.ModuleType(module)
            sys.modules[module].__path__ = []
            package, _, own = module.rpartition(".")
            if package:
                setattr(sys.modules[package], own, sys.modules[module])
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
sys.modules[name].main(request)
"""


def program(request: dict[str, Any]) -> str:
    """Return the text of a program that does what a request to `hpcrun.cleanup.sweep.main` says."""
    package = Path(__file__).parents[1]
    texts = {f"hpcrun.{name.replace('/', '.')}": (package / f"{name}.py").read_text() for name in MODULES}
    return _PROGRAM.format(content=json.dumps([texts, request]))
