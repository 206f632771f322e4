"""The requests of a load: seeded, no two alike, lengths that differ, all within the context."""

import pytest

from outdraft import zoo
from outdraft.bench.load.jobs import make_jobs
from outdraft.bench.suites import load_suites
from outdraft.bench.suites.prompt import Prompt
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams

CODEC = load_codec(zoo.path("target"))
PARAMS = SamplingParams(max_tokens=9)
PROMPTS = load_suites(["prose", "log"], count=3)


def jobs(count: int, *, seed: int = 0, params: SamplingParams = PARAMS, prompts=PROMPTS, max_len: int = 1024):
    return make_jobs(CODEC, prompts, count, params, seed=seed, max_len=max_len)


def test_the_same_seed_draws_the_same_and_fewer_are_a_prefix():
    many = jobs(40)
    assert jobs(40) == many and jobs(11) == many[:11]
    assert [one.number for one in many] == list(range(40))
    assert [one.ids for one in jobs(40, seed=1)] != [one.ids for one in many]
    assert {one.name for one in many} == {f"{one.suite} {one.name}" for one in PROMPTS}


def test_no_two_are_alike_and_all_begin_as_the_prompt_does():
    many = jobs(40)
    assert len({one.ids for one in many}) == 40
    whole = {f"{one.suite} {one.name}": tuple(CODEC.encode(one.turns[0])) for one in PROMPTS}
    for one in many:
        ids = whole[one.name]
        assert one.ids[0] == ids[0] and one.ids[1:] == ids[len(ids) - len(one.ids) + 1 :]
    assert {one.ids for one in many[:6]} == set(whole.values()), "first every prompt as it is"


def test_lengths_differ_and_the_end_of_text_ends_nothing():
    lengths = [one.params.max_tokens for one in jobs(60)]
    assert set(lengths) == {5, 6, 7, 8, 9}
    assert all(one.params.ignore_eos for one in jobs(5))
    assert {one.params.max_tokens for one in jobs(5, params=SamplingParams(max_tokens=1))} == {1}


def test_each_has_a_seed_of_its_own():
    seeds = [one.params.seed for one in jobs(9, params=SamplingParams(max_tokens=4, temperature=1.0, seed=7))]
    assert seeds == list(range(7, 16))
    assert {one.params.seed for one in jobs(9)} == {None}


def test_what_the_context_does_not_hold_is_left_out():
    assert {one.name.split()[0] for one in jobs(12, max_len=120)} == {"prose"}
    with pytest.raises(ConfigError, match=r"no prompt fits: the shortest has \d+ tokens.*--max-tokens"):
        jobs(3, max_len=20)


def test_two_prompts_of_one_text_are_asked_once():
    twice = [Prompt(suite="made", name=name, category="made", turns=("Once upon a time",)) for name in "12"]
    length = len(CODEC.encode("Once upon a time"))
    assert len({one.ids for one in jobs(length, prompts=twice)}) == length


def test_too_few_prompts_are_said():
    short = [Prompt(suite="made", name="1", category="made", turns=("Once",))]
    length = len(CODEC.encode("Once"))
    with pytest.raises(ConfigError, match=r"1 prompts make .* and 50 are asked for: take more"):
        jobs(50, prompts=short)
    assert len(jobs(length, prompts=short)) == length
