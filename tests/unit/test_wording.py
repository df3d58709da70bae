import pytest

from echelon.wording import counted, sized


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_what_is_counted(number, text):
    assert counted(number, "node") == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (10 * 2**20, "10 MiB"),
        (2**40, "1 TiB"), (5000 * 2**40, "5000 TiB"),
    ],
)  # fmt: skip
def test_sizes(size, text):
    assert sized(size) == text
