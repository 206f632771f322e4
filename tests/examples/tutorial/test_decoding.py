"""The tutorial's decoders: plain decoding's text, at least one token a round, counters that add up."""

from math import nan
from shutil import copytree

import pytest
import torch
from contracts.sides import toy_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM
from tutorial import (
    AdaptiveDraftModel,
    AdvancedSpeculativeDecoding,
    BatchSpeculativeDecoding,
    MemoryOptimizedSpeculativeDecoding,
    ProbabilisticVerification,
    QuantizedSpeculativeDecoding,
    SpeculativeDecoding,
)
from verify.distributions import CHAINS, PAIRS, rule
from verify.measuring import CONTEXT, deviation

from outdraft import LLM, SamplingParams
from outdraft.core.events import Source
from outdraft.options.errors import ConfigError
from tests.helpers.enumerate_distribution import expected_accepted
from tests.helpers.tables import drafts_from

PROMPTS = [{"prompt_token_ids": ids} for ids in ([5, 6, 7, 8] * 3, [1, 2, 3], [9] * 7, [4])]


@pytest.fixture(scope="module")
def plain(models):
    return LLM(models["target"], drafter="none")


@pytest.mark.parametrize("draft", ["good", "useless"])
@pytest.mark.parametrize("k", [1, 5])
def test_text_and_counters(models, plain, draft, k):
    decoder = SpeculativeDecoding(models["target"], models[draft], k)
    rounds = []
    for prompt in PROMPTS:
        result = decoder.generate(prompt, 24, ignore_eos=True)
        alone = plain.generate(prompt, SamplingParams(max_tokens=24, ignore_eos=True))
        assert result.token_ids == alone.token_ids and result.finish_reason == "length"
        rounds.append(result.stats.num_steps)
    told = decoder.stats
    assert told.emitted == told.accepted + told.rounds == 96 and told.rounds == sum(rounds) <= 96
    assert decoder.acceptance_rate == told.accepted / (told.accepted + told.rejected)
    assert (decoder.acceptance_rate > 0.6) == (draft == "good")


def test_the_extra_token_is_sampled(models):
    decoder = AdvancedSpeculativeDecoding(models["target"], models["good"], 2)
    ends = set()
    for _ in range(12):
        result = decoder.generate(PROMPTS[0], 3, ignore_eos=True)
        ends |= {(s, t) for s, t in zip(result.sources, result.token_ids, strict=True) if s is not Source.ACCEPTED}
    assert len({token for _, token in ends}) > 2 and decoder.llm.config["verifier"]["name"] == "rejection"


def test_three_names_are_exact():
    target, drafter = PAIRS["random"]
    counts = {}
    for name in ("stochastic", "conservative", "deterministic"):
        words = ProbabilisticVerification(name)
        verifier = rule(words.verifier, **words.verifier_options)
        assert verifier.lossless and deviation(verifier, PAIRS["random"], CHAINS["three"]) < 1e-9
        counts[name] = expected_accepted(verifier, target, drafts_from(drafter, CHAINS["three"]), CONTEXT)
    assert counts["stochastic"] > counts["conservative"] > counts["deterministic"] > 0


def test_as_the_tutorial_has_them_they_are_lossy(models):
    drift = []
    for words in (
        ProbabilisticVerification("deterministic", exact=False),
        *(ProbabilisticVerification("conservative", threshold=value, exact=False) for value in (0.5, 0.1)),
    ):
        verifier = rule(words.verifier, **words.verifier_options)
        assert not verifier.lossless
        drift.append(deviation(verifier, PAIRS["random"], CHAINS["three"]))
    assert 0.01 < drift[1] < drift[2], "a smaller threshold is the looser one"
    decoder = AdvancedSpeculativeDecoding(models["target"], models["good"], verification=words)
    assert decoder.llm.config["verifier"]["lossless"] is False


@pytest.mark.parametrize(
    "words, says",
    [
        (("stochastc",), "did you mean 'stochastic'"),
        (("stochastic", False), "exact in any case"),
        (("conservative", True, 0), "threshold=0: must be above 0"),
        (("conservative", True, nan), "threshold=nan"),
    ],
)
def test_strategies_that_there_are_not(words, says):
    name, *rest = words
    with pytest.raises(ConfigError, match=says):
        ProbabilisticVerification(name, **dict(zip(("exact", "threshold"), rest, strict=False)))


