"""The job: what it works out from itself, and which variables are kept out of files."""

import json
import os
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.codec import decode, encode
from echelon.job import MASK, Job, Policies, Resources, Script, ScriptKind, looks_secret, mask_secrets

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py")

as_typed = st.binary(max_size=20).filter(lambda data: b"\0" not in data).map(os.fsdecode)
counts = st.integers(1, 64)
durations = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=30))
jobs = st.builds(
    Job,
    name=st.text(max_size=10),
    scheduler=st.text(max_size=10),
    script=st.builds(
        Script, kind=st.sampled_from(ScriptKind), target=as_typed, args=st.lists(as_typed, max_size=5).map(tuple)
    ),
    cwd=as_typed,
    python=as_typed,
    resources=st.builds(
        Resources, nodes=counts, min_nodes=st.none() | counts, procs_per_node=counts, time_limit=st.none() | durations
    ),
    policies=st.builds(Policies, restarts=counts, notice=durations, hang_timeout=st.none() | durations),
    env=st.dictionaries(st.text("ABC_", min_size=1), as_typed, max_size=3),
    secret_env=st.lists(st.text("ABC_", min_size=1), max_size=3).map(tuple),
    cold=st.booleans(),
    ports=st.none() | st.just("29500-29599"),
)


@given(jobs)
def test_job_with_any_bytes_is_unchanged_by_run_json(job):
    text = json.dumps(encode(job), indent=2).encode("ascii")
    assert decode(Job, json.loads(text)) == job


@pytest.mark.parametrize(
    ("cold", "kind", "warm"),
    [
        (False, ScriptKind.FILE, True),
        (False, ScriptKind.MODULE, True),
        (True, ScriptKind.FILE, False),
        (False, ScriptKind.COMMAND, False),
    ],
)
def test_only_python_starts_warm(cold, kind, warm):
    assert (
        Job(name="x", script=Script(kind=kind, target="t"), cwd="/", python="p", scheduler="local", cold=cold).warm
        is warm
    )


def test_a_run_does_not_shrink_unless_asked():
    assert Resources(nodes=4).smallest == 4
    assert Resources(nodes=4, min_nodes=2).smallest == 2


def test_spares_are_nodes_too():
    resources = Resources(nodes=4, spare_nodes=2, procs_per_node=8)
    assert resources.all_nodes == 6


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "wandb_api_key",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "PGPASSWD",
        "MY_CREDENTIALS",
        "TOKEN",
        "GITHUB_TOKEN_FILE",
    ],
)
def test_secret_names_are_recognized(name):
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PWD", "LR", "HOME"])
def test_other_names_are_not_secrets(name):
    assert not looks_secret(name)


def test_only_secrets_are_masked():
    assert mask_secrets({"HF_TOKEN": "hf_123", "HOME": "/root"}) == {"HF_TOKEN": MASK, "HOME": "/root"}


def test_mask_does_not_show_the_length():
    assert mask_secrets({"A_KEY": "x"}) == mask_secrets({"A_KEY": "x" * 100})
