"""A container image without a download: a sandbox folder that uses the host's programs, for a real Apptainer."""

import os
import shutil
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]


def apptainer_folder() -> str:
    """Return the folder of the program apptainer; skip the test if it is not installed."""
    bundled = REPO / ".apptainer/bin"
    found = shutil.which("apptainer", path=f"{bundled}:{os.environ['PATH']}")
    if not found:
        pytest.skip("apptainer is not installed: run bash tools/apptainer.sh")
    return str(Path(found).parent)


def create_image(folder: Path) -> Path:
    """Create an image like those of `apptainer build --sandbox`, and return its folder."""
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "root", "home"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "only-in-the-image"):
        (folder / "etc" / name).write_text("")
    return folder


def container_table(image: Path, python: str = sys.executable, *more: str) -> str:
    """Return the `container` table of a site file that runs ranks in an image with the host's Python."""
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, str(Path(python).parents[1]), *more])
    binds = ["/usr:/usr:ro", *(str(Path(folder).resolve()) for folder in prefixes)]
    # do not mount the host's /tmp, which contains the test's files: `binds` lists those that ranks need
    args = ["--no-mount=tmp", "--writable-tmpfs"]
    return f'[container]\nimage = "{image}"\npython = "{python}"\nbinds = {list(dict.fromkeys(binds))}\nargs = {args}\n'
