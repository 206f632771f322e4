"""Accuracies by head and rank are counted against the text's own tokens."""

import json

import pytest
import torch

from outdraft.core.learner import Guess, Outlook
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.trees.template import read_template
from outdraft.options.errors import ConfigError
from outdraft.training.lessons import Teacher
from outdraft.training.record import write_record
from outdraft.training.tree import count_ranks, measure_tree
from tests.training.toys import VOCAB, lesson_rows, toy_decoder


class Knowing:
    """Head 0 puts the right token second in every second row and first in the others; head 1 always third."""

    taps = ()

    def __init__(self, recurs=False):
        self.module, self._recurs = torch.nn.Linear(1, 1), recurs

    def look(self, lesson):
        tokens, guesses = lesson.ids[:, 1:].flatten(), []
        for head in range(2):
            rows = torch.arange(len(tokens))
            place = rows % 2 if head == 0 else torch.full_like(rows, 2)
            logits = torch.zeros(len(tokens), VOCAB)
            for ahead in range(4):
                logits[rows, (tokens + ahead) % VOCAB] = 4.0 - ahead
            place[rows % 16 >= 8] = 5  # where nothing counts, it knows nothing
            logits[rows, tokens] = 3.5 - place  # among 3, 2, 1
            guesses.append(Guess(states=logits, head=lambda states: states, rows=rows))
        return Outlook(guesses=guesses, recurs=self._recurs)


def batches():
    ids = torch.randint(VOCAB, (4, 17), generator=torch.Generator().manual_seed(0))
    first, second = lesson_rows(ids[:2]), lesson_rows(ids[2:])
    first.counts[:, 8:] = second.counts[:, 8:] = False
    return [first, second]


def test_ranks_are_counted_where_the_text_counts():
    found = count_ranks(Knowing(), Teacher(toy_decoder(), ()), batches(), ranks=3)
    assert found == [([16, 16, 0], 32), ([0, 0, 32], 32)]


def test_a_draft_that_is_the_same_at_every_depth_has_no_such_tree():
    with pytest.raises(ConfigError, match="one for each depth"):
        count_ranks(Knowing(recurs=True), Teacher(toy_decoder(), ()), batches(), ranks=3)


@pytest.mark.parametrize("kind", ["eagle1", "draft_model"])
def test_a_kind_that_is_no_head_is_refused(kind, tmp_path):
    """EAGLE-1 has an option `tree` too, which is another one."""
    write_record(tmp_path, {"kind": kind, "dtype": "float32", "target": {}, "promises": []})
    with pytest.raises(ConfigError, match=f"{kind} takes no fixed tree"):
        measure_tree(tmp_path, "zoo:target", ("x.jsonl",))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        measure_tree(tmp_path, "zoo:target", ())
    with pytest.raises(ConfigError, match="nodes=0"):
        measure_tree(tmp_path, "zoo:target", ("x.jsonl",), nodes=0)


@pytest.mark.parametrize("paths", [[[[0]]], [[{}]], [["0"]], [[True]], [[-1]], [[10**400]]])
def test_a_path_that_is_no_list_of_ranks_is_named(tmp_path, paths):
    (tmp_path / "tree.json").write_text(json.dumps({"paths": paths}))
    with pytest.raises(ConfigError, match="no path of ranks"):
        read_template(tmp_path / "tree.json")
    (tmp_path / "tree.json").write_text(json.dumps({"paths": [[0]], "accuracies": [[10**400]]}))
    with pytest.raises(ConfigError, match="holds no tree"):
        read_template(tmp_path / "tree.json")


@pytest.mark.parametrize("kind", ["medusa", "hydra", "blockwise"])
def test_heads_that_use_the_targets_own_are_counted_in_its_number_format(kind):
    target, method = toy_decoder().bfloat16(), find_learner(kind)
    options = method.options() if kind == "blockwise" else method.options(own_projections=False)
    learner = method.new(options, target, 0)
    counted = count_ranks(learner, Teacher(target, learner.taps), batches(), ranks=3)
    assert all(seen for _, seen in counted)
