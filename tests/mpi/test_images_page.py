"""The commands of docs/images.md, executed as printed, make a data set, a model, its evaluation and a prediction."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.mpi.ranks import ROOT, clean_environ, needs_mpi, thorough
from tests.photos import write_photos

pytestmark = [pytest.mark.mpi, needs_mpi, thorough]

READ_EXPORTED = """
import json, tensorflow as tf
with open("flower.jpg", "rb") as file:
    image = tf.io.decode_jpeg(file.read(), channels=3)
model = tf.saved_model.load("flowers")
print(json.dumps(model.serve([image[tf.newaxis]])[0].numpy().tolist()))
"""


@pytest.fixture
def call(tmp_path):
    """Return a function that runs a command in a folder with photos, and returns its output."""
    write_photos(tmp_path / "photos", 100)
    environ = clean_environ(str(tmp_path)) | {"HPCRUN_SITE": "local"}

    def run(command):
        words = shlex.split(command.replace("hpcrun ", f"{sys.executable} -m hpcrun ", 1), comments=True)
        completed = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
        return completed.stdout

    return run


def test_the_commands_of_the_page(call, tmp_path):
    page = (ROOT / "docs/images.md").read_text()
    commands = re.findall(r"^\$ (hpcrun (?:data|submit|predict|export) .*)", page, re.MULTILINE)
    build, train, evaluate, predict, predict_all, export = commands[:6]
    call(build)
    call(train)
    precision, examples = re.search(
        r"precision @ 1 = (\S+) recall @ 5 = 1.0000 \[(\d+) examples\]", call(evaluate)
    ).groups()
    assert float(precision) > 0.9
    assert int(examples) == 40
    assert call(predict).splitlines()[2].split()[:2] == ["photos/flower/007.jpg", "flower"]
    images = json.loads(call(predict_all.replace("last", "resnet50").replace("--top 1 ", "")))["images"]
    assert sum(one["predictions"][0]["class"] == one["image"].split("/")[1] for one in images) > 180
    call(export.replace("last", "resnet50"))
    flower = tmp_path / "photos/flower/007.jpg"
    (tmp_path / "flower.jpg").write_bytes(flower.read_bytes())
    served = json.loads(call(f"{sys.executable} -c {shlex.quote(READ_EXPORTED)}"))
    (found,) = (one["predictions"] for one in images if one["image"] == "photos/flower/007.jpg")
    assert {one["output"]: one["probability"] for one in found} == pytest.approx(dict(enumerate(served)), abs=1e-4)
    assert (tmp_path / "flowers/assets.extra/labels.txt").read_text() == "china\nflower\n"
