"""Install pip from its wheel on PyPI, for a Python that comes without ensurepip. Standard library only."""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/simple/pip/"

request = urllib.request.Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
with urllib.request.urlopen(request, timeout=60) as answer:
    files = json.load(answer)["files"]
wheels = [file for file in files if re.fullmatch(r"pip-[\d.]+-py3-none-any\.whl", file["filename"])]
newest = max(wheels, key=lambda file: [int(part) for part in file["filename"].split("-")[1].split(".")])
with urllib.request.urlopen(newest["url"], timeout=60) as answer:
    wheel = answer.read()
if hashlib.sha256(wheel).hexdigest() != newest["hashes"]["sha256"]:
    sys.exit(f"{newest['url']} did not arrive whole; try again")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / newest["filename"]
    path.write_bytes(wheel)
    # a wheel is a zip file that Python can run from
    subprocess.run([sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", str(path)], check=True)
