"""Weights of a drafter that are replaced while requests are decoded, with a plug-in that takes them."""

import gc
import json
import shutil
from dataclasses import replace
from typing import ClassVar
from weakref import ref

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.adoption import Adoption
from outdraft.core.draft import chain
from outdraft.core.drafter import Traits, inner
from outdraft.core.policy import Budget
from outdraft.drafters.shared.plain import OneByOne
from outdraft.drafters.shared.renewing import RenewingDrafter
from outdraft.engine.between_steps import adopt, listen
from outdraft.options.errors import CapabilityError, ConfigError, OutdraftError
from outdraft.testing.reference_rule import ConstantPolicy

PROMPT, TOKENS = "The sea was", 40
SETTINGS = {
    "greedy": SamplingParams(max_tokens=TOKENS, ignore_eos=True),
    "seeded": SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=7, ignore_eos=True),
    "drawn": SamplingParams(max_tokens=TOKENS, temperature=1.0, ignore_eos=True),
}


class Unigram(OneByOne):
    """Draws every token from one distribution, which is all of its weights."""

    def __init__(self, logits):
        self.logits = logits  # [V]
        self.traits = Traits(adopt=Adoption(self.take))

    def take(self, weights):
        if weights["logits"].shape != self.logits.shape:
            raise ValueError(f"{tuple(weights['logits'].shape)} logits in place of {tuple(self.logits.shape)}")
        self.logits = weights["logits"]

    def guess(self, seq, budget):
        q = torch.softmax(self.logits, -1)
        if seq.request.params.greedy:
            return chain([seq.pending, *[int(q.argmax())] * budget.depth])
        coins = seq.draft_coins(seq)
        tokens = [coins.draw(q, depth, depth)[0] for depth in range(budget.depth)]
        return chain([seq.pending, *tokens], q=q.expand(budget.depth, -1))


class Asks(OneByOne):
    """Another drafter, which it asks."""

    def __init__(self, *asked):
        self.traits = Traits(inner=asked)

    def guess(self, seq, budget):
        return self.traits.inner[0].guess(seq, budget)


class Decided:
    """What was decided, and what came of it."""

    def __init__(self):
        self.each = []

    def passed(self, decisions, events, now, seconds):
        self.each += zip(decisions.each, events, strict=True)

    def asked(self, seq, now): ...

    refused = ended = asked


def sure_of(vocab, token, certainty=30.0):
    logits = torch.zeros(vocab, dtype=torch.float64)
    logits[token] = certainty
    return logits


def with_drafter(llm, drafter):
    llm.engine.parts = replace(llm.engine.parts, drafter=drafter, policy=ConstantPolicy(Budget(depth=3)))
    return llm


@pytest.fixture(scope="module")
def plain():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


@pytest.fixture
def llm():
    with LLM("zoo:target", drafter="none") as llm:
        yield with_drafter(llm, Asks(Unigram(sure_of(llm.engine.parts.target.vocab_size, 5))))


def half_way(llm, params, work):
    """A text, in the midst of which `work` is done; and what was decided for it."""
    decided = Decided()
    end = listen(llm, lambda engine: decided)
    stream = llm.stream(PROMPT, params)
    chunks = [next(stream), next(stream)]
    result = work()
    chunks += stream
    end()
    return [token for chunk in chunks for token in chunk.token_ids], chunks[-1], decided.each, result


@pytest.mark.parametrize("kind", ["greedy", "seeded"])
def test_a_running_request_keeps_its_text(llm, plain, kind):
    vocab = llm.engine.parts.target.vocab_size
    text, _, decided, version = half_way(llm, SETTINGS[kind], lambda: adopt(llm, {"logits": sure_of(vocab, 9)}))
    assert tuple(text) == plain.generate(PROMPT, SETTINGS[kind]).token_ids and version == 1
    drafted = [(one, event) for one, event in decided if event.num_draft_tokens]
    assert {one.draft_version for one, _ in drafted} == {0, 1}
    assert all(event.draft_version == one.draft_version for one, event in drafted)
    if kind == "greedy":
        whole = [one for one, _ in drafted if one.draft.num_nodes == 4]
        guesses = {(one.draft_version, *one.draft.tokens.tolist()[1:]) for one in whole}
        assert guesses == {(0, 5, 5, 5), (1, 9, 9, 9)}


def test_drawn_guesses_travel_with_the_distribution_that_they_were_drawn_from(llm):
    vocab = llm.engine.parts.target.vocab_size
    tables = {0: sure_of(vocab, 5), 1: sure_of(vocab, 9, 3.0)}
    _, _, decided, _ = half_way(llm, SETTINGS["drawn"], lambda: adopt(llm, {"logits": tables[1]}))
    drafted = [one for one, event in decided if event.num_draft_tokens]
    assert {one.draft_version for one in drafted} == {0, 1}
    for one in drafted:
        assert torch.equal(one.draft.q[0], torch.softmax(tables[one.draft_version], -1))


def test_a_result_counts_rounds_by_version(llm):
    vocab = llm.engine.parts.target.vocab_size
    first = llm.generate(PROMPT, SETTINGS["greedy"]).stats
    assert first.rounds_by_version == {0: first.num_drafted_steps} and first.num_drafted_steps
    assert [adopt(llm, {"logits": sure_of(vocab, token)}) for token in (8, 9)] == [1, 2]
    last = llm.generate(PROMPT, SETTINGS["greedy"]).stats
    assert last.rounds_by_version == {2: last.num_drafted_steps}


