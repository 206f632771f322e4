"""What adapts: it finds the better arm, finds it again after a swap, and knows easy text from hard."""

import math
import random
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
from tutorial import AdaptiveDraftModel, AdaptiveSpeculativeDecoding, SequenceComplexityEstimator, SpeedupAnalyzer

from outdraft import LLM, SamplingParams, zoo
from outdraft.engine.stats import RequestStats
from outdraft.models.files.load import load_model
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ConfigError

PROMPT = {"prompt_token_ids": [5, 6, 7, 8] * 3}


def test_the_best_draft_is_found_and_found_again(models):
    """The engine's own bandit, fed with rounds: a swap of the two drafts' worth is noticed."""
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    assert adaptive.select_best_draft() == 0, "one that was never tried comes first"
    adaptive.update_performance(0, 3, 4, 1.0)
    assert adaptive.select_best_draft([5, 6]) == 1 and adaptive.get_current_draft() == models["good"]
    arms = adaptive.bandit.arms
    assert arms == [(0, 0), (0, 4), (1, 4)], "plain decoding is a choice"
    rng = random.Random(1)
    for plain, rates in ((0.8, [1.0, 2.4]), (0.8, [2.4, 1.0]), (2.4, [0.5, 1.0])):
        chosen = []
        for _ in range(200):
            draft, length = arms[arm := adaptive.bandit._ucb()]
            tokens = round(80 * (rates[draft] if length else plain) * rng.uniform(0.8, 1.2))
            if length:
                adaptive.update_performance(draft, tokens - 1, tokens, 8.0)
            else:
                adaptive.bandit.enter(arm, tokens, 8.0)
            chosen.append(arm)
        if max(rates) > plain:
            assert adaptive.select_best_draft() == rates.index(2.4)
        assert chosen[-50:].count([plain, *rates].index(2.4)) >= 45


@pytest.mark.parametrize(
    "told, says",
    [
        ((-1, 4, 4, 1.0), "i=-1: must be between 0 and 1"),
        ((2, 4, 4, 1.0), "i=2"),
        ((0, 5, 4, 1.0), "accepted=5, total=4"),
        ((0, -1, 4, 1.0), "accepted=-1"),
        ((0, 4, 4, 0), "time=0: must be above 0"),
        ((0, 4, 4, math.nan), "time=nan"),
        ((0, 4, 4, math.inf), "time=inf"),
    ],
)
def test_a_performance_that_cannot_be_is_refused(models, told, says):
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    with pytest.raises(ConfigError, match=says):
        adaptive.update_performance(*told)
    assert adaptive.bandit.plays == [0, 0, 0]


def test_draft_models_are_tried_and_the_text_is_plain(models):
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    plain = LLM(models["target"], drafter="none").generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(6):
        assert adaptive.generate(PROMPT, 20).token_ids == plain.token_ids
    assert min(adaptive.bandit.plays) > 0 and adaptive.bandit is adaptive.llm.engine.parts.policy
    with pytest.raises(ConfigError, match="draft_models is empty"):
        AdaptiveDraftModel(models["target"], [])
    for decoder in (AdaptiveDraftModel, AdaptiveSpeculativeDecoding):
        with pytest.raises(ConfigError, match="max_speculative_tokens=0: must be at least 1"):
            decoder(models["target"], [models["good"]], 0)


def made(accepted: int, rejections: int, *, cost: float) -> SimpleNamespace:
    """A text's counters: as many passes as rejections, a pass takes a second, a draft token `cost`."""
    drafted = accepted + rejections
    stats = RequestStats(
        num_steps=max(1, rejections),
        num_accepted_tokens=accepted,
        num_rejections=rejections,
        num_draft_tokens=drafted,
        target_seconds=float(max(1, rejections)),
        draft_seconds=cost * drafted,
    )
    return SimpleNamespace(stats=stats, logprobs=None)


