"""A state as JSON and tensors: all supported types are restored, and other types are refused."""

import collections
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.train.checkpoint.tree import FlatState, rebuild_state, tensor_paths

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
keys = st.text() | st.integers() | st.booleans() | st.none()
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.dictionaries(st.text(), inner).map(collections.OrderedDict)
        | st.sets(st.integers())
    ),
    max_leaves=20,
)


def there_and_back(state):
    flat = FlatState(state)
    return rebuild_state(json.loads(json.dumps(flat.tree)), flat.tensors.__getitem__)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


@given(trees)
def test_plain_values_are_restored(state):
    assert same(there_and_back(state), state)


def test_optimizer_scheduler_and_rng_states_are_restored():
    state = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "milestones": collections.Counter({30: 1, 60: 2}),
        "inf": float("inf"),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "scalar": numpy.float32(1.5),
    }
    back = there_and_back(state)
    random.setstate(back["python"])
    numpy.random.set_state(back["numpy"])
    torch.set_rng_state(back["torch"])
    assert back["milestones"] == state["milestones"]
    assert type(back["milestones"]) is collections.Counter
    assert (back["size"], back["dtype"], back["device"]) == (state["size"], state["dtype"], state["device"])
    assert (back["scalar"], type(back["scalar"])) == (1.5, numpy.float32)
    assert (back["numpy"][1] == state["numpy"][1]).all()


def test_module_versions_are_restored():
    state = torch.nn.BatchNorm1d(3).state_dict()
    assert there_and_back(state)._metadata == state._metadata


def test_tied_weights_are_stored_once():
    tensor = torch.arange(6.0)
    flat = FlatState({"a": tensor, "b": [tensor, tensor[:3]], "empty": (torch.empty(0), torch.empty(0))})
    assert [one.numel() for one in flat.tensors] == [6, 3, 0, 0]
    assert list(tensor_paths(flat.tree)) == [
        (0, ("a",)),
        (0, ("b", 0)),
        (1, ("b", 1)),
        (2, ("empty", 0)),
        (3, ("empty", 1)),
    ]


class Unknown:
    pass


class Number(int):
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Unknown(), "Unknown"),
        (Number(3), "Number"),
        (lambda: None, "function"),
        (collections.defaultdict(list), "defaultdict"),
        (torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
        (torch.empty(3, device="meta"), "meta"),
        (numpy.array(["text"]), "<U4"),
        (numpy.array([Unknown()]), "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsupported_value_is_refused_with_its_path(value, words):
    with pytest.raises(ConfigError, match=r"optimizer\['state'\]\[0\]\[1\] ") as refusal:
        FlatState({"optimizer": {"state": {0: [1, value]}}})
    assert words in refusal.value.what
    assert "never a pickle" in refusal.value.why


@pytest.mark.parametrize(
    "tree",
    [[], {}, {"eval": "1"}, {"dict": [[1]]}, {"dtype": "load"}, {"tensor": 7}, {"list": 3}, {"dict": {"a": 1}}],
    ids=str,
)
def test_invalid_tree_is_refused(tree):
    with pytest.raises((ValueError, TypeError, IndexError)):
        rebuild_state(tree, [].__getitem__)
