"""A drafter that guesses whole blocks in one pass is a file of sixty lines, and keeps the contract."""

import pytest

from outdraft.testing.contract import CHECKS, sampled_distribution_is_the_targets
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject

ROW = DrafterRow(drafter="tests.drafters.mask_block:METHOD")


@pytest.fixture(scope="module")
def subject(tmp_path_factory) -> Subject:
    return Subject(ROW, tmp_path_factory.mktemp("block"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(check, subject):
    check(subject)


def test_its_texts_have_the_targets_distribution(tmp_path):
    sampled_distribution_is_the_targets(Subject(ROW, tmp_path, vocab_size=7))
