"""BiLD's small model: it stops before the first unsure token, and throws that one away."""

import pytest
import torch
from drafters.drafting import sequence
from drafters.test_draft_model import DECODER, fresh_logits

from outdraft import zoo
from outdraft.core.policy import Budget
from outdraft.drafters.bild import BildDrafter, BildOptions
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams


def guess(threshold, seqs, depth=6, **budget):
    made = BildDrafter(BildOptions(fallback_threshold=threshold), DraftModel(DECODER))
    made.begin(seqs)
    return made.propose(seqs, [Budget(depth=depth, **budget)] * len(seqs))


def alone(tokens, threshold, depth=6):
    """The same by fresh forwards."""
    written, sure = [], [1.0]
    while len(written) < depth:
        best = torch.softmax(fresh_logits([*tokens, *written]).float(), -1).max(-1)
        if best.values < threshold:
            break
        written.append(int(best.indices))
        sure.append(float(best.values))
    return written, sure


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.25, 0.3, 1.0])
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_unsure_tokens_are_thrown_away(threshold, params):
    texts = ([1, 2, 3], [4], [5, 6, 7, 8, 9])
    drafts = guess(threshold, [sequence(text, **params) for text in texts])
    for text, draft in zip(texts, drafts, strict=True):
        written, sure = alone(text, threshold)
        assert draft.tokens[1:].tolist() == written and draft.q is None
        assert draft.confidence is None if threshold == 0 else torch.allclose(draft.confidence, torch.tensor(sure))


def test_thresholds_here_cut_somewhere_in_the_middle():
    lengths = {len(alone(text, 0.2)[0]) for text in ([i, i + 3] for i in range(20))}
    assert len(lengths) >= 3, lengths


def test_a_policy_may_ask_for_more():
    seq = sequence([1, 2, 3])
    assert guess(0.0, [seq], confidence=0.4)[0].tokens[1:].tolist() == alone([1, 2, 3], 0.4)[0]


def test_the_recipe_acts_on_the_zoos_pair():
    """The small model hands over, and the large one takes something back: neither threshold is idle there."""
    prompts = list(zoo.heldout_prompts().values())[::4]
    with LLM("zoo:target", drafter="recipe:bild") as llm:
        results = llm.generate(prompts, SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True))
    stats = [one.stats for one in results]
    passes, drafted, taken_back = (
        sum(getattr(one, f"num_{what}") for one in stats) for what in ("steps", "draft_tokens", "rejections")
    )
    assert passes / 10 < drafted < 5 * passes, "it hands over before its ten tokens are full, and not always at once"
    assert taken_back >= 5


def test_bad_options():
    with pytest.raises(ConfigError, match="fallback_threshold"):
        BildOptions(fallback_threshold=1.5)
