"""The examples of docs/pipeline.md, executed as printed."""

import re

import pytest

from tests.mpi.ranks import ROOT, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@thorough
def test_the_page_works_as_printed(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/pipeline.md").read_text(), re.MULTILINE | re.DOTALL)
    training, plan, placement = blocks
    whole = "print('whole', keras.models.load_model('model.keras').evaluate(x, y, verbose=0)[1])"
    check = f"\nif hpcrun.train.is_chief():\n    {whole}\n    {plan}\n{placement}\n"
    program = tmp_path / "train.py"
    there = f"import os\nos.chdir({str(tmp_path)!r})\n"  # for model.keras
    program.write_text(there + training + check + "keras.Model(inputs, outputs)\nprint('RESULT {}')\n")
    done = run_keras(4, program)
    assert len(done.results()) == 4
    output = "\n".join(done.stdout)
    assert "2 stages, 2 replicas, 8 micro-batches (1f1b)" in output
    assert "1f1b, 8 micro-batches of 16 samples: the ranks compute" in output
    accuracies = [float(value) for value in re.findall(r"^accuracy (\S+)", output, re.MULTILINE)]
    assert len(accuracies) == 4
    (saved,) = re.findall(r"^whole (\S+)", output, re.MULTILINE)
    assert float(saved) == pytest.approx(accuracies[0], abs=1e-4)
