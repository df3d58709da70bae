"""What other processes wrote is read within bounds, and cannot move a terminal's cursor."""

import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.events import Kind, append_event, parse_event, read_events
from echelon.observe.status import read_verdict
from echelon.run_dir import RunDir
from echelon.untrusted import MAX_JSON_DEPTH, TerminalLogCleaner, clean_for_terminal, parse_json, read_regular
from echelon.wire.channel import HEADER, Channel, ChannelClosed
from echelon.wire.node_dir import NodeDir

DEEP = "[" * 100_000 + "]" * 100_000
RATHER_DEEP = "[" * 500 + "]" * 500


@pytest.mark.parametrize("text", [DEEP, RATHER_DEEP, '{"a":' * 500 + "1" + "}" * 500, "", "{", "\x00", "9" * 5000])
def test_json_that_is_broken_or_nested_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_json_of_ordinary_depth_is_read():
    text = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH
    assert json.dumps(parse_json(text)) == text
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_refused_if_asked(word):
    with pytest.raises(ValueError, match="is not a number"):
        parse_json(f"[{word}]", numbers=False)
    assert parse_json(f"[{word}]")


def test_only_regular_files_of_bounded_size_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_regular(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(OSError):
            read_regular(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular("/dev/zero")


def test_damaged_files_of_a_run_do_not_crash(tmp_path):
    run = RunDir(tmp_path)
    run.attempt(0).path.mkdir()
    run.attempt(0).error.write_text(DEEP)
    assert read_verdict(run, 0) is None
    append_event(run.events, Kind.STARTED, 0)
    with run.events.open("a") as events:
        events.write(f'{{"kind": "started", "time": 1, "x": {DEEP}}}\n')
    append_event(run.events, Kind.NOTICE, 0)
    assert [event.kind for event in read_events(run.events)] == [Kind.STARTED, Kind.NOTICE]
    assert parse_event(f'{{"kind": "started", "time": 1, "x": {RATHER_DEEP}}}') is None
    run.events.unlink()
    os.mkfifo(run.events)
    assert list(read_events(run.events)) == []


def test_damaged_error_file_of_a_rank_does_not_crash(tmp_path):
    node = NodeDir(tmp_path)
    node.error(0).write_text(f'{{"message": {DEEP}}}')
    assert node.read_error(0) is None
    node.error(0).unlink()
    node.error(0).symlink_to("/dev/zero")
    assert node.read_error(0) is None


@pytest.mark.parametrize("payload", [DEEP.encode(), b'{"is": ' + RATHER_DEEP.encode() + b"}", b"\xff", b"[]"])
def test_invalid_message_closes_the_channel(payload):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.sendall(HEADER.pack(len(payload)) + payload)
        with pytest.raises(ChannelClosed, match="not a message"):
            Channel.from_socket(ours).receive()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;cm0gLXJm\x1b\\after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("a\x9b2Jb\x1bc", "ab"),
        ("new\rold\x08\x07\x00", "newold"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("unfinished \x1b]0;title\nnext line", "unfinished \nnext line"),
        ("lone \x1b", "lone "),
        ("münchen 数 ✓", "münchen 数 ✓"),
    ],
)
def test_terminal_gets_text_without_control_codes(text, shown):
    assert clean_for_terminal(text) == shown


def test_only_colours_of_a_log_are_kept():
    assert clean_for_terminal("\x1b[1;31mred\x1b[0m\x1b[2Kx", colour=True) == "\x1b[1;31mred\x1b[0mx"
    shown = TerminalLogCleaner().feed(b"10%\r20%\r\n\x1b[32mok\x1b[m\x1b[1A\xff\n")
    assert shown == "10%\n20%\n\x1b[32mok\x1b[m\ufffd\n".encode()


def test_character_cut_between_two_chunks_of_a_log_is_shown():
    log, data = TerminalLogCleaner(), "größer 漢\r\n😀\n".encode()
    assert b"".join(log.feed(bytes([byte])) for byte in data) == "größer 漢\n😀\n".encode()


@given(st.text(alphabet="\x1b[]0;m2JHPc\x07\x9b\\\r\nab", max_size=40))
def test_escapes_are_removed_in_any_order(text):
    assert not set(clean_for_terminal(text)) & {"\x1b", "\x07", "\x9b", "\r"}


def test_long_text_is_cut():
    assert clean_for_terminal("x" * 50, most=10) == "x" * 10 + "..."