def test_batches_are_ragged_and_rows_are_their_own(models):
    """Sequences of unequal lengths and coins, more than fit at once, in two orders: each has the text it has alone."""
    asked = [(prompt, 6 + 5 * i, {"temperature": 1.0, "seed": i} if i % 2 else {}) for i, prompt in enumerate(PROMPTS)]
    decoder = SpeculativeDecoding(models["target"], models["good"], 4)
    alone = [decoder.generate(prompt, length, **words).token_ids for prompt, length, words in asked]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        batch = BatchSpeculativeDecoding(models["target"], models["good"], 4, max_num_seqs=3)
        numbers = {batch.add_sequence(asked[i][0], asked[i][1], **asked[i][2]): i for i in order[:3]}
        ended = batch.step()
        numbers[batch.add_sequence(asked[order[3]][0], asked[order[3]][1], **asked[order[3]][2])] = order[3]
        done = batch.run()
        assert set(done) == set(numbers) and not ended
        for number, i in numbers.items():
            assert tuple(done[number].token_ids) == alone[i] and done[number].finish_reason == "length"


def test_an_end_inside_a_batch(models, plain):
    text = plain.generate(PROMPTS[0], SamplingParams(max_tokens=30)).token_ids
    end = text[9]
    batch = BatchSpeculativeDecoding(models["target"], models["good"], 5)
    first = batch.add_sequence(PROMPTS[0], 30, stop_token_ids=(end,))
    second = batch.add_sequence(PROMPTS[0], 30)
    done = batch.run()
    assert tuple(done[first].token_ids) == text[: text.index(end) + 1] and done[first].finish_reason == "stop"
    assert tuple(done[second].token_ids) == text


def test_sequences_that_have_ended_are_handed_over_once(models):
    batch = BatchSpeculativeDecoding(models["target"], models["good"], 4, batch_size=2)
    numbers = [batch.add_sequence(prompt, 5, ignore_eos=True) for prompt in PROMPTS[:3]]
    batch.run()
    assert set(batch.get_completed_sequences()) == set(numbers) and not batch.get_completed_sequences()


def test_both_caches_are_reused(models, plain):
    """A round's pass has the pending token and the draft, nothing of the past; the cache lags by that one token."""
    decoder = MemoryOptimizedSpeculativeDecoding(models["target"], models["good"], 4)
    seen = []
    step = decoder.llm.engine.step

    def watch():
        seqs = list(decoder.llm.engine.running)
        events = step()
        seen.extend((event, seq) for event, seq in zip(events, seqs, strict=False))
        assert all(seq.num_cached == len(seq.tokens) - 1 for seq in seqs if seq.prefilled and not seq.finish_reason)
        return events

    decoder.llm.engine.step = watch
    result = decoder.generate(PROMPTS[0], 40, ignore_eos=True)
    assert result.token_ids == plain.generate(PROMPTS[0], SamplingParams(max_tokens=40, ignore_eos=True)).token_ids
    assert decoder.llm.config["kv_cache"] == "paged" and len(seen) > 5
    whole = MemoryOptimizedSpeculativeDecoding(models["target"], models["good"], 4, kv_cache_optimization=False)
    assert whole.llm.config["kv_cache"] == "static"
    assert all(event.num_certain + event.num_draft_tokens + 1 <= 5 for event, _ in seen if not event.num_certain)


def test_quantized_is_declared_and_measured():
    prompts = ["It was late when", "def main("]
    plain = LLM("zoo:target", drafter="none")
    draft = QuantizedSpeculativeDecoding("zoo:target", "zoo:draft", 4)
    told = draft.measure(prompts, 16)
    assert told["target_variant"] == "" and told["draft_variant"].startswith("int4")
    assert told["tokens_per_second"] > 0 and 1 <= told["tokens_per_pass"] <= 5 and draft.stats.rounds == 0
    params = SamplingParams(max_tokens=16)
    assert [draft.generate(p, 16).text for p in prompts] == [plain.generate(p, params).text for p in prompts]
    both = QuantizedSpeculativeDecoding("zoo:target", "zoo:draft", 4, target_quantized=True, bits=8)
    same = LLM("zoo:target", drafter="none", precision="mixed")
    result = both.generate(prompts[0], 16)
    assert "int4" in result.variant and result.text == same.generate(prompts[0], params).text
    assert both.llm.config["drafter"]["variant"].startswith("int8")


