"""What is left of tracebacks on the screen of the person who follows."""

import pytest

from echelon.observe.echoes import Echoes


def traceback(rank, last, *, tag=None):
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    loss.backward()",
        last,
    ]
    return "".join(f"{tag or f'[{rank}] '}[rank{rank}]: {line}\n" for line in lines).encode()


ECHO = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:36064."


def test_an_echo_is_one_line():
    assert Echoes().shortened(traceback(2, ECHO)) == f"[2] [rank2]: {ECHO}\n".encode()


@pytest.mark.parametrize("last", ["ValueError: this rank was told to fail", "RuntimeError: shapes do not match"])
def test_a_cause_is_shown_whole(last):
    assert Echoes().shortened(traceback(2, last)) == traceback(2, last)


def test_ranks_that_speak_at_once_are_kept_apart():
    mixed = zip(traceback(0, ECHO).splitlines(True), traceback(11, "ValueError: 7").splitlines(True), strict=True)
    shown = Echoes().shortened(b"".join(line for pair in mixed for line in pair))
    assert shown == f"[0] [rank0]: {ECHO}\n".encode() + traceback(11, "ValueError: 7")


@pytest.mark.parametrize("last", [ECHO, "ValueError: 7"])
def test_it_may_come_in_pieces(last):
    echoes, lines = Echoes(), traceback(3, last, tag="[ 3] ").splitlines(True)
    shown = b"".join(map(echoes.shortened, lines))
    assert shown == Echoes().shortened(b"".join(lines))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_what_was_cut_off_is_not_kept_back(cut):
    whole = b"".join(traceback(3, "ValueError: 7").splitlines(True)[:cut])
    echoes = Echoes()
    assert echoes.shortened(whole) == b""
    assert echoes.shortened(b"", to_the_end=True) == whole


def test_a_second_traceback_lets_go_of_the_first():
    half = traceback(1, ECHO).splitlines(True)[:2]
    assert Echoes().shortened(b"".join(half) + traceback(1, "ValueError: 7")) == b"".join(half) + traceback(
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
    assert Echoes().shortened(line) == line


def test_a_chained_one_shows_what_is_no_echo():
    between = b"[0] [rank0]: \n[0] [rank0]: During handling of the above exception, another exception occurred:\n"
    whole = traceback(0, ECHO) + between + traceback(0, "ValueError: 7")
    assert Echoes().shortened(whole) == f"[0] [rank0]: {ECHO}\n".encode() + between + traceback(0, "ValueError: 7")
