"""Crashes in native code: the Python stack, the text of abort(), and shared memory."""

import pytest

from echelon.diagnosis.deaths import Cause, DeathEvidence, SharedMemory, explain_death

SEGV, BUS, ILL, FPE, ABRT = -11, -7, -4, -8, -6
MIB = 1 << 20
STACK = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f02 (most recent call first):
  File "/venv/lib/python3.11/site-packages/ext/ops.py", line 7 in gather
  File "/home/ada/train.py", line 88 in forward
  File "/home/ada/train.py", line 120 in <module>

Extension modules: ext (total: 1)
"""
OWN_STACK = 'Current thread 0x01 (most recent call first):\n  File "/home/ada/train.py", line 9 in step\n'


def death(code, **facts):
    return explain_death(DeathEvidence(code=code, **facts), 1, "n1")


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        (SEGV, Cause.SEGFAULT, "SIGSEGV (segmentation fault)"),
        (139, Cause.SEGFAULT, "SIGSEGV (segmentation fault)"),
        (BUS, Cause.BUS_ERROR, "SIGBUS (bus error)"),
        (ILL, Cause.ILLEGAL_INSTRUCTION, "SIGILL (illegal instruction)"),
        (FPE, Cause.ARITHMETIC_ERROR, "SIGFPE (arithmetic error)"),
        (ABRT, Cause.ABORTED, "aborted (SIGABRT)"),
        (134, Cause.ABORTED, "aborted (SIGABRT)"),
    ],
)
def test_signal_of_a_crash_names_its_cause(code, cause, words):
    found = death(code)
    assert found.cause is cause
    assert words in found.sentence


@pytest.mark.parametrize("where", ["file", "output"])
def test_stack_of_a_crash_names_the_library_and_the_script(where):
    facts = {"fatal_stack": STACK} if where == "file" else {"output": tuple(STACK.splitlines())}
    found = death(SEGV, **facts)
    assert found.sentence.endswith(
        " in /venv/lib/python3.11/site-packages/ext/ops.py:7 (gather), called from /home/ada/train.py:88 (forward)"
    )
    assert found.details == (
        'File "/venv/lib/python3.11/site-packages/ext/ops.py", line 7 in gather',
        'File "/home/ada/train.py", line 88 in forward',
        'File "/home/ada/train.py", line 120 in <module>',
    )


def test_crash_in_the_script_names_it_once():
    found = death(FPE, fatal_stack=OWN_STACK)
    assert found.sentence == "rank 1 on n1 crashed with SIGFPE (arithmetic error) in /home/ada/train.py:9 (step)"


def test_crash_without_a_stack_shows_the_last_lines():
    assert death(SEGV, output=("step 1", "step 2")).details == ("step 1", "step 2")


def test_long_stack_is_cut():
    frames = "".join(f'  File "a.py", line {n} in f\n' for n in range(1000))
    assert len(death(SEGV, fatal_stack=f"Current thread 0x1 (most recent call first):\n{frames}").details) == 10


def test_same_crash_at_the_same_place_has_the_same_signature():
    assert (
        death(SEGV, fatal_stack=STACK).signature
        == death(SEGV, fatal_stack=STACK.replace("0x00007f02", "0x1")).signature
    )
    assert death(SEGV, fatal_stack=STACK).signature != death(SEGV, fatal_stack=OWN_STACK).signature


WATCHDOG = (
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    (
        "  what():  [PG 0 Rank 0] Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=1204, OpType=ALLREDUCE)"
    ),
)
ECC = (
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered",
)
GLOO = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 4096 vs 4. ",
)
BAD_ALLOC = ("terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc")


@pytest.mark.parametrize(
    ("output", "cause", "words"),
    [
        (WATCHDOG, Cause.COLLECTIVE_TIMEOUT, "c10::DistBackendError: [PG 0 Rank 0] Process group watchdog"),
        (ECC, Cause.GPU_HARDWARE, "uncorrectable ECC"),
        (GLOO, Cause.COLLECTIVE_MISMATCH, "4096 vs 4"),
        (BAD_ALLOC, Cause.MEMORY_ERROR, "std::bad_alloc: std::bad_alloc"),
        (("free(): double free detected in tcache 2",), Cause.ABORTED, "free(): double free detected in tcache 2"),
        (("terminate called without an active exception",), Cause.ABORTED, "terminate called without an active"),
        (("python: x.cc:7: int f(): Assertion `n > 0' failed.",), Cause.ABORTED, "Assertion `n > 0' failed."),
        (("step 1", "step 2"), Cause.ABORTED, "aborted (SIGABRT)"),
    ],
)
def test_text_of_abort_names_the_cause(output, cause, words):
    found = death(ABRT, output=("step 0", *output, "Fatal Python error: Aborted"))
    assert found.cause is cause
    assert words in found.sentence


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        (SharedMemory(size=64 * MIB, free=64 * MIB), "probably /dev/shm is full, it has only 64 MiB"),
        (SharedMemory(size=1024 * MIB, free=1024 * MIB, least_free=0), "/dev/shm has 1 GiB and is full"),
        (SharedMemory(size=1024 * MIB, free=900 * MIB, least_free=MIB), "/dev/shm has 1 GiB and is full"),
    ],
)
def test_bus_error_with_full_shared_memory_names_it(shared, words):
    found = death(BUS, shared_memory=shared)
    assert found.cause is Cause.SHARED_MEMORY
    assert words in found.sentence
    assert "num_workers" in found.hint


@pytest.mark.parametrize(
    "shared",
    [SharedMemory(), SharedMemory(size=8192 * MIB, free=8000 * MIB, least_free=4000 * MIB)],
)
def test_bus_error_with_free_shared_memory_is_another_cause(shared):
    assert death(BUS, shared_memory=shared).cause is Cause.BUS_ERROR


def test_words_of_a_data_loader_worker_name_shared_memory():
    line = (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
    )
    assert death(BUS, output=(line,)).cause is Cause.SHARED_MEMORY
