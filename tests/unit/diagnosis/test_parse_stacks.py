"""The stacks of faulthandler, as Python 3.10 to 3.15 write them."""

import pytest
from hang_samples import (
    PROJECT,
    RECORDED,
    asleep,
    frame,
    in_collective,
    main_stack,
    process,
    recording,
    stdlib_frame,
    torch_frame,
)

from echelon.diagnosis.evidence import Frame, ThreadStack
from echelon.diagnosis.stacks import (
    format_grouped_stacks,
    format_location,
    is_user_code,
    main_thread,
    parse_stacks,
    user_frame,
)

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
HEAD = "Current thread 0x00007f02ed69eb80 (most recent call first):\n"


def recorded_stacks(python):
    return parse_stacks((RECORDED / "stacks" / f"faulthandler-{python}.txt").read_text())


@pytest.mark.parametrize("python", PYTHONS)
def test_main_thread_is_found_in_each_python(python):
    found = main_thread(recorded_stacks(python))
    assert [(one.file, one.line, one.function) for one in found.frames] == [
        (f"{PROJECT}/train.py", 13, "täglich"),
        (f"{PROJECT}/train.py", 14, "<module>"),
    ]
    assert not found.is_truncated


@pytest.mark.parametrize("python", PYTHONS)
def test_other_threads_are_found_in_each_python(python):
    others = [thread for thread in recorded_stacks(python) if not thread.is_main]
    assert [thread.frames[1].function for thread in others if not thread.is_truncated][-1] == "get"


@pytest.mark.parametrize("python", PYTHONS)
def test_cut_stack_is_marked_in_each_python(python):
    cut = [thread for thread in recorded_stacks(python) if thread.is_truncated]
    assert len(cut) == 1
    assert {one.function for one in cut[0].frames[2:]} == {"deep"}


def test_stack_of_a_rank_is_parsed_as_recorded():
    recorded = recording("missing")[1]
    threads = parse_stacks(recorded["stacks"])
    assert [one.function for one in threads[0].frames][:2] == ["load", "<module>"]
    assert threads[0].is_main


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_truncated_text_gives_no_broken_frame(length):
    text = recording("missing")[0]["stacks"][:length]
    assert all(one.file.endswith(".py") and one.function for thread in parse_stacks(text) for one in thread.frames)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0\0",
        "no stack here\n",
        "Fatal Python error: Aborted\n",
        "Thread 0xZZ (most recent call first):\n  File x",
        '  File "a.py", line 1 in f\n',
    ],
)
def test_garbage_gives_no_stack(text):
    assert parse_stacks(text) == ()


def test_thread_without_python_frame_has_no_frames():
    assert parse_stacks(HEAD + "  <no Python frame>\n") == (ThreadStack(is_main=True),)


def test_marks_between_frames_are_skipped():
    text = HEAD + '  Garbage-collecting\n  File "/p/a.py", line 3 in f\n'
    assert parse_stacks(text)[0].frames == (Frame(file="/p/a.py", line=3, function="f"),)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('  File "/p/a.py", line ??? in f', Frame(file="/p/a.py", line=0, function="f")),
        ("  File ???, line 7 in ???", Frame(file="", line=7, function="???")),
        ('  File "/p/a "b".py", line 7 in f', Frame(file='/p/a "b".py', line=7, function="f")),
        ('  File "/p/\\u4e2d.py", line 7 in f', Frame(file="/p/中.py", line=7, function="f")),
        ('  File "/p/\\udc80.py", line 7 in f', Frame(file="/p/\\udc80.py", line=7, function="f")),
        ('  File "/p/\x1b]0;title\x07a.py", line 7 in \x1b[31mf', Frame(file="/p/a.py", line=7, function="f")),
        ('  File "/p/\\x1b[31ma.py", line 7 in f', Frame(file="/p/a.py", line=7, function="f")),
    ],
)
def test_unusual_frames_are_parsed(line, expected):
    assert parse_stacks(HEAD + line + "\n")[0].frames == (expected,)


def test_main_thread_is_not_one_of_the_threading_module():
    worker = 'Thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 9 in _bootstrap\n'
    main = 'Thread 0x02 (most recent call first):\n  File "/p/a.py", line 3 in <module>\n'
    assert main_thread(parse_stacks(main + "\n" + worker)).frames[0].file == "/p/a.py"


def test_no_main_thread_if_only_others_were_written():
    worker = 'Thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 9 in _bootstrap\n'
    assert main_thread(parse_stacks(worker)) is None


def test_number_of_threads_is_limited():
    worker = (
        'Thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 9 in _bootstrap\n\n'
    )
    assert len(parse_stacks(worker * 500 + HEAD + '  File "/p/a.py", line 3 in <module>\n')) == 13


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/user/project/train.py", True),
        ("/home/user/echelon/train/model.py", True),
        ("train.py", True),
        ("/opt/conda/lib/python3.12/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("/opt/python/lib/python3.14t/queue.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/runs/a/echelon.pyz/echelon/agent/run_script.py", False),
        ("/runs/a/echelon.pyz/__main__.py", False),
        ("echelon/agent/run_script.py", False),
        ("", False),
    ],
)
def test_user_code_is_known_by_its_path(file, expected):
    assert is_user_code(Frame(file=file, line=1, function="f")) is expected


def test_own_package_is_not_user_code():
    from echelon.agent import run_script

    assert not is_user_code(Frame(file=run_script.__file__, line=1, function="f"))


def test_user_frame_is_the_innermost_one():
    assert user_frame(in_collective(place="train.py:61")) == frame("train.py:61")
    assert user_frame(ThreadStack(frames=(stdlib_frame("queue.py:1", "get"),))) is None


@pytest.mark.parametrize(
    ("thread", "state", "text"),
    [
        (asleep("dataset.py:88"), None, "dataset.py:88 (time.sleep)"),
        (main_stack(frame("dataset.py:88")), process(system_call="clock_nanosleep"), "dataset.py:88 (time.sleep)"),
        (main_stack(frame("dataset.py:88")), process(system_call="nanosleep"), "dataset.py:88 (time.sleep)"),
        (main_stack(frame("dataset.py:88")), process(system_call="futex"), "dataset.py:88"),
        (main_stack(stdlib_frame("queue.py:171", "get"), frame("a.py:5")), None, "a.py:5 (queue.get)"),
        (in_collective(place="train.py:61"), None, "train.py:61 (distributed_c10d.all_reduce)"),
        (None, None, ""),
        (ThreadStack(), None, ""),
        (ThreadStack(frames=(stdlib_frame("threading.py:1590", "_shutdown"),)), None, "threading._shutdown"),
        (
            ThreadStack(frames=(stdlib_frame("socket.py:7", "recv"), torch_frame("hub.py:9", "load"))),
            None,
            "torch/hub.py:9 (socket.recv)",
        ),
    ],
)
def test_location_names_line_and_call(thread, state, text):
    assert format_location(thread, state) == text


def test_equal_stacks_are_written_once():
    lines = format_grouped_stacks({0: asleep(), 1: ThreadStack(), 2: asleep()})
    assert lines == (
        "ranks 0, 2 (innermost call first)",
        "  /home/user/project/dataset.py:88 in load",
        "  /home/user/project/train.py:90 in <module>",
        "rank 1 (innermost call first)",
        "  no Python frame",
    )
