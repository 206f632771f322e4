"""Drawn trees: exact with the networks of every kind of head, and made where the request's rule accepts more so."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contracts.spec_rows import ROWS
from drafters.drafting import sequence
from verify.distributions import rule

from outdraft.core.policy import Budget
from outdraft.core.registry import find, names
from outdraft.core.request import Request
from outdraft.drafters.shared.choose import takes_argmax
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.limits import Cutoff
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Beam, JointBeam, Template, dynamic
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.options.speculative import Speculative
from outdraft.testing import planted
from outdraft.testing.subject import Subject
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers.enumerate_distribution import exact_distribution, target_distribution, total_variation
from tests.helpers.tables import one_sequence, random_table

KINDS = (
    "amphista",
    "blockwise",
    "dflash",
    "dflash2",
    "domino",
    "dspark",
    "eagle",
    "eagle1",
    "eagle3",
    "falcon",
    "hass",
    "hydra",
    "lilicorr",
    "medusa",
    "mtp",
    "p_eagle",
    "redrafter",
    "specdec",
    "xpress",
)
VOCAB, PROMPT = 3, (0, 1, 2, 1)
P = random_table(VOCAB, 2, 3, spread=2)
WEIGHING = {"auto", "block", "coupled", "gated", "leniency", "multi_draft", "rejection", "traversal"}


def is_tree_of_a_head(name):
    options = find("drafter", name).options
    return issubclass(options, StateOptions | HeadOptions)


def test_every_head_with_trees_is_here():
    assert {name for name in names("drafter") if is_tree_of_a_head(name)} == set(KINDS) & set(names("drafter"))


def proposing(kind, directory: Path):
    """What a head of this kind, with random weights, guesses for one sequence with any coins; and that sequence."""
    row = next(row for row in ROWS if row.drafter == kind)
    row = replace(row, options={**row.options, "width": 2, "nodes": 3, "sample": "auto"})
    engine = Subject(row, directory, vocab_size=VOCAB).engine(depth=0)
    seq = engine.add(Request(prompt_token_ids=PROMPT, params=SamplingParams(temperature=1.0, max_tokens=40)))
    engine.step()

    def propose(tokens, coins):
        seq.draft_coins = lambda _: coins
        return engine.parts.drafter.propose([seq], [Budget(depth=2)])[0]

    return propose, seq


@pytest.mark.parametrize("kind", KINDS)
def test_a_heads_drawn_tree_keeps_the_targets_distribution(kind, tmp_path):
    """Every outcome of the drafter's own coins and the rule's, whatever the target: it is a table. Power: planted
    faults deviate, in the rule and in q."""
    propose, seq = proposing(kind, tmp_path)
    context = list(seq.tokens)
    wanted = target_distribution(P, context, 2)
    for name in ("auto", "multi_draft"):
        found = exact_distribution(rule(name), P, propose, context, 2)
        assert total_variation(found, wanted) < 1e-9, name
    biased = exact_distribution(PerDraft(planted.accept_probable), P, propose, context, 2)
    assert total_variation(biased, wanted) > 1e-3

    def flattened(tokens, coins):
        draft = propose(tokens, coins)
        return replace(draft, q=torch.full_like(draft.q, 1 / VOCAB))

    assert total_variation(exact_distribution(rule("auto"), P, flattened, context, 2), wanted) > 1e-4


SHAPES = {
    "dynamic": (lambda: JointBeam(2), 2, 9),
    "full": (lambda: JointBeam(2), 2, 3),
    "a beam": (lambda: Beam(2, 1), 2, 9),  # which child is expanded depends on what was drawn
    "full before its depth": (lambda: Beam(2, 2), 2, 3),
    "fixed": (lambda: Template(((0,), (1,), (0, 0), (0, 1), (1, 0))), 2, 9),
}
Q = random_table(VOCAB, 2, 8, spread=2)


def drawn_by(make_shape, depth, nodes, *, keep_best=0):
    """`keep_best`: a fault: of the drawn nodes only so many are kept, the likeliest leaves."""

    def propose(tokens, coins):
        seq = replace(one_sequence(tokens), draft_coins=lambda _: coins)
        tree = Tree(seq, make_shape(), max_depth=depth, max_nodes=nodes, cutoff=Cutoff())

        def feed(level, trees):
            return torch.stack([Q([*tokens, *tree.path(node)]).log() for node in tree.frontier])

        draft = grow_trees([tree], feed, sample="auto")[0]
        if keep_best:
            first = sorted((1, 2), key=lambda node: -tree.probs[node])[:keep_best]
            keep = [0, *first]
            draft = replace(
                draft, tokens=draft.tokens[keep], parents=torch.tensor([-1, *[0] * len(first)]), q=draft.q[keep]
            )
        return draft

    return propose


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["auto", "multi_draft", "traversal"])
def test_every_shape_drawn_keeps_the_targets_distribution(name, shape):
    wanted = target_distribution(P, [0, 1], 3)
    found = exact_distribution(rule(name), P, drawn_by(*SHAPES[shape]), [0, 1], 3)
    assert total_variation(found, wanted) < 1e-9


def test_a_drawn_tree_reaches_its_depth():
    """Equal levels; with `width` children of every node it would be full after two, and no text could grow faster."""
    sampled, greedy = one_sequence([0, 1], temperature=0.3), one_sequence([0, 1], temperature=0)
    for nodes, depth, wanted in ((16, 5, [4, 4, 4, 4]), (24, 4, [6, 6, 6, 6]), (3, 5, [1, 1, 1]), (16, 1, [4])):
        shape = dynamic(sampled, "auto", width=4, depth=depth, nodes=nodes)
        tree = Tree(sampled, shape, max_depth=depth, max_nodes=nodes, cutoff=Cutoff())
        wide = random_table(11, 2, 4)

        def feed(level, trees, tree=tree, wide=wide):
            return torch.stack([wide([0, 1, *tree.path(node)]).log() for node in tree.frontier])

        grow_trees([tree], feed, sample="auto")
        assert [tree.depths.count(level) for level in range(1, max(tree.depths) + 1)] == wanted, (nodes, depth)
    assert not dynamic(greedy, "auto", width=4, depth=5, nodes=16).together
    assert not dynamic(sampled, "greedy", width=4, depth=5, nodes=16).together


def test_a_drawn_tree_that_is_pruned_to_its_best_is_noticed():
    wanted = target_distribution(P, [0, 1], 2)
    pruned = exact_distribution(rule("multi_draft"), P, drawn_by(*SHAPES["a beam"], keep_best=1), [0, 1], 2)
    assert total_variation(pruned, wanted) > 1e-3


def test_temperature_seed_and_rule_decide():
    """A greedy request, and a rule that does not weigh q, get the likeliest tokens; all others get drawn ones."""
    assert {name for name in names("verifier") if find("verifier", name).prefers_drawn} == WEIGHING
    sampled, greedy = sequence([1, 2], temperature=0.7), sequence([1, 2])
    blind = replace(sampled, prefers_drawn=False)
    told = {
        sample: [takes_argmax(seq, sample) for seq in (sampled, blind, greedy)]
        for sample in ("auto", "match", "greedy")
    }
    assert told == {"auto": [False, True, True], "match": [False, False, True], "greedy": [True, True, True]}
    with pytest.raises(ConfigError, match=r"sample='drawn': it is 'match' .* or 'auto'"):
        HeadOptions(sample="drawn")


def test_a_requests_own_rule_decides_too():
    """The engine's rule, or the one that the request names: `sequential` does not read q."""
    drawn, likeliest = [], []
    drafter = {"name": "eagle3", "model": "zoo:eagle3"}
    with LLM("zoo:target", drafter=drafter, verifier="auto", num_speculative_tokens=3) as llm:
        propose = llm.engine.parts.drafter.propose

        def watch(seqs, budgets):
            drafts = propose(seqs, budgets)
            for seq, draft in zip(seqs, drafts, strict=True):
                if draft.num_nodes > 1:
                    (drawn if draft.q is not None else likeliest).append(seq.request.params)
            return drafts

        llm.engine.parts.drafter.propose = watch
        plain = SamplingParams(max_tokens=8, temperature=1.0)
        for params in (plain, replace(plain, seed=3)):
            llm.generate("It was late when", params)
        assert drawn and not likeliest
        drawn.clear()
        llm.generate("It was late when", plain, speculative=Speculative(verifier="sequential"))
        llm.generate("It was late when", replace(plain, temperature=0.0))
        assert likeliest and not drawn
