"""What adapts: it finds the better arm, finds it again after a swap, and knows easy text from hard."""

import random
import signal
from types import SimpleNamespace

import pytest
import torch

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.errors import ConfigError
from outdraft.engine.stats import RequestStats
from outdraft.models.load import load_model
from outdraft.nn.context import CausalContext
from outdraft.training.distill import Distill
from outdraft.tutorial import (
    AdaptiveDraftModel,
    AdaptiveSpeculativeDecoding,
    DraftModelTrainer,
    SequenceComplexityEstimator,
    SpeedupAnalyzer,
)

PROMPT = {"prompt_token_ids": [5, 6, 7, 8] * 3}


def test_the_best_draft_is_found_and_found_again(models):
    """The engine's own bandit, told of rounds: a swap of the two drafts' worth is noticed."""
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    assert adaptive.select_best_draft() == 0, "one that was never tried comes first"
    adaptive.update_performance(0, 4, 1.0)
    assert adaptive.select_best_draft() == 1
    rng = random.Random(1)
    for rates in ([1.0, 2.4], [2.4, 1.0]):
        chosen = []
        for _ in range(200):
            arm = adaptive.bandit._ucb()
            chosen.append(arm)
            adaptive.update_performance(arm, round(80 * rates[arm] * rng.uniform(0.8, 1.2)), 8.0)
        assert adaptive.select_best_draft() == rates.index(2.4)
        assert chosen[-50:].count(rates.index(2.4)) >= 45


def test_draft_models_are_tried_and_the_text_is_plain(models):
    adaptive = AdaptiveDraftModel(models["target"], [models["useless"], models["good"]], 4)
    plain = LLM(models["target"]).generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(6):
        assert adaptive.generate(PROMPT, 20).token_ids == plain.token_ids
    assert min(adaptive.bandit.plays) > 0 and adaptive.bandit is adaptive.llm.engine.parts.policy
    with pytest.raises(ConfigError, match="draft_models is empty"):
        AdaptiveDraftModel(models["target"], [])


def made(accepted: int, rejections: int, *, cost: float) -> SimpleNamespace:
    """A text's counters: as many passes as rejections, a pass takes a second, a draft token `cost`."""
    drafted = accepted + rejections
    stats = RequestStats(
        num_steps=max(1, rejections), num_accepted_tokens=accepted, num_rejections=rejections, num_draft_tokens=drafted,
        target_seconds=float(max(1, rejections)), draft_seconds=cost * drafted,
    )  # fmt: skip
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
    plain = LLM(models["target"]).generate(PROMPT, SamplingParams(max_tokens=20))
    for _ in range(4):
        assert adaptive.adaptive_generate(PROMPT, 20).token_ids == plain.token_ids
    assert adaptive.llm.engine is engine and len(adaptive.lengths) == 4


def test_the_estimator_is_given_entropies_and_rejections(models):
    """Those of the target's own distributions, and of the rounds of the texts so far."""
    told = []

    class Watching(SequenceComplexityEstimator):
        def score(self, tokens, **seen):
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
    rates = trainer.distill_knowledge([{"input_ids": rows[:30]}, rows[30:]], num_epochs=5)
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
    rows = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(1))
    losses = {}
    for temperature in (50.0, 200.0):
        trainer = DraftModelTrainer(models["target"], models["useless"], temperature=temperature)
        losses[temperature] = float(trainer.objective.loss(rows)[0].detach())
    assert losses[200.0] == pytest.approx(losses[50.0], rel=0.1)


def test_distillation_is_the_training_packages_own(models):
    """Its objective, loop and optimiser; a step changes the draft, and a signal's handler is left alone."""
    trainer = DraftModelTrainer(models["target"], models["useless"])
    assert isinstance(trainer.objective, Distill)
    before, handler = [p.clone() for p in trainer.draft.parameters()], signal.getsignal(signal.SIGINT)
    rows = torch.randint(61, (16, 9), generator=torch.Generator().manual_seed(1))
    rates = trainer.distill_knowledge([rows], num_epochs=2)
    assert len(rates) == 3 and rates == trainer.acceptance and signal.getsignal(signal.SIGINT) is handler
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.draft.parameters(), strict=True))
    for bad in ([], [rows[:4]], [rows, rows[:, :5]]):
        with pytest.raises(ConfigError):
            trainer.distill_knowledge(bad)


def test_analyzer():
    analyzer = SpeedupAnalyzer
    assert analyzer.optimal_candidate_count(0.8, 0.1) == 6
    assert analyzer.theoretical_speedup(0.8, 0.1, 6) == pytest.approx(2.47, abs=0.005)
    assert analyzer.theoretical_speedup(0.0, 0.1, 5) == pytest.approx(0.67, abs=0.004)
    assert analyzer.theoretical_speedup(1.0, 0.1, 5) == pytest.approx(6 / 1.5)
    assert analyzer.expected_tokens(0.5, 2) == 1.75
    assert analyzer.optimal_candidate_count(0.4, 0.5) == 0
