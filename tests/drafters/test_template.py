"""Trees of one form: chosen as brute force would, grown as they were chosen, read and refused."""

import json
from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.drafters.hydra.learn import LEARN as HYDRA
from outdraft.drafters.hydra.learn import HydraLearning
from outdraft.drafters.shared.trees.template import TemplateFile, best_template, expected_tokens, read_template
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from tests.drafters.drafting import draft_behind

rates = st.lists(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=2).map(lambda row: sorted(row, reverse=True)),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(rates, st.integers(1, 5))
def test_no_tree_of_as_many_nodes_accepts_more(accuracies, nodes):
    every = [path for depth in range(1, len(accuracies) + 1) for path in product(range(2), repeat=depth)]
    whole = [set(some) for some in combinations(every, min(nodes, len(every)))]
    closed = [some for some in whole if all(not path[:-1] or path[:-1] in some for path in some)]
    best = max(expected_tokens(accuracies, sorted(some)) for some in closed)
    chosen = best_template(accuracies, nodes)
    assert len(chosen) == min(nodes, len(every)) and set(chosen) in closed
    assert expected_tokens(accuracies, chosen) == pytest.approx(best)


def test_nodes_come_by_their_product():
    assert best_template([[0.6, 0.2], [0.5, 0.1]], 4) == ((0,), (0, 0), (1,), (1, 0))
    assert best_template([[0.6, 0.2], [0.5, 0.1]], 2) == ((0,), (0, 0))
    assert best_template([[0.9, 0.85], [0.9, 0.1]], 2) == ((0,), (1,))
    assert expected_tokens([[0.6, 0.2], [0.5, 0.1]], [(0,), (0, 0)]) == pytest.approx(1.9)


def test_a_rank_counts_for_no_more_than_a_better_one():
    assert best_template([[0.3, 0.5, 0.0]], 9) == ((0,), (1,)), "what is never right is left out"
    assert best_template([[0.3, 0.5], [0.9]], 3) == ((0,), (1,), (0, 0)), "the second counts for 0.3, not for 0.5"


PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (0, 0, 0))


def test_the_tree_is_grown_as_the_file_says(tmp_path):
    """Whatever the probabilities; cut by the budget."""
    target = tiny_model(vocab=31, layers=3, dtype=torch.float64)
    HYDRA.new(HydraLearning(), target, 0).save(tmp_path)
    TemplateFile(paths=PATHS).write(tmp_path / "tree.json")
    prompt, options = [3, 1, 4, 1, 5, 9], {"tree": str(tmp_path / "tree.json")}

    def grown(**more):
        draft = draft_behind(target, prompt, "hydra", tmp_path, **options, **more)
        parents, ranks = draft.parents.tolist(), [()]
        for node in range(1, len(parents)):
            ranks.append((*ranks[parents[node]], parents[:node].count(parents[node])))
        return set(ranks[1:])

    assert grown(width=1) == grown(width=4, nodes=2) == set(PATHS)
    assert grown(depth=2) == {path for path in PATHS if len(path) <= 2}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "holds no tree"),
        ("[]", "holds no tree"),
        ('{"paths": 3}', "holds no tree"),
        ('{"paths": []}', "0 nodes"),
        ('{"paths": [[0], [0, "a"]]}', "no path of ranks"),
        ('{"paths": [[0], [-1]]}', "no path of ranks"),
        ('{"paths": [[0], [1, 0]]}', "lacks its parent"),
        ('{"paths": [[0], [2]]}', "elder sibling"),
    ],
)
def test_what_is_no_tree_is_refused(said, why, tmp_path):
    (tmp_path / "tree.json").write_text(said)
    with pytest.raises(ConfigError, match=why):
        read_template(tmp_path / "tree.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_template(tmp_path / "other.json")


def test_a_file_says_what_it_was_chosen_from(tmp_path):
    made = TemplateFile(paths=((0,), (1,)), accuracies=((0.5, 0.25),))
    made.write(tmp_path / "tree.json")
    assert read_template(tmp_path / "tree.json") == made
    assert set(json.loads((tmp_path / "tree.json").read_text())) == {"paths", "accuracies"}
