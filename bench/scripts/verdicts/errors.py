"""One rank raises the named exception: errors.py KeyError."""

import json
import sys
import urllib.request
from pathlib import Path

from common import others_wait


class DataError(Exception):
    """An exception of the script itself."""


def recurse(depth=0):
    return recurse(depth + 1)


def data_error():
    raise DataError("sample 17 has no label")


def assertion():
    images, labels = 12, 13
    assert images == labels, "the number of images and labels differs"


FAILURES = {
    "KeyError": lambda: {"lr": 0.1}["learning_rate"],
    "IndexError": lambda: [1, 2, 3][7],
    "ValueError": lambda: int("1e-4"),
    "TypeError": lambda: "1" + 1,
    "AttributeError": lambda: None.backward(),
    "ZeroDivisionError": lambda: 1 // 0,
    "AssertionError": assertion,
    "RecursionError": recurse,
    "UnicodeDecodeError": lambda: b"\xff\xfe".decode(),
    "JSONDecodeError": lambda: json.loads("{lr: 0.1}"),
    "NotImplementedError": lambda: (_ for _ in ()).throw(NotImplementedError("use --fp32")),
    "DataError": data_error,
    "FileNotFoundError": lambda: Path("data/train.csv").read_text(),
    "IsADirectoryError": lambda: Path("/tmp").read_text(),
    "URLError": lambda: urllib.request.urlopen("http://127.0.0.1:9/model.bin", timeout=2),
}
others_wait()
FAILURES[sys.argv[1]]()
