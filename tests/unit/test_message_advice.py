"""What messages of programs mean, by the tables in ``why/messages``."""

import pytest

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
])  # fmt: skip
def test_a_message_has_a_meaning(message, words):
    assert words in advise(message)


def test_words_in_a_path_mean_nothing():
    assert not advise("/opt/cuda/gpu/missing/lock.cuh(273): stop: expected an identifier")


def test_a_message_of_which_only_the_program_knows_has_no_meaning():
    assert not advise("pt2_collector: sending signal (2)")
