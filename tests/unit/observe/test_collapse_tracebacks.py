"""What is left of tracebacks on the screen of the person who follows."""

import pytest

from echelon.observe.follow import TracebackCollapser


def traceback(rank, last, *, tag=None):
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    loss.backward()",
        last,
    ]
    return "".join(f"{tag or f'[{rank}] '}[rank{rank}]: {line}\n" for line in lines).encode()


ECHO = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:36064."


def test_echo_is_collapsed_to_one_line():
    assert TracebackCollapser().collapse(traceback(2, ECHO)) == f"[2] [rank2]: {ECHO}\n".encode()


@pytest.mark.parametrize("last", ["ValueError: this rank was told to fail", "RuntimeError: shapes do not match"])
def test_cause_is_shown_completely(last):
    assert TracebackCollapser().collapse(traceback(2, last)) == traceback(2, last)


def test_ranks_that_speak_at_once_are_kept_apart():
    mixed = zip(traceback(0, ECHO).splitlines(True), traceback(11, "ValueError: 7").splitlines(True), strict=True)
    shown = TracebackCollapser().collapse(b"".join(line for pair in mixed for line in pair))
    assert shown == f"[0] [rank0]: {ECHO}\n".encode() + traceback(11, "ValueError: 7")


@pytest.mark.parametrize("last", [ECHO, "ValueError: 7"])
def test_traceback_may_arrive_in_pieces(last):
    echoes, lines = TracebackCollapser(), traceback(3, last, tag="[ 3] ").splitlines(True)
    shown = b"".join(map(echoes.collapse, lines))
    assert shown == TracebackCollapser().collapse(b"".join(lines))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_incomplete_traceback_is_shown_at_the_end(cut):
    whole = b"".join(traceback(3, "ValueError: 7").splitlines(True)[:cut])
    echoes = TracebackCollapser()
    assert echoes.collapse(whole) == b""
    assert echoes.collapse(b"", to_the_end=True) == whole


def test_second_traceback_releases_the_first():
    half = traceback(1, ECHO).splitlines(True)[:2]
    assert TracebackCollapser().collapse(b"".join(half) + traceback(1, "ValueError: 7")) == b"".join(half) + traceback(
        1, "ValueError: 7"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"[0] step 3\n",
        b"[0] Traceback (most recent call last):\n",
        b"[0] [rank0]: a word of its own\n",
        b"no tag\n",
        b"[0] half",
    ],
)
def test_other_lines_pass_at_once(line):
    assert TracebackCollapser().collapse(line) == line


def test_chained_traceback_shows_the_original_error():
    between = b"[0] [rank0]: \n[0] [rank0]: During handling of the above exception, another exception occurred:\n"
    whole = traceback(0, ECHO) + between + traceback(0, "ValueError: 7")
    assert TracebackCollapser().collapse(whole) == f"[0] [rank0]: {ECHO}\n".encode() + between + traceback(
        0, "ValueError: 7"
    )
