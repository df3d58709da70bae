"""Modules that the starter imports before it forks ranks."""

from echelon.agent.torch_import import _preload


def test_failed_preload_does_not_stop_the_starter(capsys):
    _preload(("no_such_module_anywhere", "json"))
    assert "cannot preload no_such_module_anywhere" in capsys.readouterr().err
