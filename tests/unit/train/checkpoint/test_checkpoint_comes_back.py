"""Loading on one rank: the saved state is restored, and a state that does not fit is refused."""

import threading

import pytest
from small_training import fingerprint, saved_at, things

from echelon.errors import ConfigError
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.verify import committed_checkpoints

pytestmark = pytest.mark.usefixtures("alone")

torch = pytest.importorskip("torch")


def test_loaded_state_equals_saved_state(tmp_path):
    before = saved_at(tmp_path, 7)
    drawn = torch.rand(3)
    after = things()
    with Checkpoint(tmp_path, every=None, **after) as checkpoint:
        assert checkpoint.step == checkpoint.saved == 7
        assert fingerprint(after) == fingerprint(before)
        assert torch.rand(3).equal(drawn), "the generators too"
    assert [str(name) for name in committed_checkpoints(tmp_path)] == ["step-00000007"], (
        "no step was taken, nothing was saved"
    )


def test_empty_folder_starts_at_step_0(tmp_path):
    checkpoint = Checkpoint(tmp_path / "new" / "folder", **things())
    assert checkpoint.load() is False
    assert (checkpoint.step, checkpoint.saved, checkpoint.epoch) == (0, None, 0)
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
    checkpoint.close()


def test_load_by_step_number(tmp_path):
    saved_at(tmp_path, 1, 2, 3)
    checkpoint = Checkpoint(tmp_path, **things())
    assert checkpoint.load(2)
    assert checkpoint.step == 2
    with pytest.raises(ConfigError, match="no checkpoint of step 5"):
        checkpoint.load(5)
    checkpoint.close()


class Counter:
    def __init__(self):
        self.state = {"count": 0, "extra": None}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_only_objects_with_a_state_are_saved(tmp_path):
    counter, own = Counter(), Counter()
    counter.state = {"count": 3, "list": [1, (2.5, None)], "tensor": torch.arange(3)}
    own.state = {"mine": torch.ones(2, 2, dtype=torch.bfloat16)}
    checkpoint = Checkpoint(tmp_path, counter=counter, per_rank={"own": own})
    checkpoint.save(wait=True)
    counter.state, own.state = {}, {}
    checkpoint.load()
    assert counter.state["list"] == [1, (2.5, None)]
    assert counter.state["tensor"].equal(torch.arange(3))
    assert own.state["mine"].equal(torch.ones(2, 2, dtype=torch.bfloat16))
    counter.state = {"thread": threading.Lock()}
    with pytest.raises(ConfigError, match=r"counter\['thread'\] is of type _thread.lock"):
        checkpoint.save()
    checkpoint.close()
    with pytest.raises(ConfigError, match="'what' cannot be saved: it is a int"):
        Checkpoint(tmp_path, what=3)


def test_state_that_does_not_fit_is_refused_by_name(tmp_path):
    saved_at(tmp_path, 1)
    other = {**things(), "model": torch.nn.Linear(3, 3)}
    checkpoint = Checkpoint(tmp_path, **other)
    with pytest.raises(ConfigError, match="'model' does not fit this Linear"):
        checkpoint.load()
    checkpoint.close()
    more = Checkpoint(tmp_path, **things(), scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ConfigError, match="the checkpoint has no 'scaler'") as error:
        more.load()
    assert "model, optimizer, scheduler" in error.value.why
    more.close()


def test_default_folder_is_in_the_run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = Checkpoint(**things())
    assert elsewhere.folder == tmp_path / "checkpoints"
    elsewhere.close()
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path / "run"))
    ours = Checkpoint(**things())
    assert ours.folder == tmp_path / "run" / "checkpoints"
    ours.close()


def test_another_optimizer_class_is_refused_before_loading(tmp_path):
    saved_at(tmp_path, 1)
    mine = things()
    mine["optimizer"] = torch.optim.SGD(mine["model"].parameters(), lr=0.1)
    before = fingerprint(mine)
    checkpoint = Checkpoint(tmp_path, **mine)
    with pytest.raises(ConfigError, match="'optimizer' is SGD, but its saved state is from AdamW"):
        checkpoint.load()
    assert fingerprint(mine) == before
    checkpoint.close()
