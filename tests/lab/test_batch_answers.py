"""The batched sampler writes what the engine writes, draws from the model's distribution, and packs what it wrote."""

import json
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch

from lab.smollm2 import batch_answers
from lab.smollm2.batch_answers import Chats, sample
from lab.smollm2.batch_sampler import Job, Slots
from lab.smollm2.packed import Answer, account, examples, find_loops, write
from lab.smollm2.slot_attention import by_products, by_sdpa
from outdraft import LLM, SamplingParams, zoo
from outdraft.codecs.text import TextCodec
from outdraft.models.files.load import fill_decoder, open_weights
from outdraft.models.networks.base import Decoder

MOST = 12
END = "<|endoftext|>"
CHAT = (
    "{% for one in messages %}{{ one.role }}: {{ one.content }}END\n{% endfor %}"
    "{% if add_generation_prompt %}A:{% endif %}"
).replace("END", END)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return fill_decoder(open_weights(zoo.path("target"), "float32"), torch.device("cpu"))


def finish(slots: Slots, jobs: list[Job], at_once: int) -> dict[int, list[int]]:
    """All texts by their tags, with refills between bursts of three steps."""
    found: dict[int, list[int]] = {}
    while len(found) < len(jobs):
        found |= {job.tag: ids.tolist() for job, ids in slots.harvest()}
        running = sum(job is not None for job in slots.jobs)
        begun = len(found) + running
        slots.fill(jobs[begun : begun + min(at_once, slots.num_free)])
        slots.steps(3)
    return found


@pytest.mark.parametrize("size", (1, 4))
def test_greedy_texts_are_the_engines(decoder, size):
    llm = LLM("zoo:target", drafter="none", dtype="float32", max_model_len=256)
    text = " ".join(zoo.heldout_prompts().values())
    ids = llm.tokenizer.encode(text)
    prompts = [ids[30 * i : 30 * i + length] for i, length in enumerate((1, 70, 2, 5, 33, 120, 9, 64, 3))]
    plain = SamplingParams(temperature=0, max_tokens=MOST)
    expected = [list(one.token_ids) for one in llm.generate([{"prompt_token_ids": one} for one in prompts], plain)]
    ends = {0, expected[4][3]}  # a token that is written, so that a text ends within a burst
    slots = Slots(decoder, size=size, length=192, most=MOST, ends=sorted(ends))
    found = finish(slots, [Job(ids=one, temperature=0, most=MOST, tag=i) for i, one in enumerate(prompts)], size)
    cut = [one[: next((i for i, token in enumerate(one) if token in ends), MOST) + 1] for one in expected]
    assert [found[i] for i in range(len(prompts))] == cut


def test_draws_follow_the_temperature(decoder):
    slots = Slots(decoder, size=1, length=64, most=1, ends=[0])
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])
    for temperature in (0.7, 1.0):
        drawn = slots._sample(logits.repeat(20000, 1), torch.full((20000,), temperature))
        expected = 20000 * (logits / temperature).softmax(0)
        chi = ((torch.bincount(drawn, minlength=5) - expected) ** 2 / expected).sum().item()
        assert chi < 23.5  # four degrees of freedom: one in ten thousand
    assert slots._sample(logits.repeat(9, 1), torch.zeros(9)).tolist() == [4] * 9


def test_two_ways_to_attend_are_one():
    keys, values = torch.randn(2, 5, 2, 64, 8).unbind(0)
    q, positions = torch.randn(5, 6, 8), torch.tensor([0, 3, 17, 63, 40])
    one, other = (way(positions, 64, keys)(q, keys, values, 0.3) for way in (by_products, by_sdpa))
    assert torch.allclose(one, other, atol=1e-5)


def test_a_chat_goes_on(decoder, monkeypatch):
    """The model writes users' turns, first and second ones, and every answer stands behind its own prompt."""
    monkeypatch.setattr(batch_answers, "OWN_TOKENS", 5)
    codec = TextCodec.load(zoo.path("target"), config={"chat_template": CHAT})
    chats = Chats(codec, 192, MOST)
    ends = sorted(codec.eos_token_ids | set(range(300, 1500)))  # many, so that texts do end
    monkeypatch.setattr(codec, "eos_token_ids", frozenset(ends))
    slots = Slots(decoder, size=4, length=192, most=MOST, ends=ends)
    asked = [{"role": "user", "content": "It was late when the"}]
    begun = {"kind": "begun", "messages": [], "begin": "Tell me about"}
    records = [{"kind": "own", "messages": []}, {"kind": "text", "messages": asked}, begun] * 6
    sample(slots, chats, list(enumerate(records)), perf_counter(), 100)
    first, second = ([one for one in chats.answers if one.second is wanted] for wanted in (False, True))
    assert sorted(one.kind for one in first) == ["begun"] * 6 + ["own"] * 6 + ["text"] * 6
    assert second
    assert {tuple(one.prompt) for one in first if one.kind == "text"} == {tuple(codec.apply_chat_template(asked))}
    for one in first:
        shown = codec._tokenizer.decode(list(one.prompt), skip_special_tokens=False)
        assert shown.startswith("user: ") and shown.endswith(f"{END}\nA:")
        assert shown.startswith("user: Tell me about") == (one.kind == "begun")
    for one in second:
        earlier = [[*past.prompt, *past.ids[:-1].tolist()] for past in first if past.ended]
        assert any(list(one.prompt[: len(past)]) == past for past in earlier)
        assert 0 < len(one.ids) <= MOST


def test_answers_come_back_as_they_were(tmp_path: Path):
    rng = np.random.default_rng(1)
    loop = np.tile(rng.integers(0, 99, 20, dtype=np.uint16), 3)
    ids = [rng.integers(0, 49152, n, dtype=np.uint16) for n in (1, 40, 256, 7)]
    answers = [
        Answer(prompt=[1, i], ids=one, kind="ab"[i % 2], temperature=0.85, ended=i == 1, second=False)
        for i, one in enumerate([*ids, loop])
    ]
    paths = write(answers, tmp_path / "out", files=2)
    lines = [line for path in paths for line in examples(path)]
    assert sorted(map(json.dumps, lines)) == sorted(
        json.dumps(
            {
                "prompt_token_ids": [1, i],
                "token_ids": one.tolist(),
                "finish_reason": "stop" if i == 1 else "length",
                "temperature": 0.85,
                "kind": "ab"[i % 2],
            }
        )
        for i, one in enumerate(ids)
    )
    assert account(paths)["loops"] == {"answers": 1, "tokens": 60}
    assert account(paths)["all"] == {"answers": 5, "tokens": 364}


def test_a_run_that_stands_twice_is_no_loop():
    gram = np.arange(12, dtype=np.uint16)
    twice, thrice = np.concatenate([gram, [77], gram]), np.concatenate([gram, [77], gram, [78], gram])
    flat = np.concatenate([twice, gram, thrice, gram]).astype(np.uint16)  # what stands in another answer does not count
    assert find_loops(flat, np.array([25, 12, 38, 12])).tolist() == [False, False, True, False]
