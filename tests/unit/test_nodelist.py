"""Nodelists, compared with scontrol's output and with a simple reference implementation."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import HpcrunError
from hpcrun.nodelist import MAX_HOSTS, expand_counts, expand_nodelist, fold_hosts

VALID_IN_SLURM = {
    "n1": "n1",
    "n[1-3]": "n1 n2 n3",
    "n[9-10,09,1]": "n9 n10 n09 n1",
    "n[08-11]": "n08 n09 n10 n11",
    "n[9-010]": "n9 n10",
    "n[001-3]": "n001 n002 n003",
    "[1-3]": "1 2 3",
    "rack[1-2]n[01-03]": "rack1n01 rack1n02 rack1n03 rack2n01 rack2n02 rack2n03",
    "rack[01-02]n[9-10,1],x[3],y": "rack01n9 rack01n10 rack01n1 rack02n9 rack02n10 rack02n1 x3 y",
    "a[1-2]b[3-4]c[5-6]": "a1b3c5 a1b3c6 a2b3c5 a2b3c6 a1b4c5 a1b4c6 a2b4c5 a2b4c6",
    "n[3,1,3],n1,n1": "n3 n1 n3 n1 n1",
    "n2,n1,gpu-[1-2]": "n2 n1 gpu-1 gpu-2",
    "n1 n2\nn3": "n1 n2 n3",
    "n1,,n2,": "n1 n2",
}
ONLY_IN_HPCRUN = {  # Slurm 22.05 refuses suffixes, and blanks next to brackets
    "n1 n2\nn[3-4]\r\n": "n1 n2 n3 n4",
    "n[1-2]-ib": "n1-ib n2-ib",
    "n[1-2].cluster.org,login": "n1.cluster.org n2.cluster.org login",
    "n[1-2]x[08-09]y": "n1x08y n1x09y n2x08y n2x09y",
}


@pytest.mark.parametrize(("nodelist", "hosts"), (VALID_IN_SLURM | ONLY_IN_HPCRUN).items())
def test_hosts_are_expanded_in_order(nodelist, hosts):
    assert expand_nodelist(nodelist) == hosts.split()


SCONTROL = shutil.which("scontrol")


@pytest.mark.skipif(not SCONTROL, reason="scontrol is not installed")
@pytest.mark.parametrize("nodelist", [*VALID_IN_SLURM, "a[1-2]b[0-1]c[07-08]d[3,1]e[1-2]"])
def test_expansion_equals_that_of_scontrol(nodelist, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\n")  # scontrol waits for a minute without a slurm.conf
    command = [SCONTROL, "show", "hostnames", nodelist]
    slurm = subprocess.run(
        command, env=os.environ | {"SLURM_CONF": str(conf)}, capture_output=True, text=True, check=True
    )
    assert expand_nodelist(nodelist) == slurm.stdout.split()


@pytest.mark.parametrize(
    ("nodelist", "reason"),
    [
        ("", "names no host"),
        (" ,\n", "names no host"),
        ("n[1-3", "brackets"),
        ("n1-3]", "brackets"),
        ("n[1[2]]", "brackets"),
        ("n[]", "'' in brackets"),
        ("n[1,]", "'' in brackets"),
        ("n[1 -2]", "'1 -2' in brackets"),
        ("n[a-b]", "'a-b' in brackets"),
        ("n[1-2-3]", "'1-2-3' in brackets"),
        ("n[-1]", "'-1' in brackets"),
        ("n[٣]", "in brackets"),
        ("n[5-3]", "range 5-3 descends"),
        ("n1,n\x072", "not a host name"),
        ("n1,n2;reboot", "not a host name"),
        ("-oProxyCommand=x", "not a host name"),
        ("$(reboot)", "not a host name"),
        ("n[1-999999999999]", "1,000,000 hosts"),
        (f"n[1-{'9' * 5000}]", "in brackets"),
        ("a[1-1000]b[1-1000]c[1-2]", "1,000,000 hosts"),
        (f"n[1-{MAX_HOSTS}],m[1]", "1,000,000 hosts"),
    ],
)
def test_invalid_nodelists_are_refused_and_named(nodelist, reason):
    with pytest.raises(HpcrunError) as error:
        expand_nodelist(nodelist)
    assert reason in error.value.message
    assert repr(nodelist)[:100] in error.value.message
    assert len(error.value.message) < 6000
    assert error.value.hint


def test_100000_hosts_are_expanded():
    hosts = expand_nodelist("rack[001-100]n[0001-1000]")
    assert (len(hosts), hosts[0], hosts[1000], hosts[-1]) == (
        100_000,
        "rack001n0001",
        "rack002n0001",
        "rack100n1000",
    )


numbers = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4))
letters = st.text("abz-._", min_size=1, max_size=4).map("n{}".format)
items = st.tuples(letters, st.lists(numbers, max_size=3), st.booleans(), letters)


@given(st.lists(items, min_size=1, max_size=4))
def test_items_equal_the_reference_expansion(drawn):
    expression, expected = [], []
    for prefix, spans, suffixed, suffix in drawn:
        end = suffix if suffixed else ""
        inside = [f"{low:0{width}d}-{low + more}" for low, more, width in spans]
        expression.append(prefix + (f"[{','.join(inside)}]" if spans else "") + end)
        for low, more, width in spans:
            padding = max(width, len(str(low)))
            expected += [prefix + str(low + step).rjust(padding, "0") + end for step in range(more + 1)]
        expected += [] if spans else [prefix + end]
    assert expand_nodelist(",".join(expression)) == expected


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_several_brackets_expand_to_all_combinations(sizes):
    hosts = expand_nodelist("".join(f"{letter}[1-{size}]" for letter, size in zip("abcd", sizes, strict=False)))
    combinations = itertools.product(*(range(1, size + 1) for size in sizes))
    names = {
        "".join(f"{letter}{index}" for letter, index in zip("abcd", indices, strict=False)) for indices in combinations
    }
    assert len(hosts) == len(names)
    assert set(hosts) == names


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_counts_per_node_are_expanded(counts):
    runs = [(value, len(list(group))) for value, group in itertools.groupby(counts)]
    text = ",".join(f"{value}(x{times})" if times > 1 else f"{value}" for value, times in runs)
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["", "2,", "x", "2(x)", "2(x0)", "0", "-1", "2x3", "2(x3", "1(x9999999)"])
def test_invalid_counts_are_refused(text):
    with pytest.raises(HpcrunError, match="not a list of counts") as error:
        expand_counts(text)
    assert repr(text) in error.value.message


@pytest.mark.parametrize(("hosts", "folded"), [
    ("n1", "n1"),
    ("n1 n2 n3 n7", "n[1-3,7]"),
    ("n3 n1 n2 n1", "n[1-3]"),
    ("n9 n10", "n[9-10]"),
    ("n08 n09 n10 n11", "n[08-11]"),
    ("n099 n100", "n[099-100]"),
    ("rack1n1 rack1n2 rack2n1", "rack1n[1-2],rack2n1"),
    ("n1-ib n2-ib", "n[1-2]-ib"),
    ("login n2 n1", "login,n[1-2]"),
])  # fmt: skip
def test_hosts_are_folded_as_by_slurm(hosts, folded):
    assert fold_hosts(hosts.split()) == folded


@given(st.lists(st.from_regex(r"[a-z]{1,2}[0-9]{0,3}", fullmatch=True), min_size=1, max_size=12))
def test_folded_hosts_expand_to_the_same_hosts(hosts):
    assert sorted(expand_nodelist(fold_hosts(hosts))) == sorted(set(hosts))
