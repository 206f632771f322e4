"""EdgeLLM: the likeliest branch is fed first, theta ends the drafting, what was drafted beside a pass stands."""

from functools import cache

import pytest
import torch
from drafters.drafting import sequence, write
from drafters.test_draft_model import DECODER, DecoderTarget, V, fresh_logits

from outdraft.control.branch_pacing import BranchPacingOptions, BranchPacingPolicy
from outdraft.core.draft import host_tree
from outdraft.core.policy import Budget
from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.edgellm import EdgeLlmDrafter, EdgeLlmOptions, PacedTree
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.options.errors import ConfigError
from tests.helpers.table_target import TableTarget

PROMPTS = ([1, 2, 3], [4], [5, 6, 7, 8])


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def drafter(**options):
    model = DraftModel(DECODER)
    model._cache.rows.poison = True  # any use of a dropped row shows as NaN
    return EdgeLlmDrafter(EdgeLlmOptions(**options), model)


def children(tokens, count):
    best = torch.softmax(fresh_logits(tokens), -1).topk(count)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def best_first(tokens, *, theta, branch, nodes, depth):
    """The likeliest path is expanded, again and again, while it is at least as probable as theta."""
    found, fed = {(): 1.0}, set()
    while True:
        open_paths = [path for path in found if path not in fed and len(path) < depth]
        best = max(open_paths, key=lambda path: found[path], default=None)
        if best is None or found[best] < theta or sorted(found.values())[::-1][: nodes + 1][-1] > found[best]:
            break
        fed.add(best)
        found |= {(*best, token): found[best] * prob for token, prob in children([*tokens, *best], branch)}
    return dict(sorted(found.items(), key=lambda item: -item[1])[: nodes + 1])


def paths(draft):
    tree = host_tree(draft)
    return {tuple(tree.tokens[v] for v in tree.path(node)) for node in range(draft.num_nodes)}


@pytest.mark.parametrize("theta", [0.95, 0.3, 0.02])
@pytest.mark.parametrize("shape", [{"branch": 3, "nodes": 32}, {"branch": 2, "nodes": 6}])
def test_branches_grow_as_far_as_theta_lets_them(theta, shape):
    made, seqs = drafter(**shape), [sequence(prompt) for prompt in PROMPTS]
    made.begin(seqs)
    for seq, draft in zip(seqs, made.propose(seqs, [Budget(depth=5, survival=theta)] * 3), strict=True):
        assert paths(draft) == set(best_first(seq.tokens, theta=theta, depth=5, **shape))
        assert draft.q is None and draft.confidence is not None


def test_an_unsure_token_ends_its_branch():
    made, seq = drafter(branch=2), sequence([1, 2, 3])
    made.begin([seq])
    (draft,) = made.propose([seq], [Budget(depth=4, confidence=0.2)])
    sure, inner = draft.confidence.tolist(), set(draft.parents[1:].tolist())
    assert len(inner) > 1 and all(sure[node] >= 0.2 for node in inner)
    assert all(sure[node] < 0.2 or host_tree(draft).depths[node] == 4 for node in {*range(len(sure))} - inner)


def test_what_has_become_text_counts_as_certain():
    """p - a (0.5) - b (0.4) - c (0.9): once a is text, the paths below it are as if they had begun there."""
    tree = PacedTree(2)
    tree.feed(0, [(7, 0.5), (8, 0.3)])
    tree.feed(1, [(9, 0.4)])
    tree.feed(3, [(6, 0.9), (5, 0.1)])
    tree.follow([1, 2, 7])
    assert (tree.tokens[1:], tree.parents) == ([9, 6, 5], [-1, 0, 1, 1])
    assert tree.paths == pytest.approx([1.0, 0.4, 0.36, 0.04]) and tree.probs == [1.0, 0.4, 0.9, 0.1]
    assert tree.likeliest(3, 9) == 2 and tree.path(2) == [9, 6] and tree.num_fed == 2
    tree.follow([1, 2, 7, 3])
    assert tree.tokens == [-1] and tree.num_fed == 0


def test_no_node_is_fed_whose_children_would_not_be_offered():
    """`max_nodes` are offered beside the pending token: a node with as many better ones above it goes no further."""
    tree = PacedTree(2)
    tree.feed(0, [(7, 0.5), (8, 0.3)])
    assert tree.likeliest(3, 1) == 1
    tree.feed(1, [(6, 0.9)])  # a path of 0.45, behind 1.0 and 0.5
    assert tree.likeliest(3, 1) is None and tree.likeliest(3, 2) == 3


def test_what_the_model_holds_for_impossible_is_no_guess():
    tree = PacedTree(2)
    tree.feed(0, [(7, 1.0), (8, 0.0)])
    tree.feed(1, [(9, 0.0)])
    assert (tree.tokens, tree.fed) == ([-1, 7], [True, True])


def test_a_path_that_is_next_to_impossible_may_come_true():
    """The product of probabilities below it is too small for a float, and counts again once it is text."""
    tree, tokens = PacedTree(1), [1]
    for node in range(4):
        tree.feed(node, [(node, 1e-100)])
    assert tree.paths[4] == 0
    for token in range(4):
        tree.follow(tokens := [*tokens, token])
        assert tree.paths == pytest.approx([1e-100**i for i in range(4 - token)])