def test_history_decides_the_length(models):
    """Two phases, guesses right and guesses wrong: the length is the formulas' best one, and 0 among them."""
    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["good"], 12)
    tokens = tuple(range(40))
    for _ in range(40):
        adaptive.update(made(90, 10, cost=0.1))
    assert abs(adaptive.choose_length(tokens) - SpeedupAnalyzer.optimal_candidate_count(0.9, 0.1, 12)) <= 1
    for _ in range(60):
        adaptive.update(made(3, 97, cost=0.1))
    assert adaptive.choose_length(tokens) == 0


def write(adaptive, prompt, *, alpha: float, cost: float, rng: random.Random) -> int:
    """A text of about a hundred tokens with the length that is chosen: a pass takes a second, a draft token `cost`."""
    length, stats = adaptive.choose_length(prompt), RequestStats()
    while stats.num_tokens < 100:
        kept = next((i for i in range(length) if rng.random() >= alpha), length)
        stats.num_steps += 1
        stats.num_tokens += kept + 1
        if length:
            stats.per_step.append((length, kept))
            stats.num_draft_tokens += length
            stats.num_accepted_tokens += kept
            stats.num_rejections += kept < length
    stats.target_seconds, stats.draft_seconds = float(stats.num_steps), cost * stats.num_draft_tokens
    adaptive.update(SimpleNamespace(stats=stats, logprobs=None))
    return length


EASY, FRESH = [1, 2, 3, 4] * 12, list(range(48))


@pytest.mark.parametrize("prompt", [EASY, FRESH])
def test_an_expensive_first_text_is_not_believed_for_ever(models, prompt):
    """Cold, a draft token took 1.2 passes; ever after a tenth of one, and 95 % are accepted."""
    adaptive, rng = AdaptiveSpeculativeDecoding(models["target"], models["good"], 8), random.Random(1)
    cold = write(adaptive, prompt, alpha=0.95, cost=1.2, rng=rng)
    lengths = [write(adaptive, prompt, alpha=0.95, cost=0.1, rng=rng) for _ in range(40)]
    assert cold == 4 and lengths[:8] == [0] * 7 + [4], "the eighth text tries"
    assert min(lengths[-10:]) >= 7


def test_hard_texts_then_easy_ones(models):
    """Where nothing is accepted one text in eight drafts; when that changes, so do the lengths."""
    adaptive, rng = AdaptiveSpeculativeDecoding(models["target"], models["good"], 8), random.Random(1)
    hard = [write(adaptive, FRESH, alpha=0.03, cost=0.1, rng=rng) for _ in range(60)]
    assert hard[16:] == ([4] + [0] * 7) * 5 + [4, 0, 0, 0]
    lengths = [write(adaptive, FRESH, alpha=0.95, cost=0.1, rng=rng) for _ in range(40)]
    assert min(lengths[-20:]) >= 7


def test_rejections_age_where_nothing_is_drafted(models):
    """A round without a draft pushes an old one out, so that a prompt is judged by itself again."""
    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["good"], 8)
    adaptive.rejections.extend([1.0] * 50)
    adaptive.update(SimpleNamespace(stats=RequestStats(num_steps=20), logprobs=None))
    assert len(adaptive.rejections) == 30
    adaptive.update(SimpleNamespace(stats=RequestStats(num_steps=100), logprobs=None))
    assert not adaptive.rejections


def test_complexity_is_only_where_one_begins(models):
    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["good"], 12)
    adaptive._draft_cost = 0.1
    rng = random.Random(1)
    easy, hard = [1, 2, 3, 4] * 12, [rng.randrange(60) for _ in range(48)]
    assert adaptive.choose_length(easy) > adaptive.choose_length(hard)
    for _ in range(40):
        adaptive.update(made(700, 300, cost=0.1))
    assert adaptive.choose_length(easy) == adaptive.choose_length(hard)


