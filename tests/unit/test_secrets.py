"""Secrets lie in a file of their own, for their owner alone, and are shown nowhere; the job gets them literally."""

import json
import os
import shutil
import stat
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpcrun
from hpcrun import secrets
from hpcrun.jobs.runs import Run
from hpcrun.script import quoting
from hpcrun.secrets import Vault, is_secret, mask, mask_code, mask_command
from tests.waiting import wait_until

TOKEN = "hf_abcDEF123456789"
PROXY = "http://me:pa55word@proxy.example.org:8080"
SECRET = 'it\'s $(touch canary) "q"\nline `x` \\'
ARGV = [
    "--api-key=sk_test_1234567",
    "--password",
    "hunter2",
    f"--url={PROXY}",
    "--num-tokens",
    "123456",
    "API_KEY=abcdef1",
]
PROGRAM = [
    "sh",
    "-c",
    'printf "%s\\0" "$HF_TOKEN" "$DB_PASSWORD" "$https_proxy" "$@" >"$HPCRUN_RUN_DIR/got"',
    "x",
    *ARGV,
]
ENVIRONMENT = {"HF_TOKEN": TOKEN, "DB_PASSWORD": SECRET, "https_proxy": PROXY, "TOKENIZERS_PARALLELISM": "false"}
HIDDEN = [TOKEN, "canary", "pa55word", "sk_test_1234567", "hunter2", "abcdef1"]
GOT = [TOKEN, SECRET, PROXY, *ARGV]


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "abcdef12", True),
        ("--api-key", "abcdef12", True),
        ("WANDB_API_KEY", "abcdef12", True),
        ("AWS_SECRET_ACCESS_KEY", "abcdef12", True),
        ("apiKey", "abcdef12", True),
        ("OPENAI_APIKEY", "abcdef12", True),
        ("MYSQL_PASSWORD", "x", True),
        ("DB_PASSWD", "x", True),
        ("client-secret", "abc", True),
        ("GCP_CREDENTIALS", "abcdef12", True),
        ("SSH_PRIVATE_KEY", "abcdef12", True),
        ("--auth-token", "abcdef12", True),
        ("PGPASSWORD", "abcdef", True),
        ("MYSQL_PWD", "abcdef12", True),
        ("DB_PASS", "abcdef12", True),
        ("SSHPASS", "abcdef12", True),
        ("MYPASS", "abcdef12", True),
        ("BYPASS", "abcdef12", False),
        ("COMPASS", "v12.3.4-5", False),
        ("--wandb-key", "abcdef12", True),
        ("AccountKey", "abcdef12==", True),
        ("authtoken", "abcdef12", True),
        ("AWS_SECRET_ACCESS_KEY", "/JalrXUtnFEMI/K7MDENG/bPxRfiCY1EXAMPLEKEY", True),
        ("--forward-pass", "fused_kernel", False),
        ("PWD", "/home/me", False),
        ("HF_TOKEN", "/home/me/token", False),
        ("--token-size", "abcdef12", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("max_tokens", "5000000", False),
        ("--num-tokens", "abcdef12", False),
        ("--pad-token", "<|endoftext|>", False),
        ("--eos_token", "endoftext", False),
        ("KEYBOARD", "abcdef12", False),
        ("--key", "abcdef12", False),
        ("KAGGLE_KEY", "0123456789abcdef0123456789abcdef", True),
        ("API_KEY_2", "abcdef12", True),
        ("--key", "0123456789abcdef0123456789abcdef", False),
        ("--sort-key", "val_loss_of_epoch_number_12", False),
        ("--sort-key", "abcdef12", False),
        ("MONKEY", "abcdef12", False),
        ("HF_TOKEN", "", False),
        ("HF_TOKEN", "$HF_TOKEN", False),
        ("HF_TOKEN_PATH", "/home/me/token", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json", False),
        ("SECRET", "~/secret", False),
        ("--token", "true", False),
        ("--token", "12345678", False),
        ("", "abcdef12", False),
    ],
)
def test_names_of_secrets_are_recognised(name, value, secret):
    assert is_secret(name, value) is secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"clone {PROXY}/x failed", "clone http://***@proxy.example.org:8080/x failed"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("http://me:pa@ss@proxy:8080", "http://***@proxy:8080"),
        ("clone https://0123456789abcdef0123@github.com/x", "clone https://***@github.com/x"),
        ("https://someone-with-a-long-name@x.org", "https://someone-with-a-long-name@x.org"),
        ("curl -H 'Authorization: token abcdef12'", "curl -H 'Authorization: token ***'"),
        ("git@github.com:lab/x", "git@github.com:lab/x"),
        (f"login with {TOKEN}!", "login with ***!"),
        ("HF_TOKEN=abcdef12 python", "HF_TOKEN=*** python"),
        ("python x.py --api-key=abcdef12 -api_key=abcdef12", "python x.py --api-key=*** -api_key=***"),
        ("x --env=HF_TOKEN=abcdef12 --set=a=b.api_key=abcdef12", "x --env=HF_TOKEN=*** --set=a=b.api_key=***"),
        ('{"api_key": "abcdef12"}', '{"api_key": "***"}'),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest", "***\nrest"),
        ("curl -H 'Authorization: Bearer abcdef12'", "curl -H 'Authorization: Bearer ***'"),
        ("Authorization: Basic YWJjOmRlZg==", "Authorization: Basic ***"),
        ("a Bearer authentication", "a Bearer authentication"),
        ("https://x.org/c?sv=2020&sig=abcdef12%3D&se=1", "https://x.org/c?sv=2020&sig=***&se=1"),
        ("https://x.org/c?X-Amz-Signature=abcdef12", "https://x.org/c?X-Amz-Signature=***"),
        ("https://hooks.slack.com/services/T00/B00/abcdef12", "https://hooks.slack.com/services/***"),
        ("KEY=x;AccountKey=abcdef12==;y=1", "KEY=x;AccountKey=***;y=1"),
        ("AIzaSyD-abcdef12", "***"),
        ("npm_abcdef12", "***"),
        ("sk-learn and risk-averse-strategies", "sk-learn and risk-averse-strategies"),
        ("max_tokens=500000 --token-size=123456", "max_tokens=500000 --token-size=123456"),
        ("TOKENIZERS_PARALLELISM=false", "TOKENIZERS_PARALLELISM=false"),
    ],
)
def test_texts_are_masked(text, masked):
    assert mask(text) == masked


