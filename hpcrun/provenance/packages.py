"""``python -m hpcrun.provenance.packages``: the packages that this Python has, as ``pip freeze`` lists them.

The job's script calls it, so that the job's own Python answers; pip need not be there, and would take longer.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import Distribution, distributions


def frozen() -> list[str]:
    """Return a line for each package that Python finds, sorted: ``name==version``, or where it was installed from."""
    found: dict[str, str] = {}
    for package in distributions():
        name = package.metadata["Name"]
        if name and name.lower() not in found:  # the first on sys.path is the one that is imported
            found[name.lower()] = _line(name, package)
    return [found[name] for name in sorted(found)]


def _line(name: str, package: Distribution) -> str:
    try:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        url = str(origin["url"])
    except (ValueError, TypeError, KeyError):
        return f"{name}=={package.version}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info'].get('vcs')}+{url}@{origin['vcs_info'].get('commit_id')}"
    return f"{name} @ {url}"


def main() -> None:
    """Print them."""
    print(f"# Python {platform.python_version()}, {sys.executable}", *frozen(), sep="\n")


if __name__ == "__main__":
    main()
