"""The whole loop samples the target's distribution: real coins over many rounds, ragged batches, every rule, and
planted faults.

The rules alone are proven in tests/verify; here it is the engine between them that could go wrong: distributions handed
to the wrong sequence, coins reused, a cut in the wrong place.
"""

from itertools import product

import pytest
import torch

from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.contract.distribution import Uncoupled
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import run
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, RandomTreeDrafter, TableTarget

VOCAB, LENGTH, TEXTS = 5, 4, 250
SETTINGS = {
    "plain": {"temperature": 1.0},
    "warped": {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05},
    "penalised": {"temperature": 1.0, "repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    "typical": {"temperature": 1.2, "typical_p": 0.7},
    "masked": {"temperature": 1.0, "banned_token_ids": (4,), "bad_words": ((0, 1), (2, 2, 3))},
    "allowed": {"temperature": 1.0, "allowed_token_ids": (0, 2, 3), "top_p": 0.9},
    "forced": {"temperature": 1.0, "forced_prefix": (2,), "typical_p": 0.9},
}
CASES = [("rejection", 1), ("block", 1), ("multi_draft", 3), ("traversal", 3), ("coupled", 3), ("auto", 3)]


def sample(verifier: str, width: int, settings: dict, *, claim_uniform: bool = False):
    """Write short texts in batches of unequal neighbours; the verdict on their distribution."""
    p, q = TableTarget(vocab_size=VOCAB, seed=1), TableTarget(vocab_size=VOCAB, seed=2)
    drafter = RandomTreeDrafter(lambda tokens: torch.softmax(q.next_logits(tokens), -1), max_width=width)
    if claim_uniform:
        honest = drafter.propose
        drafter.propose = lambda seqs, budgets: [flattened(draft) for draft in honest(seqs, budgets)]
    method = find("verifier", verifier)
    rule = Uncoupled(method.build(make_options(method, {}))) if verifier == "auto" else method.build(method.options())
    policy = ConstantPolicy(Budget(depth=3))
    engine = Engine(Parts(target=AuditedTarget(p), drafter=drafter, verifier=rule, policy=policy))
    prompts = [(1, 2), (3,), (0, 4, 2)]
    requests = [
        Request(
            prompt_token_ids=prompts[i % 3], params=SamplingParams(max_tokens=LENGTH - i % 3 % 2, seed=i, **settings)
        )
        for i in range(TEXTS * 3)
    ]
    contexts = [(k, c) for k in range(3) for n in range(LENGTH) for c in product(range(VOCAB), repeat=n)]
    index = {context: i for i, context in enumerate(contexts)}
    counts = torch.zeros(len(contexts), VOCAB, dtype=torch.float64)
    accepted = 0
    for i, outcome in enumerate(run(engine, requests)):
        accepted += outcome.stats.num_accepted_tokens
        for n, token in enumerate(outcome.seq.output):
            counts[index[i % 3, tuple(outcome.seq.output[:n])], token] += 1
    distributions = torch.stack([distribution_after(p, prompts[k], context, settings) for k, context in contexts])
    return judge_counts(counts, distributions, 0), accepted


def flattened(draft):
    """The same draft with a q that it was not drawn from."""
    object.__setattr__(draft, "q", torch.full_like(draft.q, 1 / VOCAB))
    return draft


def distribution_after(p: TableTarget, prompt, context, settings: dict) -> torch.Tensor:
    """The exact distribution of the next token, history included."""
    engine = Engine(Parts(target=p, drafter=NoDrafter(), verifier=find("verifier", "coupled").build(None), policy=None))
    seq = engine.add(Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=LENGTH + 1, **settings)))
    for token in context:
        seq.extend(token)
    return warp_nodes(seq, p.next_logits(seq.tokens)[None], [[]])[0].double()


# `auto` meets every setting; each other rule the plain one and one besides, in turn, and the rest in the slow run.
BESIDES = ("warped", "penalised", "masked")


def marks(i: int, verifier: str, name: str):
    quick = verifier == "auto" or name in ("plain", BESIDES[i % len(BESIDES)])
    return () if quick else (pytest.mark.slow,)


ASKED = [
    pytest.param(verifier, width, name, id=f"{name}-{verifier}-{width}", marks=marks(i, verifier, name))
    for i, (verifier, width) in enumerate(CASES)
    for name in SETTINGS
]


@pytest.mark.parametrize(("verifier", "width", "name"), ASKED)
def test_distribution(verifier, width, name):
    verdict, accepted = sample(verifier, width, SETTINGS[name])
    assert verdict.passes, verdict
    assert accepted > TEXTS / 4  # the rule had something to decide


@pytest.mark.parametrize(
    ("verifier", "width", "settings"),
    [
        pytest.param(verifier, width, name, marks=() if (i + j) % 2 == 0 and j < 2 else pytest.mark.slow)
        for i, (verifier, width) in enumerate([("rejection", 1), ("block", 1), ("traversal", 3), ("multi_draft", 3)])
        for j, name in enumerate(["plain", "masked", "typical"])
    ],
)
def test_a_false_q_is_caught(verifier, width, settings):
    verdict, _ = sample(verifier, width, SETTINGS[settings], claim_uniform=True)
    assert not verdict.passes, verdict
