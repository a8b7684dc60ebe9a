"""Install pip from its wheel on PyPI, for a Python without ensurepip. It uses only the standard library."""

import hashlib
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

INDEX = "https://pypi.org/simple/pip/"  # the simple repository API, PEP 503
LINK = re.compile(r'href="([^"#]*/(pip-([\d.]+)-py3-none-any\.whl))#sha256=([0-9a-f]{64})"')


def fetch(url: str) -> bytes:
    """Return the content of a URL of the index."""
    request = urllib.request.Request(url, headers={"Accept": "text/html, */*;q=0.1"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


wheels = LINK.findall(fetch(INDEX).decode())
if not wheels:
    sys.exit(f"{INDEX} lists no wheel of pip; install your distribution's python3-venv, and run this program again")
link, name, _, digest = max(wheels, key=lambda wheel: [int(part) for part in wheel[2].split(".")])
wheel = fetch(urljoin(INDEX, link))
if hashlib.sha256(wheel).hexdigest() != digest:
    sys.exit(f"the checksum of {name} is wrong; try again")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / name
    path.write_bytes(wheel)
    # Python can run a program from a wheel, which is a zip file
    subprocess.run([sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", str(path)], check=True)
