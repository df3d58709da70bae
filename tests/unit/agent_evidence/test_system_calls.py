import pytest

from echelon.agent.process_state import SystemCall, parse_system_call
from echelon.agent.system_calls import NAMES, WITH_DESCRIPTOR, WITH_FOLDER, WITH_PATH

ARGS = "0x3 0x7ffd0 0x2 0x0 0x0 0x0 0x7ffde8 0x7f0a1"
NUMBERS = (3, 0x7FFD0, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "machine", "name"),
    [
        (f"0 {ARGS}", "x86_64", "read"),
        (f"63 {ARGS}", "aarch64", "read"),
        (f"257 {ARGS}", "x86_64", "openat"),
        (f"56 {ARGS}", "aarch64", "openat"),
        (f"202 {ARGS}", "x86_64", "futex"),
        (f"230 {ARGS}", "x86_64", "clock_nanosleep"),
        (f"9999 {ARGS}", "x86_64", ""),
        (f"0 {ARGS}", "riscv64", ""),
    ],
)
def test_numbers_have_names_on_each_machine(text, machine, name):
    assert parse_system_call(text, machine) == SystemCall(name=name, args=NUMBERS)


@pytest.mark.parametrize("text", ["", "running\n", "x y z"])
def test_process_outside_system_calls_has_none(text):
    assert parse_system_call(text, "x86_64") == SystemCall(name="")


def test_blocked_outside_of_a_system_call_has_no_name():
    assert parse_system_call("-1 0x7ffd0 0x7f0a1", "x86_64").name == ""


@pytest.mark.parametrize(
    ("text", "name"), [("23 0x0 0x0 0x0 0x0 0x7f", "nanosleep"), ("23 0x5 0x7f 0x0 0x0 0x0", "select")]
)
def test_select_without_descriptors_is_a_sleep(text, name):
    assert parse_system_call(text, "x86_64").name == name


def test_calls_with_files_are_in_the_tables():
    known = set(NAMES["x86_64"].values())
    assert known >= WITH_DESCRIPTOR | WITH_FOLDER | WITH_PATH
    assert not WITH_DESCRIPTOR & WITH_FOLDER
