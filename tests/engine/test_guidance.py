"""Classifier-free guidance through the public interface: the same texts as transformers', and one clear error each."""

from dataclasses import replace

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.cache import PAGE
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.decode.guidance import GuidedTarget
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.assembly.variant import runner_of
from outdraft.engine.guided import GuidedRoom
from outdraft.engine.loop import Engine
from outdraft.engine.requests.longest import most_rows
from outdraft.options.errors import CapabilityError, RequestError
from outdraft.verify.auto import Auto
from tests.helpers.fakes import ConstantPolicy, TableTarget

PROMPTS = ["The old house stood", "def add(a, b):\n    return", "Once there was a"]
GUIDED = SamplingParams(max_tokens=24, guidance_scale=3)
SEEDED = SamplingParams(max_tokens=24, guidance_scale=1.8, temperature=0.8, seed=5)
NEGATIVE = "It rained, and rained, and"


@pytest.fixture(scope="module")
def zoo() -> LLM:
    return LLM("zoo:target", drafter="none")


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, drafter="none", dtype="float32")


def mixed(params: SamplingParams):
    """Prompts and their settings: one with a negative prompt of its own, one that is not guided."""
    asked = [*PROMPTS, {"prompt": PROMPTS[0], "negative_prompt": NEGATIVE}, PROMPTS[0]]
    return asked, [params] * 4 + [SamplingParams(max_tokens=24, temperature=params.temperature, seed=params.seed)]


@pytest.fixture(scope="module", params=[GUIDED, SEEDED], ids=["greedy", "seeded"])
def alone(request, zoo):
    """The settings, and what plain decoding writes for each request by itself."""
    texts = [zoo.generate(prompt, one).token_ids for prompt, one in zip(*mixed(request.param), strict=True)]
    assert len({texts[0], texts[3], texts[4]}) == 3  # the negative prompt matters, and so does guidance
    return request.param, texts


@pytest.mark.parametrize("words", [{"drafter": "ngram"}, {"draft_model": "zoo:draft"}], ids=["ngram", "draft_model"])
def test_drafting_changes_nothing_and_neither_does_the_batch(zoo, words, alone):
    fast = zoo.with_speculation(**words, policy="fixed", num_speculative_tokens=4)
    results = fast.generate(*mixed(alone[0]))
    assert [one.token_ids for one in results] == alone[1]
    assert sum(one.stats.num_accepted_tokens for one in results) > 0


def test_a_scale_of_1_is_off(zoo):
    begun, runner = [], runner_of(zoo.engine.parts)
    begin = runner.begin
    runner.begin = lambda seq: begun.append(seq.id) or begin(seq)
    try:
        plain = SamplingParams(max_tokens=12, logprobs=2)
        off = SamplingParams(max_tokens=12, logprobs=2, guidance_scale=1)
        assert zoo.generate(PROMPTS[0], off).logprobs == zoo.generate(PROMPTS[0], plain).logprobs
        assert len(begun) == 2
        zoo.generate(PROMPTS[0], GUIDED)
        assert len(begun) == 4
    finally:
        runner.begin = begin


def test_streams_chats_and_several_texts_are_guided(llm):
    whole = llm.generate("abcabc", GUIDED, negative_prompt="xyz")
    assert "".join(chunk.text for chunk in llm.stream("abcabc", GUIDED, negative_prompt="xyz")) == whole.text
    assert whole.token_ids != llm.generate("abcabc", GUIDED).token_ids
    ids = list(llm.encode("xyz"))
    for negative in ({"negative_prompt": ids}, {"negative_prompt_token_ids": ids}):
        assert llm.generate("abcabc", GUIDED, **negative).token_ids == whole.token_ids
    message = [{"role": "user", "content": "hello"}]
    assert llm.chat(message, GUIDED).token_ids != llm.chat(message, SamplingParams(max_tokens=24)).token_ids
    several = llm.generate("abc", SamplingParams(max_tokens=9, temperature=1.0, seed=1, n=2, guidance_scale=2.0))
    assert len({one.token_ids for one in several.outputs}) == 2


