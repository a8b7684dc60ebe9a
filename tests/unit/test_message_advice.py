"""What messages of programs mean, by the tables in ``why/messages``."""

import re
import tomllib
from pathlib import Path

import pytest

from hpcrun.why import message_advice
from hpcrun.why.message_advice import advise


@pytest.mark.parametrize(("message", "words"), [
    ("loadFromFile()-- After loading 1156 out of 2326 objects: Input/output error", "file system or disk failed"),
    ("ERROR: Failed to open output file `/mnt/job/data.out' (errno=2)", "does not exist on the node"),
    ("open /scratch/x: permission denied", "may not do that"),
    ("IOError: connect: connection refused (ECONNREFUSED)", "nothing listens"),
    ("Command '/bin/sh run.sh' returned non-zero exit status 137, error info: .", "memory ran out"),
    ("terminated with an error exit status (151)", "number of a signal"),
    ("==> Error: ProcessError: Command exited with status -4:", "illegal instruction"),
    ("job step finished with code 7", "only the exit code"),
    ("object 'x' not found", "not defined at this point"),
    ("ERROR: Species not found in database.", "misspelt"),
    ("SCF did not converge after 100 cycles", "did not converge"),
    ("Maximum DLPNO iterations exceeded.", "did not converge"),
    ("code: 98, reason: invalid device function", "has no code for this GPU"),
    ("cuBLAS error: CUBLAS_STATUS_ARCH_MISMATCH", "does not support this GPU"),
    ("CUDA error 802: cudaErrorSystemNotReady", "nvidia-fabricmanager"),
    ("Input/output error - UNDELIVERABLE", "could not deliver a message"),
    ("opal_cuda_check_bufs", "two Open MPI versions"),
    ("_ZN3c104cuda14ExchangeDeviceEa", "PyTorch's"),
    ("_ZN10tensorflow8OpKernel", "TensorFlow's"),
    ("PyUnicode_AsUTF8AndSize", "another Python version"),
    ("No module named 'preparation.cells'", "does not find that module"),
    ("Assertion `lhs.cols() == rhs.rows()' failed.", "two sizes in the program"),
    ("Error: invalid type: null, expected f64, line: 33, column: 10", "not in the form that it expects"),
])  # fmt: skip
def test_a_message_has_a_meaning(message, words):
    assert words in advise(message)


def test_words_in_a_path_mean_nothing():
    assert not advise("/opt/cuda/gpu/missing/lock.cuh(273): stop: expected an identifier")


def test_a_message_of_which_only_the_program_knows_has_no_meaning():
    assert not advise("pt2_collector: sending signal (2)")


@pytest.mark.parametrize("message", [
    "cache entry not found: fingerprint mismatch", "user passphrase wrong", "config passed is not valid",
    "Unexpected message received in worker", "Read would block", "CUDA error 4: driver shutting down",
])  # fmt: skip
def test_a_message_of_another_program_has_no_meaning(message):
    assert not any(word in advise(message) for word in ("Slurm", "image", "Apptainer", "kernel accessed"))


def test_the_meaning_of_a_message_has_no_placeholder():
    tables = Path(message_advice.__file__).with_name("messages").glob("*.toml")
    advices = [entry["advice"] for table in tables for entry in tomllib.loads(table.read_text())["message"]]
    assert not [advice for advice in advices if re.search(r"\{(?:host|site|job_id|node)\}", advice)]
