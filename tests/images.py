"""A container image without a download: a folder that borrows the host's programs, for a real Apptainer."""

import os
import shutil
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]


def apptainer() -> str:
    """Return the folder of the program apptainer; a test is skipped where there is none."""
    own = REPO / ".apptainer/bin"
    found = shutil.which("apptainer", path=f"{own}:{os.environ['PATH']}")
    if not found:
        pytest.skip("no apptainer: bash tools/apptainer.sh")
    return str(Path(found).parent)


def image(folder: Path) -> Path:
    """Make an image, a folder as `apptainer build --sandbox` makes it; return it."""
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "root", "home"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "only-in-the-image"):
        (folder / "etc" / name).write_text("")
    return folder


def keys(image: Path, python: str = sys.executable, *more: str) -> str:
    """Return the table of a site file that runs ranks in an image, with a Python of the host."""
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, str(Path(python).parents[1]), *more])
    binds = ["/usr:/usr:ro", *(str(Path(folder).resolve()) for folder in prefixes)]
    # the host's /tmp, where all of a test is, is not seen but for what is bound
    args = ["--no-mount=tmp", "--writable-tmpfs"]
    return f'[container]\nimage = "{image}"\npython = "{python}"\nbinds = {list(dict.fromkeys(binds))}\nargs = {args}\n'