def test_a_command_line_is_masked_after_options_such_as_password():
    words = "python x.py --password abcdef12 --api-key abcdef12 --auth-token --verbose --num-tokens 5000000"
    assert mask_command(words) == words.replace("abcdef12", "***")


@pytest.mark.parametrize(
    "word",
    [
        "--env=HF_TOKEN=abcdef12",
        "--export=ALL,HF_TOKEN=abcdef12",
        "--a=b=c.api_key=abcdef12",
        '{"lr": 0.1, "api_key": "abcdef12"}',
        '--config={"api_key": "abcdef12"}',
        "train --api-key abcdef12 --lr 0.1",
        "export API_KEY=abcdef12; train --token abcdef12",
    ],
)
def test_a_secret_inside_a_word_is_stored(word, tmp_path):
    vault = Vault()
    kept = vault.redact_argv([word]) + vault.redact_variables([("ARGS", word)])[0]
    assert vault.values == ["abcdef12"]
    assert kept == (word.replace("abcdef12", "<secret 1>"), "ARGS", word.replace("abcdef12", "<secret 1>"))


def test_values_are_masked_by_name_and_format():
    values = {
        "environment": {"API_KEY": "abcdef12", "N": 5, "PROXY": PROXY},
        "argv": ("x", [TOKEN]),
        "name": "abcdef12",
    }
    masked = {
        "environment": {"API_KEY": "***", "N": 5, "PROXY": mask(PROXY)},
        "argv": ("x", ["***"]),
        "name": "abcdef12",
    }
    assert secrets.mask_value(values) == masked


