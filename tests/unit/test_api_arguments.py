"""Wrong arguments of hpcrun.submit: one error with the right call, and nothing is submitted."""

import re

import pytest

import hpcrun
from hpcrun.errors import HpcrunError


@pytest.mark.parametrize(
    ("arguments", "options", "message", "hint"),
    [
        (["ok.py", {"lr": 0.1}], {}, "args={'lr': 0.1} is no list of arguments", "args=['--lr=0.1']"),
        (["ok.py", "--lr 1"], {}, "args='--lr 1' is one text", "args=['--lr', '1']"),
        (["ok.py", 5], {}, "args=5 is no list of arguments", "args=['5']"),
        ([["python", "ok.py"]], {}, "target=['python', 'ok.py'] is a list", "hpcrun.submit('ok.py')"),
        ([["a.out", 3]], {}, "target=['a.out', 3] is a list", "hpcrun.submit(None, ['a.out', '3'])"),
        ([[]], {}, "target=[] is a list", "hpcrun.submit(None)"),
        ([lambda: 1], {}, "target is a function", 'hpcrun.submit("train.py")'),
        (["ok.py"], {"sweep": "lr=1,2"}, "sweep='lr=1,2' is no dictionary", "sweep={'lr': [0.1, 0.01], "),
        (["ok.py"], {"environment": "A=1"}, "environment='A=1' is no dictionary", "environment={'OMP_NUM_THREADS'"),
        (["ok.py"], {"env": {"A": 1}}, "unknown option 'env'", "did you mean environment?"),
        (["ok.py"], {"walltime": "1:00:00"}, "unknown option 'walltime'", "did you mean time?"),
        (["ok.py"], {"dry_run": True}, "unknown option 'dry_run'", "hpcrun submit ... --dry-run"),
        (["ok.py"], {"wait": True}, "unknown option 'wait'", ".result() waits for the job"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_right_one(fake_slurm, arguments, options, message, hint):
    with pytest.raises(HpcrunError, match=re.escape(message)) as raised:
        hpcrun.submit(*arguments, site="slurm", **options)
    assert hint in str(raised.value.hint)
    assert not fake_slurm.calls("sbatch")


def test_attach_takes_a_number(fake_slurm):
    run = fake_slurm.submit(job_id=9)
    assert hpcrun.attach(9).directory == run.directory


def test_functions_of_the_command_line_are_named(fake_slurm):
    with pytest.raises(AttributeError, match="it has submit and attach"):
        hpcrun.status  # noqa: B018