def test_what_fails_leaves_the_old_weights(llm, plain):
    def fails():
        with pytest.raises(ValueError, match="logits in place of"):
            adopt(llm, {"logits": torch.zeros(3)})

    text, _, decided, _ = half_way(llm, SETTINGS["greedy"], fails)
    assert tuple(text) == plain.generate(PROMPT, SETTINGS["greedy"]).token_ids
    assert {one.draft_version for one, _ in decided} == {0}
    assert {5} == {token for one, _ in decided for token in one.draft.tokens.tolist()[1:]}


def test_exactly_one_drafter_takes_weights(llm, plain):
    with pytest.raises(CapabilityError, match="here are 0"):
        adopt(plain, {})
    vocab = llm.engine.parts.target.vocab_size
    with_drafter(llm, Asks(Unigram(sure_of(vocab, 5)), Unigram(sure_of(vocab, 6))))
    with pytest.raises(CapabilityError, match="here are 2"):
        adopt(llm, {"logits": sure_of(vocab, 1)})


class TestANetworkInADirectory:
    """A head that ships, replaced by another in the midst of texts."""

    NAMED: ClassVar = {"eagle3": "zoo:eagle3", "draft_model": "zoo:draft"}

    @pytest.fixture(params=["eagle3", "draft_model", "several"])
    def llm(self, request):
        named = {name: {"model": model, "adopts": True} for name, model in self.NAMED.items()}
        described = {"name": request.param, **named.get(request.param, {})}
        if request.param == "several":
            described["drafters"] = ["ngram", {"method": "eagle3", **named["eagle3"]}]
        with LLM("zoo:target", drafter=described, policy={"name": "fixed", "num_speculative_tokens": 3}) as llm:
            yield llm

    @pytest.fixture
    def worse(self, llm, tmp_path):
        """The same network, all of whose weights have the other sign."""
        kind = "draft" if llm.config["drafter"]["name"] == "draft_model" else "eagle3"
        shutil.copytree(zoo.path(kind), tmp_path / "worse")
        place = tmp_path / "worse/model.safetensors"
        weights = {name: -one if one.is_floating_point() else one for name, one in load_file(place).items()}
        save_file(weights, place)
        return tmp_path / "worse"

    def test_texts_keep_the_one_that_they_began_with(self, llm, plain, worse):
        text, _, decided, version = half_way(llm, SETTINGS["greedy"], lambda: adopt(llm, worse))
        expected = plain.generate(PROMPT, SETTINGS["greedy"])
        assert tuple(text) == expected.token_ids and version == 1
        assert {one.draft_version for one, event in decided if event.num_draft_tokens} == {0}
        after = llm.generate(PROMPT, SETTINGS["greedy"])
        assert after.token_ids == expected.token_ids and set(after.stats.rounds_by_version) == {1}

    def test_the_old_network_goes_with_its_last_text(self, llm, worse):
        (renewing,) = (one for one in inner(llm.engine.parts.drafter) if isinstance(one, RenewingDrafter))
        old = ref(renewing.newest)
        half_way(llm, SETTINGS["greedy"], lambda: adopt(llm, worse))
        llm.generate(PROMPT, SETTINGS["greedy"])
        gc.collect()
        assert old() is None

    def test_two_versions_share_a_batch(self, llm, plain, worse):
        stream = llm.stream(PROMPT, SETTINGS["greedy"])
        begun = [next(stream), next(stream)]
        adopt(llm, worse)
        later = llm.generate([PROMPT, "It was late"], SETTINGS["seeded"])
        begun += stream
        assert [token for one in begun for token in one.token_ids] == [
            *plain.generate(PROMPT, SETTINGS["greedy"]).token_ids
        ]
        for prompt, result in zip((PROMPT, "It was late"), later, strict=True):
            assert result.token_ids == plain.generate(prompt, SETTINGS["seeded"]).token_ids
            assert set(result.stats.rounds_by_version) <= {1}

    def test_a_drafter_beside_the_pass_is_refused(self):
        drafter = {"name": "edgellm", "model": "zoo:draft", "adopts": True}
        with pytest.raises(CapabilityError, match="drafter 'edgellm' works beside the target's pass"):
            LLM("zoo:target", drafter=drafter)

    def test_another_network_is_refused(self, llm, tmp_path):
        with pytest.raises(OutdraftError):
            adopt(llm, tmp_path)
        assert set(llm.generate(PROMPT, SETTINGS["greedy"]).stats.rounds_by_version) <= {0}

    def test_a_network_on_other_states_is_refused(self, plain, tmp_path):
        shutil.copytree(zoo.path("eagle3"), tmp_path / "other")
        place = tmp_path / "other/config.json"
        config = json.loads(place.read_text())
        del config["eagle_config"]
        config["eagle_aux_hidden_state_layer_ids"] = [2, 3, 4]
        place.write_text(json.dumps(config))
        drafter = {"name": "eagle3", "model": "zoo:eagle3", "adopts": True}
        with LLM("zoo:target", drafter=drafter, num_speculative_tokens=3) as llm:
            with pytest.raises(ConfigError, match="reads the target's states after layers"):
                adopt(llm, tmp_path / "other")
            assert llm.generate(PROMPT, SETTINGS["greedy"]).stats.rounds_by_version.keys() == {0}
