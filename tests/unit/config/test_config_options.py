"""The one table of settings is consistent with itself."""

import pytest

from echelon.backends import REGISTRY
from echelon.config.option import Type
from echelon.config.options import BY_KEY, OPTIONS
from echelon.config.parse import decode_setting
from echelon.config.sources import INTERNAL_VARIABLES, Setting


@pytest.mark.parametrize("attribute", ["key", "flag", "variable"])
def test_names_of_settings_are_unique(attribute):
    names = [getattr(option, attribute) for option in OPTIONS]
    assert len(set(names)) == len(names)


def test_letters_of_settings_are_unique():
    letters = [option.short for option in OPTIONS if option.short]
    assert len(set(letters)) == len(letters)


def test_flag_and_variable_are_made_from_the_key():
    assert (BY_KEY["min_nodes"].flag, BY_KEY["min_nodes"].variable) == ("--min-nodes", "ECHELON_MIN_NODES")


def test_settings_use_no_internal_variable():
    assert not INTERNAL_VARIABLES & {option.variable for option in OPTIONS}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_a_default_is_a_value_one_could_set(option):
    if option.default is not None:
        decode_setting(option, Setting(key=option.key, value=option.default, origin="default"))
    assert option.help.endswith((".", "]"))


def test_every_scheduler_has_a_module_behind_it():
    assert set(BY_KEY["on"].choices) == set(REGISTRY)


def test_only_choices_have_choices():
    assert {option.type for option in OPTIONS if option.choices} == {Type.CHOICE}