@pytest.mark.parametrize("negative", ["default", "given"])
def test_texts_are_those_of_transformers(llm, model_dir, negative):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    ids = list(llm.encode("the cat sat on the mat"))
    other = None if negative == "default" else list(llm.encode("a dog"))
    for scale in (0.5, 1.5, 3.0):
        words = {} if other is None else {"negative_prompt_ids": torch.tensor([other])}
        theirs = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            guidance_scale=scale,
            do_sample=False,
            max_new_tokens=20,
            repetition_penalty=1.2,
            eos_token_id=None,
            pad_token_id=0,
            **words,
        )
        params = SamplingParams(max_tokens=20, guidance_scale=scale, repetition_penalty=1.2, ignore_eos=True)
        ours = llm.generate({"prompt_token_ids": ids}, params, negative_prompt_token_ids=other)
        assert list(ours.token_ids) == theirs[0, len(ids) :].tolist(), scale


def test_layers_of_transformers_write_the_same(llm, model_dir):
    pytest.importorskip("transformers")
    other = LLM(model_dir, model_impl="transformers", drafter="ngram", dtype="float32", num_speculative_tokens=4)
    for params in (GUIDED, SEEDED):
        results = other.generate(["abcabcabc", "hello"], params, negative_prompt="ab")
        wanted = llm.generate(["abcabcabc", "hello"], params, negative_prompt="ab")
        assert [one.token_ids for one in results] == [one.token_ids for one in wanted]


@pytest.mark.parametrize("params", [GUIDED, SEEDED], ids=["greedy", "seeded"])
def test_a_guarded_target_writes_plain_decodings_text(model_dir, params):
    words = {"exact": False, "guard": 0.01, "dtype": "float32"}
    plain = LLM(model_dir, drafter="none", **words)
    fast = plain.with_drafter("ngram", num_speculative_tokens=4)
    prompts = ["abcabcabcabc", "x", "the cat sat on the mat, the cat sat"]
    alone = [plain.generate(prompt, params, negative_prompt="ab").token_ids for prompt in prompts]
    results = fast.generate(prompts, params, negative_prompt="ab")
    assert [one.token_ids for one in results] == alone
    assert fast.engine.parts.guide(fast.engine.parts).target.target.apart
    assert sum(one.stats.num_draft_tokens for one in results) > 0


def test_rows_of_earlier_texts_and_of_earlier_shadows_are_taken_over(zoo):
    llm = LLM("zoo:target", drafter="ngram", enable_prefix_caching=True)
    prompt, other = [5 + i % 60 for i in range(70)], [9 + i % 50 for i in range(50)]
    asked = {"prompt_token_ids": prompt, "negative_prompt": other}
    wanted = zoo.generate(asked, GUIDED).token_ids
    results = [llm.generate(asked, GUIDED) for _ in range(2)]
    assert [one.token_ids for one in results] == [wanted, wanted]
    if llm.config["kernels"] != "pytorch":
        assert results[1].num_cached_tokens == 64
    free = SamplingParams(max_tokens=9)
    swapped = {"prompt_token_ids": other}
    assert llm.generate(swapped, free).token_ids == zoo.generate(swapped, free).token_ids


@pytest.mark.parametrize("words", [{"drafter": "ngram"}, {"draft_model": "zoo:draft"}], ids=["ngram", "draft_model"])
def test_guided_requests_go_through_little_memory(zoo, words):
    prompts = [{"prompt_token_ids": [5 + (7 * i + j) % 90 for j in range(20 + 9 * (i % 5))]} for i in range(10)]
    for i in range(0, 10, 3):
        prompts[i]["negative_prompt"] = [4 + j % 80 for j in range(10 + 8 * i)]
    settings = [SamplingParams(max_tokens=20, guidance_scale=1.0 if i % 3 else 1.6) for i in range(10)]
    wanted = [one.token_ids for one in zoo.generate(prompts, settings)]
    runner = runner_of(zoo.engine.parts)
    page = runner.num_layers * 2 * PAGE * runner.decoder.config.num_kv_heads * runner.decoder.config.head_dim
    llm = LLM("zoo:target", kv_cache_memory=24 * page * runner.dtype.itemsize, **words)
    assert [one.token_ids for one in llm.generate(prompts, settings)] == wanted
    room = llm.engine.parts.room
    assert room.capacity is not None and room.free * PAGE == room.capacity


class Counting(Unbounded):
    """A page for each row."""

    def wanted(self, seq):
        return len(seq.tokens)

    def missing(self, seq, num_rows):
        return num_rows

    def held(self, seq):
        return seq.num_cached