def first_tokens(rule, p, q, count=1000):
    """How often each token came first, by one draft of two for each seed."""
    counts, generator = torch.zeros(4), torch.Generator().manual_seed(1)
    for seed in range(count):
        drawn = [int(torch.multinomial(row, 1, generator=generator)) for row in q[:2]]
        found = rule.verify_tokens(p, q[:2], drawn, seed=seed)
        assert len(found.tokens) == found.num_accepted + 1 and list(found.tokens[:-1]) == drawn[: found.num_accepted]
        assert found.is_bonus == (found.num_accepted == 2)
        counts[found.tokens[0]] += 1
    return counts / count


def test_one_draft_is_judged_by_the_engines_rule():
    """Accepted tokens and one more; the first token has the target's distribution, and the lossy gate's has not."""
    p, q = (torch.stack([table([0, 1]), table([1, 2]), table([2, 3])]) for table in PAIRS["random"])
    for name in ("stochastic", "deterministic", "conservative"):
        assert float((first_tokens(ProbabilisticVerification(name), p, q) - p[0]).abs().sum()) < 0.08, name
    lossy = ProbabilisticVerification("conservative", threshold=0.1, exact=False)
    assert float((first_tokens(lossy, p, q) - p[0]).abs().sum()) > 0.16


def test_a_deterministic_draft_and_wrong_shapes():
    target, _ = PAIRS["random"]
    p = torch.stack([target([0, 1])] * 3)
    rule = ProbabilisticVerification("stochastic")
    assert len(rule.verify_tokens(p, None, [2, 2], seed=1).tokens) >= 1
    with pytest.raises(ConfigError, match=r"target_probs has shape \(2, 4\); 3 rows of 4"):
        rule.verify_tokens(p[:2], None, [2, 2])
    with pytest.raises(ConfigError, match=r"draft_probs has shape"):
        rule.verify_tokens(p, p, [2, 2])


def test_loaded_models_tensors_and_the_tutorials_words(tmp_path):
    """Models of transformers as they are in memory: the text is that of their own greedy decoding."""
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(1)
    target, draft = LlamaForCausalLM(config).eval(), LlamaForCausalLM(config).eval()
    ids = torch.tensor([[5, 6, 7, 8, 5, 6]])
    theirs = target.generate(ids, attention_mask=torch.ones_like(ids), max_length=30, do_sample=False)[0].tolist()
    decoder = MemoryOptimizedSpeculativeDecoding(target, draft, 3)
    result = decoder.generate(ids, max_length=30, ignore_eos=True)
    assert [*result.prompt_token_ids, *result.token_ids] == theirs
    decoder.reset_cache()
    assert decoder.generate(ids[0].tolist(), 24, ignore_eos=True).token_ids == result.token_ids
    assert decoder.get_acceptance_rate() == decoder.acceptance_rate
    adaptive = AdaptiveDraftModel(target, [draft, target], 3)
    assert adaptive.generate(ids, 24, ignore_eos=True).token_ids == result.token_ids
    ruled = AdvancedSpeculativeDecoding(target, draft, verification_method="conservative")
    assert ruled.llm.config["verifier"]["name"] == "gated" and ruled.verification.method == "conservative"
    for wrong, says in ((7, "not int"), (object(), "not object")):
        with pytest.raises(ConfigError, match=says):
            SpeculativeDecoding(wrong, draft)
    with pytest.raises(ConfigError, match="one text at a time"):
        decoder.generate(ids.repeat(2, 1))


def test_a_tokenizer_comes_with_a_loaded_model(models):
    class Tokenizer:
        def save_pretrained(self, directory):
            toy_tokenizer(61, seed=1).save(f"{directory}/tokenizer.json")

    class Loaded:
        def save_pretrained(self, directory):
            copytree(models["target"], directory, dirs_exist_ok=True)

    decoder = SpeculativeDecoding(Loaded(), models["good"], tokenizer=Tokenizer())
    assert decoder.generate("abcabc", 8).text
    with pytest.raises(ConfigError, match="has its own tokenizer"):
        SpeculativeDecoding(models["target"], models["good"], tokenizer=Tokenizer())
