"""Sampled texts under a grammar have the target's distribution over what the grammar allows, with every drafter.

Every token is counted under the tokens before it, and judged against the masked softmax of the target's table; what the
mask is, is read off the list of all texts here, and not asked of the grammar.
"""

import pytest
import torch
from tiny_tokens import TinyTokens

from outdraft.codecs.grammar.compile import Grammars
from outdraft.core.draft import chain
from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.options.structured import StructuredOutputsParams
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.contract.distribution import Uncoupled
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import run
from outdraft.verify.auto import Auto
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, RandomTreeDrafter, TableTarget

CODEC = TinyTokens(["<end>", "a", "b", "ab", "c", "d"], end=0)
VOCAB = 7  # one id more than the tokenizer has
HEADS = [x + y + z for x in "abc" for y in "abc" for z in "abc" if x != y != z]  # what may follow changes at each token
TEXTS = [head + "ddd" + tail for head in HEADS for tail in ("a", "b", "ab")]
NUM_TEXTS = 500
TARGET = TableTarget(vocab_size=VOCAB, seed=1, sharpness=1.0)


class DrawnChain(NoDrafter):
    """Draws each token from another table, under the same mask."""

    traits = Traits()
    table = TableTarget(vocab_size=VOCAB, seed=2, sharpness=1.0)

    def propose(self, seqs, budgets):
        drafts = []
        for seq, budget in zip(seqs, budgets, strict=True):
            path, rows = [], []
            for depth in range(budget.depth):
                q = warp_nodes(seq, self.table.next_logits([*seq.tokens, *path])[None], [path])[0]
                rows.append(q)
                path.append(seq.draft_coins(seq).draw(q, depth, depth)[0])
            drafts.append(chain([seq.pending, *path], torch.stack(rows)))
        return drafts


class Copies(NoDrafter):
    """Always the same words, mostly forbidden; what is forbidden is cut off."""

    traits = Traits(peeks=True)

    def propose(self, seqs, budgets):
        return [chain([seq.pending, *(1, 2, 4, 2, 5)[seq.num_output % 2 :]]) for seq in seqs]


def a_tree():
    return RandomTreeDrafter(lambda tokens: torch.softmax(DrawnChain.table.next_logits(tokens), -1), max_width=2)


DRAFTERS = {"chain": DrawnChain, "tree": a_tree, "copies": Copies}


def sample(drafter, rule):
    engine = Engine(
        Parts(target=AuditedTarget(TARGET), drafter=drafter, verifier=rule, policy=ConstantPolicy(Budget(depth=3))),
        eos_token_ids=frozenset({0}),
    )
    form = StructuredOutputsParams(choice=TEXTS)
    make = Grammars(CODEC, vocab_size=VOCAB, ends={0}).constraint(form, ignore_eos=False)
    asked = [
        Request(
            prompt_token_ids=(1, 2),
            constraint=make,
            params=SamplingParams(temperature=1.0, seed=seed, max_tokens=12, structured_outputs=form),
        )
        for seed in range(NUM_TEXTS)
    ]
    outcomes = run(engine, asked)
    assert all(CODEC.decode(one.seq.output) in TEXTS and one.seq.finish_reason == "stop" for one in outcomes)
    forced = max(event.draft_depth for one in outcomes for event in one.events)
    written = [tuple(one.seq.output) for one in outcomes]
    contexts = sorted({text[:i] for text in written for i in range(len(text))})
    counts = torch.zeros(len(contexts), VOCAB, dtype=torch.float64)
    for text in written:
        for i, token in enumerate(text):
            counts[contexts.index(text[:i]), token] += 1
    return judge_counts(counts, torch.stack([distribution(one) for one in contexts]), 0), forced


def distribution(context):
    """[V] what the target gives to each token that some text goes on with."""
    text = CODEC.decode(context)
    may = torch.zeros(VOCAB, dtype=torch.bool)
    for i in range(1, len(CODEC.tokens)):
        may[i] = any(one.startswith(text + CODEC.decode([i])) for one in TEXTS)
    may[0] = text in TEXTS
    return torch.softmax(TARGET.next_logits([1, 2, *context]).masked_fill(~may, -torch.inf), -1)


@pytest.mark.parametrize("name", DRAFTERS)
def test_sampled_texts_have_the_masked_distribution(name):
    found, deepest = sample(DRAFTERS[name](), Uncoupled(Auto()))
    assert found.passes, found
    assert deepest >= 2  # "ddd" is forced, and drafted


def test_a_rule_that_bends_the_distribution_is_noticed():
    """Power: every token is one that the grammar allows, and the texts are not the target's."""
    bent = PerDraft(lambda case: case.verdict(0, case.coins.draw(case.p[0] ** 1.5, 0)))
    assert not sample(DrawnChain(), bent)[0].passes
