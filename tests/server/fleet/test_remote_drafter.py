"""A draft model elsewhere: the same texts, and what it wrote ahead is read on and not written again."""

import pytest

from outdraft import LLM, SamplingParams
from outdraft.server.fleet.draft_service import DraftAsk, DraftService
from tests.server.fleet import local_drafting

PROMPTS = ["It was late in the evening when", "The old man looked at the sea and", "def main("]
GREEDY = SamplingParams(max_tokens=40)
SEEDED = SamplingParams(max_tokens=40, temperature=0.8, top_p=0.95, seed=5)


@pytest.fixture(scope="module")
def draft():
    with LLM("zoo:draft", drafter="none", enable_prefix_caching=True) as llm:
        yield llm


@pytest.fixture(scope="module")
def plain():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


@pytest.fixture
def service(draft):
    made = local_drafting.SERVICES["draft"] = DraftService(draft)
    return made


def remote(plain):
    return plain.with_drafter("tests.server.fleet.local_drafting:METHOD", num_speculative_tokens=4)


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_the_texts_are_those_of_plain_decoding_for_fewer_passes(plain, service, params):
    wanted = plain.generate(PROMPTS, params)
    results = remote(plain).generate(PROMPTS, params)
    assert [one.token_ids for one in results] == [one.token_ids for one in wanted]
    beside = plain.with_drafter({"name": "draft_model", "model": "zoo:draft"}, num_speculative_tokens=4)
    near = beside.generate(PROMPTS, params)
    kept, near_kept = (sum(one.stats.num_accepted_tokens for one in each) for each in (results, near))
    assert abs(kept - near_kept) <= 3 < kept, "at the end of a text a drafter in the same process guesses less"
    assert not service._open, "every text was closed there"


def test_what_was_written_ahead_is_read_on_and_a_wrong_guess_cancels_it(draft):
    service = DraftService(draft, ahead=2)
    ids = tuple(draft.get_tokenizer().encode(PROMPTS[0]))
    expected = draft.generate({"prompt_token_ids": list(ids)}, SamplingParams(max_tokens=12, ignore_eos=True)).token_ids
    (first,) = service.draft([DraftAsk(text_id="a", start=0, tokens=ids, depth=4)])
    assert tuple(first) == expected[:4]
    (second,) = service.draft([DraftAsk(text_id="a", start=len(ids), tokens=expected[:5], depth=4)])
    assert tuple(second) == expected[5:9] and service.num_opened == 1, "all was kept, and one token more"
    wrong = (expected[5] + 1) % 100
    (third,) = service.draft([DraftAsk(text_id="a", start=len(ids) + 5, tokens=(wrong,), depth=4)])
    text = [*ids, *expected[:5], wrong]
    again = draft.generate({"prompt_token_ids": text}, SamplingParams(max_tokens=4, ignore_eos=True)).token_ids
    assert tuple(third) == again and service.num_opened == 2
    service.end(["a", "never heard of"])
    assert not draft._thread.is_busy or not service._open


def test_texts_of_several_targets_are_kept_apart(plain, service):
    one, two = remote(plain), remote(plain)
    wanted = [list(plain.generate(prompt, GREEDY).token_ids) for prompt in PROMPTS[:2]]
    streams = [one.stream(PROMPTS[0], GREEDY), two.stream(PROMPTS[1], GREEDY)]
    found = [[], []]
    for chunks in zip(*streams, strict=False):
        for ids, chunk in zip(found, chunks, strict=True):
            ids += chunk.token_ids
    assert all(len(ids) > 8 and ids == whole[: len(ids)] for ids, whole in zip(found, wanted, strict=True))
    for stream in streams:
        stream.close()


@pytest.mark.logs_faults
def test_a_first_guess_that_comes_too_late_leaves_nothing_open(plain, service, monkeypatch):
    draft = service.draft

    def late(asks):
        draft(asks)
        raise TimeoutError("no answer in time")

    monkeypatch.setattr(service, "draft", late)
    assert remote(plain).generate(PROMPTS[0], GREEDY).token_ids == plain.generate(PROMPTS[0], GREEDY).token_ids
    assert not service._open


@pytest.mark.logs_faults
def test_where_it_dies_the_text_goes_on_without_it(plain, service, monkeypatch):
    def broken(asks):
        raise ConnectionError("the machine is gone")

    monkeypatch.setattr(service, "draft", broken)
    assert remote(plain).generate(PROMPTS[0], GREEDY).token_ids == plain.generate(PROMPTS[0], GREEDY).token_ids
