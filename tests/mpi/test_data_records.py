"""The shards of ``hpcrun data`` and those of TensorFlow are the same format."""

import subprocess
import sys

import pytest
from PIL import Image

from tests.mpi.ranks import needs_mpi

pytestmark = [pytest.mark.mpi, needs_mpi]

READ_WITH_TENSORFLOW = """
import sys, tensorflow as tf
features = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string, ""),
    "image/class/label": tf.io.FixedLenFeature([1], tf.int64, -1),
    "image/class/text": tf.io.FixedLenFeature([], tf.string, ""),
    **{f"image/object/bbox/{name}": tf.io.VarLenFeature(tf.float32) for name in ("xmin", "ymin", "xmax", "ymax")},
    "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
}
for record in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob("records/train-*"))):
    found = tf.io.parse_single_example(record, features)
    image = tf.io.decode_jpeg(found["image/encoded"], channels=3)
    print(found["image/class/label"].numpy()[0], found["image/class/text"].numpy().decode(), *image.shape)
"""

WRITE_WITH_TENSORFLOW = """
import tensorflow as tf
with tf.io.TFRecordWriter("train-00000-of-00001") as writer:
    for label in (1, 2):
        image = tf.io.encode_jpeg(tf.zeros([8, 10, 3], tf.uint8)).numpy()
        features = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "image/height": tf.train.Feature(int64_list=tf.train.Int64List(value=[8])),
            "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
"""


def run(folder, *command):
    completed = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_tensorflow_reads_the_records_with_inceptions_features(tmp_path):
    for name in ("roses", "tulips"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (9, 7)).save(tmp_path / "photos" / name / "1.jpg")
    run(tmp_path, "-m", "hpcrun", "data", "build", "photos", "records")
    lines = run(tmp_path, "-c", READ_WITH_TENSORFLOW).splitlines()
    assert sorted(lines) == ["1 roses 7 9 3", "2 tulips 7 9 3"]


def test_records_that_tensorflow_wrote_are_read(tmp_path):
    run(tmp_path, "-c", WRITE_WITH_TENSORFLOW)
    lines = run(tmp_path, "-m", "hpcrun", "data", "info", ".").splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("train")] == [["train", "2", "2"]]
