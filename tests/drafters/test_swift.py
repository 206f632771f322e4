"""SWIFT: the search finds what may go, never touches the text's rows, changes no output; siblings beside the chain."""

import pytest
import torch
from drafters.drafting import make, run_pending, sequence, write

from outdraft.core.draft import chain, host_tree
from outdraft.core.drafter import forget
from outdraft.core.policy import Budget
from outdraft.core.skip import Skip
from outdraft.drafters.shared.own_layers.skip_sets import alternating
from outdraft.drafters.swift import Search, SearchOptions, add_siblings, advise, width_at
from outdraft.engine.runner import Runner
from outdraft.options.errors import ConfigError
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.audit import CacheRecheck
from outdraft.testing.tiny import tiny_model

MODEL = tiny_model(layers=4, vocab=31)
SKIPS = [Skip(mlp=frozenset({i})) for i in range(4)] + [Skip(attention=frozenset({i})) for i in range(4)]
PROMPTS = ([1, 2, 3], [4], [5, 6] * 5)


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def written(runner, drafter, max_tokens=40, **params):
    """The outputs, and the search's best score after every step."""
    seqs = [sequence(prompt, max_tokens=max_tokens, **params) for prompt in PROMPTS]
    recheck, scores = CacheRecheck(runner), []

    def look(live):
        scores.append(drafter.search.best_score)
        if len(scores) % 7 == 0:
            for seq in live:
                recheck(seq, seq.tokens[:-1])

    write(seqs, runner, drafter, k=4, each_step=look)
    return [seq.output for seq in seqs], scores


def test_the_search_changes_no_text_and_the_best_score_never_falls():
    outputs = []
    for options in ({"search": False}, {"context": 5}, {"context": 5, "siblings": True}):
        runner = Runner(MODEL)
        drafter = make("swift", runner, **options)
        output, scores = written(runner, drafter)
        outputs.append(output)
        assert scores == sorted(scores)
        assert (drafter.search.num_trials > 8) == options.get("search", True)
    assert outputs[0] == outputs[1] == outputs[2]


def test_after_forgetting_it_searches_from_the_beginning():
    runner = Runner(MODEL)
    drafter = make("swift", runner, context=5)
    first = drafter.search.best
    written(runner, drafter)
    trials, drawn = drafter.search.num_trials, [flags for flags, _ in drafter.search._tried]
    assert trials > 8 and drafter.search.best_score > 0
    forget(drafter)
    assert (drafter.search.best, drafter.search.best_score, drafter.search.num_trials) == (first, -1.0, 0)
    written(runner, drafter)
    assert [flags for flags, _ in drafter.search._tried] == drawn


def test_a_trial_scores_what_the_skipped_network_would_have_said():
    runner = Runner(MODEL)
    drafter = make("swift", runner, search=False)
    seq = sequence([1, 2, 3], max_tokens=20)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, drafter, k=0, each_step=lambda live: len(live[0].tokens) < 15 or 1 / 0)
    assert drafter._agreement(seq, 8, Skip()) == 1.0
    agreements = [drafter._agreement(seq, 8, skip) for skip in SKIPS]
    assert agreements == [agreement_by_steps(seq, 8, skip) for skip in SKIPS]
    assert len(set(agreements)) > 2


def agreement_by_steps(seq, count, skip):
    """The same, one token after another by the skipped network, over full rows of the text before."""
    start, runner = seq.num_cached - count, Runner(MODEL)
    before = sequence(seq.tokens[:start])
    with pytest.raises(ZeroDivisionError):
        write([before], runner, make("none"), k=0, each_step=lambda _: 1 / 0)
    assert before.tokens == seq.tokens[: start + 1]
    agreed = 0
    for i in range(count):
        context = runner.port.rows.tentative([before], i, [1])
        hidden = runner.port.layers.run(
            torch.tensor([seq.tokens[start + i]]), torch.tensor([start + i]), context, skip=skip
        )
        agreed += int(runner.port.layers.logits(hidden).argmax()) == seq.tokens[start + i + 1]
    return agreed / count


def test_a_planted_redundant_layer_is_found_within_200_trials():
    model = tiny_model(layers=6, vocab=31)
    for part in (model.layers[4].out, model.layers[4].down):  # this layer adds nothing
        part.unpack()
        part.weight.zero_()
    model.set_exact(True)
    runner = Runner(model)
    drafter = make("swift", runner, context=8, ratio=0.25, max_trials=200, max_fruitless=200, enough=0.99)
    for start in range(40):
        if drafter.search.is_over:
            break
        seqs = [sequence([start % 31, i, 7], max_tokens=24) for i in range(4)]
        write(seqs, runner, drafter, k=4)
    assert drafter.search.num_trials <= 200 and drafter.search.best_score == 1.0
    assert drafter.search.best == Skip(frozenset({4}), frozenset({4})) and drafter.search.num_trials > 1


def planted(size):
    """A score that counts how many of the planted sublayers are left out."""
    wanted = {(2, 0), (5, 1), (6, 0), (9, 1)}

    def score(skip):
        out = {(layer, 0) for layer in skip.attention} | {(layer, 1) for layer in skip.mlp}
        assert len(out) == size and not {0, 11} & (skip.attention | skip.mlp)
        return len(out & wanted) / len(wanted)

    return score


