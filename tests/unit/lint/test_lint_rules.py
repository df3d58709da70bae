"""Every rule finds its own example, and nothing in the corrected one."""

import re

import pytest
from linting import findings, script

from echelon.lint.check import check_script
from echelon.lint.model import Severity
from echelon.lint.rules import BY_ID, FAMILIES, RULES

ALL = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


@ALL
def test_rule_finds_its_example(rule):
    assert rule.id in {found for _, found in findings(rule.bad)}


@ALL
def test_rule_is_silent_on_the_corrected_example(rule):
    assert list(check_script(script(rule.good), [rule])) == []


@ALL
def test_corrected_example_has_no_error(rule):
    errors = [one for one in check_script(script(rule.good), RULES) if one.severity is Severity.ERROR]
    assert errors == []


@ALL
def test_fix_and_sentence_of_a_finding_are_given(rule):
    [found, *_] = check_script(script(rule.bad), [rule])
    assert found.fix.strip()
    assert found.sentence
    assert not found.sentence.endswith(".")
    assert 1 <= found.line <= rule.bad.count("\n")


@ALL
def test_texts_of_a_rule_are_sentences(rule):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.reason.endswith(".")
    assert rule.practice.endswith(".")
    assert len(rule.reason) <= 110


def test_every_rule_is_in_one_family():
    assert [rule.id for family in FAMILIES.values() for rule in family] == [rule.id for rule in RULES]
    assert len(BY_ID) == len(RULES)