def test_adaptive_text_is_plain(models):
    adaptive = AdaptiveSpeculativeDecoding(models["target"], [models["useless"], models["good"]], 6)
    engine = adaptive.llm.engine
    plain = LLM(models["target"], drafter="none").generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(4):
        assert adaptive.adaptive_generate(PROMPT, 20).token_ids == plain.token_ids
    assert adaptive.llm.engine is engine and len(adaptive.lengths) == 4


def test_the_estimator_is_given_entropies_and_rejections(models):
    """Those of the target's own distributions, and of the rounds of the texts so far."""
    told = []

    class Watching(SequenceComplexityEstimator):
        def estimate(self, tokens, **seen):
            told.append(seen)
            return 0.5

    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["useless"], 6, estimator=Watching(window=32))
    for _ in range(2):
        result = adaptive.generate(PROMPT, 20, ignore_eos=True)
    assert told[0] == {"entropies": [], "rejections": []}
    assert len(told[1]["entropies"]) == 20 and told[1]["rejections"]
    assert all(0 <= share <= 1 for share in told[1]["rejections"]) and max(told[1]["rejections"]) > 0
    model = load_model(models["target"], torch.float32)
    text = [*result.prompt_token_ids, *result.token_ids]
    with torch.inference_mode():
        rows = torch.softmax(model(torch.tensor(text), torch.arange(len(text)), CausalContext(1, len(text))), -1)
    exact = torch.special.entr(rows[len(result.prompt_token_ids) - 1 : -1]).sum(-1).tolist()
    for ours, true in zip(list(adaptive.entropies)[-20:], exact, strict=True):
        assert 0.3 * true < ours <= true + 1e-4, "of the twenty likeliest tokens and of the rest as one"


def test_complexity_is_monotone():
    estimator = SequenceComplexityEstimator()
    rng = random.Random(2)
    repeated, fresh = [1, 2, 3, 4, 5] * 12, [rng.randrange(5000) for _ in range(60)]
    assert estimator.estimate(repeated) < 0.1 and estimator.estimate(fresh) > 0.9
    assert estimator.estimate([]) == 0.5
    for name, values in (("entropies", (0.1, 1.0, 4.0)), ("rejections", (0.0, 0.4, 1.0))):
        scores = [estimator.estimate(fresh, **{name: [value]}) for value in values]
        assert scores == sorted(scores) and len(set(scores)) == 3 and all(0 <= score <= 1 for score in scores)


def test_complexity_foretells_rejections():
    """Look-up drafting behind held-out openings of the zoo, and behind the first words of each over and over."""
    llm = LLM("zoo:target", drafter="ngram", num_speculative_tokens=6)
    scores, rejected = {True: [], False: []}, {True: [], False: []}
    for name, text in sorted(zoo.heldout_prompts().items()):
        for again, prompt in ((False, text), (True, " ".join([*text.split()[:5], ""]) * 12)):
            if name.split()[1] in "12345" and name.split()[0] != "copy":
                ids = llm.encode(prompt)
                stats = llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=20, ignore_eos=True)).stats
                scores[again].append(SequenceComplexityEstimator().estimate(ids))
                rejected[again].append(1 - stats.num_accepted_tokens / stats.num_tokens)
    assert mean(scores[True]) < mean(scores[False]) / 2
    assert mean(rejected[True]) < mean(rejected[False])


def test_analyzer():
    analyzer = SpeedupAnalyzer
    assert analyzer.optimal_candidate_count(0.8, 0.1) == 6
    assert analyzer.theoretical_speedup(0.8, 0.1, 6) == pytest.approx(2.47, abs=0.005)
    assert analyzer.theoretical_speedup(0.0, 0.1, 5) == pytest.approx(0.67, abs=0.004)
    assert analyzer.theoretical_speedup(1.0, 0.1, 5) == pytest.approx(6 / 1.5)
    assert analyzer.expected_tokens(0.5, 2) == 1.75
    assert analyzer.optimal_candidate_count(0.4, 0.5) == 0