def test_a_shadow_takes_what_its_text_takes():
    target = GuidedTarget(TableTarget(vocab_size=7))
    room = GuidedRoom(Counting(), target)
    engine = Engine(
        Parts(target=target, drafter=NoDrafter(), verifier=Auto(), policy=ConstantPolicy(Budget(depth=0)), room=room)
    )
    asked = Request(prompt_token_ids=(1,) * 5, params=GUIDED, negative_prompt_token_ids=(2,) * 3)
    waiting = engine.prepare(asked)
    assert room.wanted(waiting) == 5 + 3 and room.wanted(engine.prepare(Request(prompt_token_ids=(1,) * 5))) == 5
    seq = engine.add(asked)
    engine.step()
    assert room.held(seq) == 5 + 3
    assert room.missing(seq, 1) == 1 + 1 and room.missing(seq, 5) == 5 + 5
    seq.beside.num_cached -= 3
    assert room.missing(seq, 0) == 0 + 3 and room.missing(seq, 2) == 2 + 3 + 2
    seq.turn = replace(seq.turn, max_chunk=2)
    assert room.missing(seq, 0) == 0 + 2


def test_a_guided_text_that_never_fits_is_refused():
    request = Request(prompt_token_ids=(1,) * 20, params=GUIDED, negative_prompt_token_ids=(1,) * 4)
    most = most_rows(request, 64)
    pages = -(-(most - 1) // PAGE) + -(-(most - 1 - 16) // PAGE)
    assert most == 33 and pages * PAGE <= 64
    assert most_rows(Request(prompt_token_ids=(1,) * 20), 64) == 65


# Errors, before any work


def prepared(request: Request, **options) -> object:
    parts = Parts(
        target=TableTarget(vocab_size=7), drafter=NoDrafter(), verifier=Auto(), policy=ConstantPolicy(Budget(depth=0))
    )
    return Engine(parts, **options).prepare(request)


def test_a_target_that_does_not_guide_says_so():
    with pytest.raises(CapabilityError, match=r"guidance_scale=3: this engine's target does not guide"):
        prepared(Request(prompt_token_ids=(1,), params=GUIDED))


@pytest.mark.parametrize("scale", [-0.5, 100.5, float("nan"), float("inf"), "much"])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(RequestError, match="guidance_scale="):
        SamplingParams(guidance_scale=scale)


@pytest.mark.parametrize(
    ("words", "params", "said"),
    [
        ({"negative_prompt": "x"}, SamplingParams(), "negative_prompt: .* guidance_scale=1 turns off"),
        ({"negative_prompt": []}, GUIDED, "the negative prompt is empty"),
        ({"negative_prompt": [3, 1000]}, GUIDED, "the negative prompt has token id 1000, outside the voc"),
        ({"negative_prompt": [3] * 512}, GUIDED, "the negative prompt has 512 tokens, the context holds 512"),
        ({"negative_prompt": 3.5}, GUIDED, "token ids are a list of whole numbers"),
        ({"negative_prompt": "a", "negative_prompt_token_ids": [3]}, GUIDED, "are the same thing: give one of them"),
        ({"prompt_embeds": torch.zeros(3, 32)}, GUIDED, r"guidance_scale=3 cannot be had with prompt_embeds"),
        ({"guidance_scale": 2.0}, None, r"belongs in SamplingParams: .*\(guidance_scale="),
        ({"negative_prompt_ids": [3]}, GUIDED, "a request takes no 'negative_prompt_ids'"),
    ],
)
def test_what_cannot_be_guided_is_refused(llm, words, params, said):
    with pytest.raises(RequestError, match=said):
        llm.generate("abc", params, **words)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cfg_scale", "here it is called guidance_scale"),
        ("negative_prompt", r"it belongs to a prompt: generate\(prompt, .*negative_prompt="),
    ],
)
def test_words_of_other_programs_are_led_on(name, said):
    with pytest.raises(RequestError, match=said):
        SamplingParams(**{name: 2})


def test_a_long_negative_prompt_leaves_less_of_the_context(llm):
    params = SamplingParams(max_tokens=None, guidance_scale=1.5, ignore_eos=True)
    result = llm.generate("abc", params, negative_prompt=[3] * 500)
    assert result.finish_reason == "length" and len(result.token_ids) == 12