def test_secrets_of_a_site_file_are_shown_only_in_the_script(cli, isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    for number in (1, 2):
        proxy = f"http://joe:site-pw-{number}@proxy"
        text = f'environment.SITE_API_KEY = "site-secret-{number}"\nenvironment.HTTPS_PROXY = "{proxy}"\n'
        (isolated_home / f"mine{number}.toml").write_text(f'extends = "local"\n{text}')
    jobs = [hpcrun.submit(None, ["true"], site=f"./mine{number}.toml") for number in (1, 2)]
    for one in jobs:
        wait_until(one.done)
    compare = ["compare", *(one.job_id for one in jobs)]
    report = ["report", *(one.job_id for one in jobs), "-o", "r.html"]
    again = ["resubmit", jobs[0].job_id, "--site", "./mine2.toml", "--dry-run", "--json"]
    show, diff = ["site", "show", "./mine1.toml"], ["site", "diff", "./mine1.toml", "./mine2.toml"]
    for argv in (show, diff, compare, [*compare, "--script"], ["why", "last"], ["status"], report, again):
        for more in ([], ["--json"]) if argv not in (report, again) else ([],):
            _, out, err = cli(*argv, *more)
            shown = err if argv == again else out + err
            assert "Traceback" not in shown
            assert not [word for word in ("site-secret", "site-pw") if word in shown], (argv, more, shown)
            assert "***" in shown or argv[0] in {"why", "status", "report"}, (argv, more, shown)
    page = (isolated_home / "r.html").read_text()
    assert not [word for word in ("site-secret", "site-pw") if word in page]
    assert "***" in page
    assert "export SITE_API_KEY=site-secret-1" in cli("submit", "--site", "./mine1.toml", "--dry-run", "--", "true")[1]


def test_messages_about_a_submission_mask_secrets(cli, isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    (isolated_home / "x.py").touch()
    comment = "--sbatch=--comment=token=abcdef12"
    messages = [
        cli("submit", "x.py", "--site", "slurm", "--dry-run", comment)[2],
        cli("submit", "x.py", "--dry-run", "--api-key", "abcdef12")[2],
    ]
    assert ["abcdef12" in one for one in messages] == [False, False]
    assert all("***" in one for one in messages), messages


def test_literals_in_code_are_masked():
    code = 'token = tokenizer.encode(x)\nf(token=tokens_of(x), api_key="abcdef12")\nHF_TOKEN=os.environ["HF_TOKEN"]\n'
    assert mask_code(code) == code.replace("abcdef12", "***")


def test_code_is_masked_where_it_is_a_line_of_a_settings_file():
    code = "+WANDB_API_KEY=abcdef12\n+  api_key: abcdef12\n-export HF_TOKEN=abcdef12\n   - auth_token: abcdef12\n"
    assert mask_code(code) == code.replace("abcdef12", "***")
    code = "+    api_key: SecretStr\n+max_tokens: 123456\n+token=tokenizer(x1)\n+see auth_token: abcdef12 for more\n"
    assert mask_code(code) == code


def hidden(text):
    assert not [one for one in HIDDEN if one in text], text


def everywhere(directory):
    """Look at all that a run directory has, but the file of secrets and what the program wrote."""
    for file in directory.rglob("*"):
        if file.is_file() and file.name not in {secrets.SECRETS_FILE, "got"}:
            hidden(file.read_text(errors="replace"))


@pytest.fixture
def job(isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    return hpcrun.submit(None, PROGRAM, site="local", environment=ENVIRONMENT)


def test_the_job_gets_secrets_literally_and_only_secrets_env_contains_them(job, isolated_home):
    wait_until(job.done)
    assert (job.directory / "got").read_text().split("\0")[:-1] == GOT, job.stderr()
    everywhere(job.directory)
    assert stat.S_IMODE((job.directory / secrets.SECRETS_FILE).stat().st_mode) == 0o600
    assert not (isolated_home / "canary").exists()
    assert json.loads((job.directory / "job.json").read_text())["secrets"] == []


def test_no_command_shows_secrets_and_resubmit_restores_them(job, cli, isolated_home):
    wait_until(job.done)
    compare = ["compare", "last", "last", "--all"]
    again = ["resubmit", "last", "--dry-run"]
    report = ["report", "last", "-o", "r.html"]
    for argv in (["status"], ["status", "--json"], ["why", "last"], report, compare, [*compare, "--script"], again):
        _, out, err = cli(*argv)
        hidden(out + err)
    hidden((isolated_home / "r.html").read_text())
    assert cli("resubmit", "last", "-J", "again")[0] == 0
    (again,) = (isolated_home / "runs").glob("again-*")
    wait_until(lambda: Run(again).end_record())
    assert (again / "got").read_text().split("\0")[:-1] == GOT
    everywhere(again)
    (again / secrets.SECRETS_FILE).unlink()
    code, _, err = cli("resubmit", "last", "--dry-run")
    assert (code, "HINT: submit it again, with the same -x" in err) == (2, True)


def test_secrets_that_the_program_prints_are_masked_by_why_and_report(cli, isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    (isolated_home / "lab.toml").write_text('extends = "local"\nenvironment.API_KEY = "SiteKey77"\n')
    program = ["sh", "-c", 'echo "connect $DB_PASSWORD"; echo got $HF_TOKEN $API_KEY >&2; exit 3']
    secret_variables = {"DB_PASSWORD": "open sesame", "HF_TOKEN": "abc12345"}
    job = hpcrun.submit(None, program, site=str(isolated_home / "lab.toml"), environment=secret_variables)
    wait_until(job.done)
    assert "connect open sesame" in cli("logs", "last")[1]
    assert cli("report", "last", "-o", "r.html")[0] == 0
    shown = [*(cli(*argv)[1] for argv in (["why"], ["why", "--json"])), (isolated_home / "r.html").read_text()]
    for text in shown:
        assert ("connect ***" in text, "got *** ***" in text) == (True, True), text
        assert not [secret for secret in ("sesame", "abc12345", "SiteKey77") if secret in text]


def test_secrets_of_a_shared_run_are_readable_only_by_the_owner(isolated_home, monkeypatch):
    (isolated_home / "s.toml").write_text('extends = "local"\nshare_runs = "read"\n')
    run = hpcrun.submit(None, PROGRAM, site=str(isolated_home / "s.toml"), environment=ENVIRONMENT)
    wait_until(run.done)
    assert stat.S_IMODE((run.directory / secrets.SECRETS_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE((run.directory / "job.json").stat().st_mode) == 0o644


def test_a_dry_run_contains_no_secrets_and_can_be_submitted_by_hand(cli, isolated_home, monkeypatch):
    variables = [word for name, value in ENVIRONMENT.items() for word in ("-x", f"{name}={value}")]
    _, out, err = cli("submit", "--site", "local", *variables, "--dry-run", "--", *PROGRAM)
    hidden(out + err)
    assert "by hand, export hpcrun_secret_1" in out
    (isolated_home / "job.sh").write_text(out)
    before = {**os.environ, "HPCRUN_JOB_ID": "1"}
    done = subprocess.run(["bash", isolated_home / "job.sh"], env=before, capture_output=True, text=True, check=False)
    assert (done.returncode, "hpcrun_secret_1 is not set" in done.stderr) == (1, True)
    vault = Vault()
    vault.redact_variables(ENVIRONMENT.items())
    vault.redact_argv(PROGRAM)
    own = {f"hpcrun_secret_{number}": value for number, value in enumerate(vault.values, 1)}
    subprocess.run(["bash", isolated_home / "job.sh"], env={**before, **own}, check=True, capture_output=True)
    (got,) = (isolated_home / "runs").glob("*/got")
    assert got.read_text().split("\0")[:-1] == GOT


def test_tasks_of_a_sweep_get_secrets(isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)  # of a repository, code.diff would have what this test says
    program = ["sh", "-c", 'printf "%s\\0" "$HF_TOKEN" "$@" >"$HPCRUN_RUN_DIR/got"', "x", "--token=abcdef12"]
    jobs = hpcrun.submit(
        None, program, site="local", environment={"HF_TOKEN": TOKEN}, sweep={"password": ["one1", "two2"]}
    )
    for number, job in enumerate(jobs):
        wait_until(job.done)
        got = (job.directory / "got").read_text().split("\0")
        assert got[:-1] == [TOKEN, "--token=abcdef12", f"--password={['one1', 'two2'][number]}"]
    for file in jobs[0].directory.parent.rglob("*"):
        if file.is_file() and file.name not in {secrets.SECRETS_FILE, "got"}:
            assert not {"abcdef12", TOKEN, "one1", "two2"} & set(
                file.read_text().replace("'", " ").replace("=", " ").split()
            )


def test_a_changed_line_with_a_secret_is_masked_in_the_diff(isolated_home, monkeypatch):
    repository = isolated_home / "code"
    repository.mkdir()
    monkeypatch.chdir(repository)
    (repository / "train.py").write_text("print(1)\n")
    for argv in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *argv], check=True)
    (repository / "train.py").write_text(f'print(1)\nlogin(token="{TOKEN}", password="hunter2")\n')
    job = hpcrun.submit("train.py", site="local", no_gpu=True)
    diff = (job.directory / "provenance/code.diff").read_text()
    assert '+login(token="***", password="***")' in diff
    assert "*** in code.diff" in (job.directory / "provenance/git.json").read_text()
    wait_until(job.done)


def test_secrets_in_results_and_code_are_masked_in_output(cli, isolated_home, monkeypatch):
    repository = isolated_home / "code"
    repository.mkdir()
    monkeypatch.chdir(repository)
    program = repository / "train.sh"
    program.write_text("exit 1\n")
    for argv in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *argv], check=True)
    result = {"hf_token": TOKEN, "api_key": "abcdef12", "note": "uses open-sesame", "accuracy": 1}
    program.write_text(f"echo connect to open-sesame\necho '{json.dumps(result)}' >\"$HPCRUN_RUN_DIR/result.json\"\n")
    jobs = [
        hpcrun.submit(None, ["sh", str(program), f"--api-key={key}"], site="local")
        for key in ("open-sesame", "abcdef99")
    ]
    for job in jobs:
        wait_until(job.done)
    diff = (jobs[0].directory / "provenance/code.diff").read_text()
    assert ("+echo connect to ***" in diff, "open-sesame" in diff) == (True, False)
    (jobs[0].directory / "provenance/code.diff").write_text("+open-sesame\n")  # of an earlier version
    assert cli("report", jobs[0].job_id, "-o", "r.html")[0] == 0
    compare = [cli("compare", *more, jobs[0].job_id, jobs[1].job_id)[1] for more in (["--all"], ["--json", "--all"])]
    results = [cli("result", *words)[1] for words in ([jobs[0].job_id], [jobs[0].job_id, "--json"])]
    for text in ((repository / "r.html").read_text(), *compare, *results):
        assert "uses ***" in text
        assert not [secret for secret in (TOKEN, "abcdef12") if secret in text]
    assert "open-sesame" not in (repository / "r.html").read_text()


def test_known_secrets_are_masked_in_keys_and_in_urls():
    value = {"pass word/1": ["http://me:pass%20word%2F1@proxy", "pass%20word/1", "word"]}
    assert secrets.mask_known(value, ["pass word/1"]) == {"***": ["http://me:***@proxy", "***", "word"]}


def test_an_error_message_contains_no_secrets(cli):
    code, _, err = cli("submit", "--site", "local", "-x", TOKEN, "--", "x")
    assert (code, TOKEN in err) == (2, False)


def test_a_secret_in_a_site_file_is_a_warning_with_its_line(cli, isolated_home):
    (isolated_home / "s.toml").write_text(
        f'extends = "slurm"\nsbatch = ["--comment=token={TOKEN}"]\n[environment]\nhttps_proxy = "{PROXY}"\n'
        'HF_TOKEN = "abcdef12"\n[container]\nruntime = "apptainer"\nimage = "docker://me:pa55word@x.org/y"\n'
        "[partitions.gpu]\nteardown = [\"curl -H 'Authorization: token hunter2abc'\"]\n"
    )
    _, _, err = cli("site", "check", str(isolated_home / "s.toml"))
    for line, name in ((4, "https_proxy"), (5, "HF_TOKEN")):
        assert f"{isolated_home}/s.toml:{line}: environment.{name} looks like a secret" in err
    for line, key in ((2, "sbatch"), (8, "container.image"), (10, "line 1 of teardown")):
        assert f"{isolated_home}/s.toml:{line}: {key} seems to contain a secret" in err, err
    hidden(err)


PIECES = [
    '{"api_key": "abcdef12"}',
    " --token abcdef12",
    "<secret 1>",
    "<secret 2>",
    "<secret",
    TOKEN,
    PROXY,
    "'",
    '"',
    "$x",
    "`",
    "\\",
    "\n",
    " ",
    "a=",
    "--token",
    "é",
]
TEXT = st.lists(st.sampled_from(PIECES))


@given(st.lists(TEXT.map("".join), max_size=5))
def test_redacted_text_is_restored_exactly(tmp_path_factory, words):
    folder = tmp_path_factory.mktemp("vault")
    vault = Vault()
    kept = vault.redact_argv(["prog", *words])
    secrets.write_secrets(folder, vault.values)
    text = json.dumps(kept)
    assert json.loads(secrets.restore_secrets(text, folder)) == ["prog", *words]
    source_line = f"source {folder}/{secrets.SECRETS_FILE}; " if vault.values else ""
    program = f"{source_line}printf '%s\\0' {quoting.quote_words(kept)}"
    out = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=folder).stdout
    assert out.split("\0")[:-1] == ["prog", *words]
    shutil.rmtree(folder)


@pytest.mark.parametrize("piece", ["x", "eyJ", "a://", "://a:", "key=", "-----BEGIN PRIVATE KEY-----", "a = '", "a."])
def test_masking_a_long_line_is_fast(piece):
    begin = time.process_time()
    mask(piece * (2**18 // len(piece)))
    mask_code(piece * (2**18 // len(piece)))
    assert time.process_time() - begin < 8