def test_the_search_begins_plainly_and_ends_in_three_ways():
    search = Search(SearchOptions(ratio=0.2), 12)
    first = search.best
    assert first == alternating(12, 0.2)
    search.trial(planted(4))
    assert search.num_trials == 1 and search.best == first
    while not search.is_over:
        search.trial(planted(4))
    assert search.num_trials < 1000 and search.best_score <= 1.0
    short = Search(SearchOptions(max_trials=3), 12)
    fruitless = Search(SearchOptions(max_fruitless=5), 12)
    for run in (short, fruitless):
        while not run.is_over:
            run.trial(lambda skip: 0.5)
    assert short.num_trials == 3 and fruitless.num_trials == 6
    assert Search(SearchOptions(), 2).is_over  # nothing between the ends


@pytest.mark.parametrize("keep_ends", [True, False])
def test_all_sets_are_of_one_size(keep_ends):
    for num_layers in (3, 4, 7, 8, 13):
        inner = num_layers - 2 * keep_ends
        for ratio in (0.1, 0.25, 0.45, 0.8):
            search, seen = Search(SearchOptions(ratio=ratio, keep_ends=keep_ends), num_layers), []
            for _ in range(6):
                search.trial(lambda skip, seen=seen: seen.append(skip) or 0.5)
            assert {len(skip) for skip in seen} == {max(1, round(ratio * 2 * inner))}
            assert 1 in seen[0].attention


def test_a_search_begins_however_little_patience_it_has():
    search = Search(SearchOptions(max_fruitless=1), 12)
    assert not search.is_over
    search.trial(lambda skip: 0.5)
    assert not search.is_over  # the first one is better than nothing
    search.trial(lambda skip: 0.5)
    assert search.is_over


def test_a_trial_needs_room_for_its_rows_and_no_more(monkeypatch):
    drafter, tried = make("swift", Runner(MODEL), context=5), []
    monkeypatch.setattr(drafter, "_agreement", lambda seq, count, skip: tried.append(seq) or 0.5)
    fits, tight, short = (sequence([1] * 20, max_len=max_len) for max_len in (31, 30, 31))
    for seq, num_output in ((fits, 7), (tight, 7), (short, 4)):
        seq.tokens += [2] * num_output
        seq.num_cached = len(seq.tokens) - 1
    drafter._try_one([tight, short])
    assert not tried and drafter.search.num_trials == 0
    drafter._try_one([tight, fits, short])
    assert tried == [fits] and drafter.search.num_trials == 1


def test_a_drawn_chain_without_a_step_has_no_siblings():
    tree = add_siblings(sequence([1, 2], temperature=1.0), chain([2]), [], 9, "match")
    assert tree.num_nodes == 1 and tree.q is None


def test_advice_goes_where_scores_were_high():
    def score(chosen):
        return sum(chosen[:3]) / 3

    tried = [([bool(i >> bit & 1) for bit in range(6)], 0.0) for i in range(0, 64, 3)]
    tried = [(chosen, score(chosen)) for chosen, _ in tried]
    good, bad = [True] * 3 + [False] * 3, [False] * 3 + [True] * 3
    assert advise(tried, [bad, good]) == 1
    assert advise([(bad, 0.5), (bad, 0.5)], [bad, good]) == 1  # what is unknown is tried


def test_siblings_are_the_next_best_and_fit_the_room():
    seq = sequence([1, 2, 3])
    logits = torch.tensor([[9.0, 1, 0, 3, 2, -1], [1.0, 1.2, 1.1, 1.3, 0.9, 1.0]])
    tree = add_siblings(seq, chain([3, 0, 3]), list(logits), 20, "match")
    assert tree.tokens.tolist() == [3, 0, 3, 3, 4, 1, 2, 0, 5, 4] and tree.q is None
    assert tree.parents.tolist() == [-1, 0, 1, 0, 0, 1, 1, 1, 1, 1]
    assert add_siblings(seq, chain([3, 0, 3]), list(logits), 3, "match").num_nodes == 4
    assert [width_at(x, drawn=False) for x in (0.99, 0.9, 0.6, 0.2)] == [3, 5, 8, 10]
    assert [width_at(x, drawn=True) for x in (0.99, 0.9, 0.6, 0.2)] == [2, 3, 4, 5]


def test_drawn_siblings_hand_over_the_distribution_and_the_chain_goes_first():
    runner = Runner(MODEL)
    drafter = make("swift", runner, siblings=True, confidence_threshold=0.0)
    seq = sequence([1, 2, 3, 4], temperature=0.7, k=0)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, drafter, each_step=lambda _: 1 / 0)
    (tree,) = drafter.propose([seq], [Budget(depth=3)])
    (path,) = make("swift", runner, confidence_threshold=0.0).propose([seq], [Budget(depth=3)])
    assert torch.equal(tree.tokens[:4], path.tokens) and tree.num_nodes > 6
    torch.testing.assert_close(tree.q[:3], path.q[:3])
    for node, children in enumerate(host_tree(tree).children):
        drawn = tree.tokens[children].tolist()
        assert len(set(drawn)) == len(drawn)
        if drawn:
            assert drawn == seq.draft_coins(seq).draw(tree.q[node], node, node, len(drawn))
    hidden = run_pending([seq], runner, skip=drafter.search.best)
    expected = warp_nodes(seq, runner.port.layers.logits(hidden), [[]])
    torch.testing.assert_close(tree.q[0], expected[0].to(tree.q.dtype), atol=1e-6, rtol=0)
    (told,) = drafter.propose([seq], [Budget(depth=3, confident=True)])
    drawn_with = told.q[told.parents[1:], told.tokens[1:]].to(told.confidence)
    torch.testing.assert_close(told.confidence[1:], drawn_with, atol=1e-6, rtol=0)


@pytest.mark.parametrize("bad", [{"ratio": 1}, {"max_trials": 0}, {"context": 0}, {"confidence_threshold": 3}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("swift", Runner(MODEL), **bad)
