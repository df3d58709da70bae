import pytest

from echelon.agent.evidence import add_calls, parse_call
from echelon.diagnosis.evidence import Frame, ThreadStack


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("    time.sleep(600)", "time.sleep"),
        ("sleep(3)  # wait(5)", "sleep"),
        ("work.wait()", "work.wait"),
        ("batch = self.queue.get(timeout=None)", "self.queue.get"),
        ("with lock:", "with lock"),
        ("with self.lock as held:", "with self.lock"),
        ("async with lock:", "with lock"),
        ("with open(path) as file:", "open"),
        ("dist.all_reduce(torch.ones(4))", ""),
        ("data = json.loads(file.read())", "file.read"),
        ("if ready(): wait()", "wait"),
        ("while not done(x):", "done"),
        ("for batch in loader:", ""),
        ("x = y", ""),
        ("", ""),
        ("def f(x):", ""),
        ("class A(B):", ""),
        ("@decorate(x)", ""),
        ("upload(key='secret(1)', wait=\"f(2)\")", "upload"),
        ("a" * 100 + "()", "a" * 60),
    ],
)
def test_call_of_a_source_line(line, call):
    assert parse_call(line) == call


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import time\n\n\ndef load():\n    time.sleep(600)\n\n\nload()\n")
    return str(path)


def calls(*frames):
    (thread,) = add_calls([ThreadStack(frames=frames, is_main=True)])
    assert [(one.file, one.line) for one in thread.frames] == [(one.file, one.line) for one in frames]
    return [one.call for one in thread.frames]


def test_innermost_user_frame_gets_its_call(script):
    library = Frame(file="/usr/lib/python3.11/threading.py", line=1, function="wait")
    inner, outer = Frame(file=script, line=5, function="load"), Frame(file=script, line=8, function="<module>")
    assert calls(library, inner, outer) == ["", "time.sleep", ""]


@pytest.mark.parametrize(
    ("name", "line"), [("train.py", 0), ("train.py", 99), ("absent.py", 5), ("train.txt", 5), ("", 5)]
)
def test_line_that_cannot_be_read_gives_no_call(script, name, line):
    file = script.replace("train.py", name)
    assert calls(Frame(file=file, line=line, function="f")) == [""]


def test_stack_without_user_code_stays_unchanged():
    thread = ThreadStack(frames=(Frame(file="/usr/lib/python3.11/queue.py", line=1, function="get"),))
    assert add_calls([thread]) == (thread,)