def test_drafting_beside_a_pass_ends_with_it():
    made, seq = drafter(window=9), sequence([1, 2, 3])
    made.begin([seq])
    drafts = made.propose([seq], [Budget(depth=2, survival=0.9)])
    looks = iter([False, False, True])
    made.ahead([seq], drafts, lambda: next(looks))
    assert made.pacing.ahead == 2


def serial(made):
    """`write` knows no executor: the work beside a pass is done before it."""
    propose = made.propose

    def ahead_too(seqs, budgets):
        drafts = propose(seqs, budgets)
        made.ahead(seqs, drafts, lambda: False)
        return drafts

    made.propose = ahead_too
    return made


def audit(made):
    """Whatever stands, from whichever round: every node is a child as a fresh forward of its path has it."""
    propose = made.propose

    def audited(seqs, budgets):
        drafts = propose(seqs, budgets)
        for seq, draft in zip(seqs, drafts, strict=True):
            tree, sure = host_tree(draft), draft.confidence.tolist()
            for node in range(1, draft.num_nodes):
                above = [tree.tokens[v] for v in tree.path(node)][:-1]
                probs = torch.softmax(fresh_logits([*seq.tokens, *above]), -1)
                assert sure[node] == pytest.approx(float(probs[tree.tokens[node]]), abs=1e-6)
                assert tree.tokens[node] in probs.topk(3).indices
        return drafts

    made.propose = audited
    return made


def test_what_stands_is_what_would_be_guessed_anew():
    made = serial(audit(drafter(window=6)))
    policy = BranchPacingPolicy(BranchPacingOptions(num_speculative_tokens=4, theta=0.1))
    seqs = [sequence(prompt, max_tokens=20) for prompt in PROMPTS]
    write(seqs, DecoderTarget(DECODER, noise=0.1), made, policy=policy)
    assert made.pacing.kept >= 5 and made.model.is_empty and not made._rounds


def test_nothing_is_guessed_twice_where_the_draft_is_right():
    """The target is the draft model: what was drafted beside the passes is the next proposal."""
    made = drafter(window=8, branch=1)
    read, asked = made.model.read, []

    def counted(texts):
        asked.extend(len(text.tokens) for text in texts)
        return read(texts)

    made.model.read = counted
    run = write([sequence([1, 2, 3], max_tokens=40)], DecoderTarget(DECODER), serial(made), k=4)
    assert len(asked) == len(set(asked)) and made.pacing.kept > 10
    assert not any(event.rejected for event in run.events)


@cache
def next_logits(tokens):
    """A target that agrees with the draft model more often than not."""
    return fresh_logits(tokens) + TableTarget(vocab_size=V).next_logits(list(tokens))


class Noisy(TableTarget):
    def __init__(self):
        super().__init__(vocab_size=V, max_len=256)

    def next_logits(self, tokens):
        return next_logits(tuple(tokens))


@cache
def paced(theta, window=6, **factors):
    made = serial(drafter(window=window))
    options = BranchPacingOptions(num_speculative_tokens=5, theta=theta, **factors)
    seqs = [sequence(prompt, max_tokens=18) for prompt in PROMPTS]
    run = write(seqs, Noisy(), made, policy=BranchPacingPolicy(options))
    nodes = sum(event.num_draft_tokens for event in run.events)
    return made.pacing, nodes, sum(event.num_accepted for event in run.events), run.tokens_per_pass


def test_theta_paces_the_drafting():
    """A high theta verifies early: more rounds, fewer and surer nodes. A low one drafts on, and brings more a pass."""
    still = {"fall": 1.0, "rise": 1.0, "window": 0}
    (early, few, few_right, short), (late, many, many_right, long) = paced(0.95, **still), paced(0.02, **still)
    assert early.fallbacks > late.fallbacks > 0
    assert few < many and few_right / few > many_right / many
    assert long > short + 0.3
    assert early.switches == 0 < late.switches  # several branches are worth it only where theta is low


def test_only_drafting_beside_the_pass_keeps_anything():
    idle, busy = paced(0.1, window=0)[0], paced(0.1)[0]
    assert idle.ahead == idle.kept == 0 < busy.kept < busy.ahead


def test_fewer_wasted_nodes_than_a_tree_of_fixed_shape():
    """The same model, levels and children of a node; a fixed tree is as wide where a branch will hardly survive."""
    _, nodes, right, _ = paced(0.3, window=0)
    made = DraftModelDrafter(DraftModelOptions(width=3), DraftModel(DECODER))
    seqs = [sequence(prompt, max_tokens=18) for prompt in PROMPTS]
    run = write(seqs, Noisy(), made, k=5)
    fixed = sum(event.num_draft_tokens for event in run.events)
    accepted = sum(event.num_accepted for event in run.events)
    assert (nodes - right) / right < 0.7 * (fixed - accepted) / accepted


@pytest.mark.parametrize("bad", [{"nodes": 0}, {"branch": 0}, {"window": -1}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        EdgeLlmOptions(**bad)
