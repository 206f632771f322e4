"""The whole draft-review account on the zoo's models: every mechanism of `recipe:draft_review` moves.

Length, gates, fallback, histogram and marginal acceptance in one service; then a draft that was spoiled is diagnosed,
learns from what it served and is replaced while the engine runs; then memory is short. No text changes by any of it.
"""

import shutil
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams, zoo
from outdraft.adapt import diagnose as rules
from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import Cure, diagnose
from outdraft.adapt.learning import Learning
from outdraft.adapt.observe import Observed
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.between_steps import adopt
from outdraft.kernels.library import library
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.served import ServedRequest

TEXTS = list(zoo.heldout_prompts().values())
GREEDY = SamplingParams(max_tokens=200, ignore_eos=True)
ROUNDS = 250
FEW = 200  # rounds that say something here


class Service:
    """An engine of the recipe that is watched."""

    def __init__(self, draft, recipe="draft_review"):
        self.llm = LLM("zoo:target", drafter=f"recipe:{recipe}", draft_model=str(draft), precision="elastic")
        parts = self.llm.engine.parts
        self.counts, observe = parts.policy.counts, parts.drafter.observe
        self.observed, self.served = Observed(), []

        def seen(several):
            for one in several:
                self.observed.add(one)
            observe(several)

        parts.drafter.observe = seen

    def sample(self, texts):
        """Serve these again and again, until enough guesses have been judged."""
        self.observed, number = Observed(), 0
        while self.observed.whole.rounds < ROUNDS:
            params = SamplingParams(max_tokens=96, temperature=0.8, seed=number, ignore_eos=True)
            made = self.llm.generate(texts[number % len(texts)], params)
            self.served.append(ServedRequest(prompt=tuple(made.prompt_token_ids), answer=tuple(made.token_ids)))
            number += 1
        return self.observed.whole


@pytest.fixture(scope="module")
def plain():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


@pytest.fixture
def spoiled(tmp_path):
    """The zoo's draft with three tenths of noise in its matrices, as of a training that ended too soon."""
    place, dice = shutil.copytree(zoo.path("draft"), tmp_path / "spoiled"), torch.Generator().manual_seed(0)
    weights = load_file(place / "model.safetensors")
    for name, one in weights.items():
        if one.dim() == 2:
            noise = torch.randn(one.shape, generator=dice) * one.float().std()
            weights[name] = (0.7 * one.float() + 0.3 * noise).to(one.dtype)
    save_file(weights, place / "model.safetensors")
    return place


@pytest.mark.skipif(library() is None, reason="elastic precision is for the native kernels, which are not built")
def test_every_mechanism_moves(plain, spoiled, tmp_path, monkeypatch):
    sound, histogram, lengths = Service(zoo.path("draft")), Counter(), set()
    for prompt in ("It was late when", TEXTS[5]):
        made = sound.llm.generate(prompt, GREEDY)
        assert made.token_ids == plain.generate(prompt, GREEDY).token_ids and made.lossless
        lengths |= {drafted for drafted, _ in made.stats.per_step}
        histogram.update(dict(enumerate(made.stats.first_rejection_histogram)))
    assert lengths >= {1, 2, 3, 5, 6, 7, 8}, "by history from 3 to 8, and less after lost guesses"
    assert sound.counts.falls > sound.counts.recoveries > 0 and sound.counts.plain_tokens > 0
    whole = sound.observed.whole
    assert [*whole.first_rejection] == [histogram[i] for i in range(len(whole.reached))] and whole.first_rejection[0]
    assert all(near > kept for near, kept in zip(whole.nearness[:3], whole.acceptance[:3], strict=True))

    lossy = Service(zoo.path("draft"), "draft_review_lossy")
    made = lossy.llm.generate(TEXTS[5], GREEDY)
    assert not made.lossless and lossy.observed.whole.acceptance[0] > whole.acceptance[0]

    first = sound.sample(TEXTS[:13])
    record = AcceptanceRecord.of(sound.observed)
    worse = Service(spoiled)
    poor = worse.sample(TEXTS[:13])
    monkeypatch.setattr(rules, "_LEAST_ROUNDS", FEW)
    found = diagnose(worse.observed, record)
    assert found.cure in (Cure.LEARN, Cure.LEARN_EARLY), found.sentence
    assert poor.acceptance[0] < first.acceptance[0] and poor.nearness[0] < first.nearness[0]

    settings = Learning(lr=3e-3, muon_lr=5e-3, step_tokens=512, held_out=0.0)
    live = LiveDraft(open_target(zoo.path("target"), "auto", "cpu"), spoiled, settings)
    for one in worse.served:
        live.add(one)
    for _ in range(8):
        live.learn()
    live.write(live.weights(), tmp_path / "learned")
    assert adopt(worse.llm, tmp_path / "learned") == 1
    better = worse.sample(TEXTS[13:])
    assert better.acceptance[0] > poor.acceptance[0] + 0.05 and better.nearness[0] > poor.nearness[0]
    made = worse.llm.generate(TEXTS[5], GREEDY)
    assert set(made.stats.rounds_by_version) == {1} and made.token_ids == plain.generate(TEXTS[5], GREEDY).token_ids

    sound.llm.engine.ladder.read = lambda: Memory(free=1, total=100)
    variants, levels = [], []
    for _ in range(2):
        variants.append(sound.llm.generate("The sea", SamplingParams(max_tokens=8)).variant)
        levels.append(sound.llm.config["precision"]["level"])
    assert levels == ["draft-int4", "mixed"] and variants == ["", "int4-g32-mixed"]
