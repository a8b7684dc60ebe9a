"""Images that `hpcrun predict` reads in its child process."""

import os

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from PIL import Image

from hpcrun.train.predict_files import _read_image


def test_files_of_any_name_are_read_and_others_say_why_not(tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.png")
    Image.new("RGB", (40, 30), (200, 100, 50)).save(file)
    np.testing.assert_array_equal(_read_image(file, 8, 3), np.full((8, 8, 3), (200, 100, 50)))
    assert _read_image(tmp_path / "missing.png", 8, 3) == "No such file or directory"
    file.write_bytes(b"no image")
    assert _read_image(file, 8, 3).startswith("Unknown image file format. One of JPEG")
