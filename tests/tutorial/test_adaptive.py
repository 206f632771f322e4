"""What adapts: it finds the better arm, finds it again after a swap, and knows easy text from hard."""

import random
from types import SimpleNamespace

import pytest

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.errors import ConfigError
from outdraft.engine.stats import RequestStats
from outdraft.tutorial import (
    AdaptiveDraftModel,
    AdaptiveSpeculativeDecoding,
    DraftModelTrainer,
    SequenceComplexityEstimator,
    SpeedupAnalyzer,
)
from outdraft.tutorial.adaptive import Arms

PROMPT = {"prompt_token_ids": [5, 6, 7, 8] * 3}


def share_of_best(arms: Arms, rates: list[float], rounds: int, rng: random.Random) -> float:
    """How often the arm with the highest tokens per cost was chosen in the last quarter."""
    best, chosen = rates.index(max(rates)), []
    for _ in range(rounds):
        arm = arms.select()
        chosen.append(arm)
        arms.update(arm, 8 * rates[arm] * rng.uniform(0.8, 1.2), 8.0)
    late = chosen[-rounds // 4 :]
    return late.count(best) / len(late)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_arm_is_found_and_found_again(seed):
    rng = random.Random(seed)
    arms = Arms(3)
    assert share_of_best(arms, [1.0, 2.4, 1.2], 200, rng) >= 0.9
    assert share_of_best(arms, [2.4, 1.0, 1.2], 200, rng) >= 0.9


def test_draft_models_are_tried_and_the_text_is_plain(models):
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    plain = LLM(models["target"]).generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(6):
        assert adaptive.generate(PROMPT, 20).token_ids == plain.token_ids
    assert set(adaptive.chosen) == {0, 1}
    with pytest.raises(ConfigError, match="draft_models is empty"):
        AdaptiveDraftModel(models["target"], [])


def made(accepted: int, rejections: int, *, cost: float) -> SimpleNamespace:
    """A text's counters: as many passes as rejections, a pass takes a second, a draft token `cost`."""
    drafted = accepted + rejections
    stats = RequestStats(
        num_steps=max(1, rejections), num_accepted_tokens=accepted, num_rejections=rejections, num_draft_tokens=drafted,
        target_seconds=float(max(1, rejections)), draft_seconds=cost * drafted,
    )  # fmt: skip
    return SimpleNamespace(stats=stats)


def test_history_decides_the_length(models):
    """Two phases, guesses right and guesses wrong: the length is the formulas' best one, and 0 among them."""
    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["good"], 12)
    tokens = tuple(range(40))
    analyzer = SpeedupAnalyzer(draft_cost=0.1)
    for _ in range(40):
        adaptive.update(made(90, 10, cost=0.1))
    assert abs(adaptive.choose_length(tokens) - analyzer.optimal_length(0.9, 12)) <= 1
    for _ in range(60):
        adaptive.update(made(3, 97, cost=0.1))
    assert adaptive.choose_length(tokens) == 0


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
    adaptive = AdaptiveSpeculativeDecoding(models["target"], models["useless"], 6)
    engine = adaptive.llm.engine
    plain = LLM(models["target"]).generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(4):
        assert adaptive.generate(PROMPT, 20).token_ids == plain.token_ids
    assert adaptive.llm.engine is engine and len(adaptive.lengths) == 4


def test_complexity_is_monotone():
    estimator = SequenceComplexityEstimator()
    rng = random.Random(2)
    repeated, fresh = [1, 2, 3, 4, 5] * 12, [rng.randrange(5000) for _ in range(60)]
    assert estimator.score(repeated) < 0.1 and estimator.score(fresh) > 0.9
    assert estimator.score([]) == 0.5
    for name, values in (("entropies", (0.1, 1.0, 4.0)), ("rejections", (0.0, 0.4, 1.0))):
        scores = [estimator.score(fresh, **{name: [value]}) for value in values]
        assert scores == sorted(scores) and len(set(scores)) == 3 and all(0 <= score <= 1 for score in scores)


def ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, without ties in mind."""
    x, y = ranks(a), ranks(b)
    mean = (len(x) - 1) / 2
    return sum((i - mean) * (j - mean) for i, j in zip(x, y, strict=True)) / sum((i - mean) ** 2 for i in x)


def test_complexity_foretells_rejections_and_length_does_not():
    """On held-out texts of the zoo, look-up drafting: the score of the prompt against what was rejected after it."""
    llm = LLM("zoo:target", drafter="ngram", num_speculative_tokens=6)
    scores, lengths, rejected = [], [], []
    for name, text in sorted(zoo.heldout_prompts().items()):
        if name.split()[1] in "12345":
            ids = llm.encode(text)
            stats = llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=20, ignore_eos=True)).stats
            scores.append(SequenceComplexityEstimator().score(ids))
            lengths.append(float(len(ids)))
            rejected.append(1 - stats.num_accepted_tokens / stats.num_tokens)
    assert correlation(scores, rejected) > max(0.3, correlation(lengths, rejected))


@pytest.mark.slow
def test_a_draft_learns_its_target(models, tmp_path):
    trainer = DraftModelTrainer(models["target"], models["useless"])
    rng = random.Random(3)
    prompts = [[rng.randrange(61) for _ in range(4)] for _ in range(56)]
    rows = trainer.sample_rows(prompts, 24)
    assert rows.shape == (56, 25)
    rates = trainer.train(rows[:48], rows[48:], epochs=5)
    assert len(rates) == 6 and rates[-1] > rates[0] + 0.1
    trainer.save(tmp_path / "draft")
    llm = LLM(models["target"], draft_model=tmp_path / "draft")
    before = LLM(models["target"], draft_model=models["useless"])
    params = SamplingParams(max_tokens=32, temperature=1.0, ignore_eos=True)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts[:6]]
    one, other = ([result.stats for result in engine.generate(asked, params)] for engine in (llm, before))
    assert sum(s.num_accepted_tokens for s in one) > sum(s.num_accepted_tokens for s in other)
    with pytest.raises(ConfigError, match="did you mean 'forward_kl'"):
        DraftModelTrainer(models["target"], models["useless"], loss="forward_lk")


def test_temperature_keeps_the_gradients_size(models):
    """T^2: at a high temperature the loss tends to half the mean squared difference of centred logits."""
    import torch

    rows = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(1))
    losses = {}
    for temperature in (50.0, 200.0):
        trainer = DraftModelTrainer(models["target"], models["useless"], temperature=temperature)
        losses[temperature] = trainer.step(rows)
    assert losses[200.0] == pytest.approx(losses[50.0], rel=0.1)


def test_analyzer():
    analyzer = SpeedupAnalyzer(draft_cost=0.1)
    assert analyzer.optimal_length(0.8) == 6
    assert analyzer.theoretical_speedup(0.8, 6) == pytest.approx(2.47, abs=0.005)
    assert analyzer.theoretical_speedup(0.0, 5) == pytest.approx(0.67, abs=0.004)
    assert analyzer.theoretical_speedup(1.0, 5) == pytest.approx(6 / 1.5)
    assert analyzer.expected_tokens(0.5, 2) == 1.75
    assert SpeedupAnalyzer(draft_cost=0.5).optimal_length(0.4) == 0
