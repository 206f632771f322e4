"""A promise is checked with the weights that were trained, whatever a drafter rounds when it is served."""

import pytest

from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.registry import find, make_options
from outdraft.options.base import RoundedOptions
from outdraft.training.check import as_saved


@pytest.mark.parametrize("kind", learner_names())
def test_no_kind_is_checked_rounded(kind):
    method = find_learner(kind)
    drafter = method.drafter or kind
    options = make_options(find("drafter", drafter), {"model": "x", **as_saved(drafter), **method.drafts})
    assert not isinstance(options, RoundedOptions) or options.quantization == "none"


def test_what_rounds_nothing_gets_nothing():
    assert as_saved("ngram") == {}
