"""Every text under a random schema is of that schema, and is plain decoding's: 24 in each run, 300 more if slow."""

import random

import pytest
from integration.random_schemas import fits, random_schema, read

from outdraft import LLM, SamplingParams

DRAFTERS = ("suffix", "draft_model", "ngram")
PROMPTS = ("The first thing she saw", "def main():", "{", "\n\n", "He said that", "1 2 3", "é", "The list: ")


@pytest.fixture(scope="module")
def llms():
    plain = LLM("zoo:target", drafter="none")
    return [plain] + [plain.with_drafter(name, num_speculative_tokens=4) for name in DRAFTERS]


def write(llms, seeds):
    """Texts of one schema for each seed; how many were whole, and how many tokens a pass wrote under each engine."""
    asked, schemas = [], []
    for seed in seeds:
        rng = random.Random(seed)
        schemas.append(random_schema(rng))
        form = {"json": schemas[-1], "disable_any_whitespace": rng.random() < 0.5}
        ways = ({}, {"temperature": 1.0, "seed": seed}, {"temperature": 1.5, "top_p": 0.95, "seed": seed})
        asked.append((rng.choice(PROMPTS), SamplingParams(max_tokens=400, structured_outputs=form, **rng.choice(ways))))
    prompts, settings = [prompt for prompt, _ in asked], [params for _, params in asked]
    wanted = llms[0].generate(prompts, settings)
    taus = []
    for llm in llms:
        results = wanted if llm is llms[0] else llm.generate(prompts, settings)
        assert [one.token_ids for one in results] == [one.token_ids for one in wanted]
        taus.append(sum(one.stats.num_tokens for one in results) / sum(one.stats.num_steps for one in results))
    for schema, result in zip(schemas, wanted, strict=True):
        assert result.finish_reason == "stop", (schema, result.text, result.error)
        assert fits(read(result.text), schema), (schema, result.text)
    return taus


def test_texts_of_some_schemas(llms):
    taus = write(llms, range(24))
    assert taus[0] == 1.0 and min(taus[1:]) > 1.1


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(3))
def test_texts_of_three_hundred_schemas(llms, hundred):
    print(write(llms, range(1000 + 100 * hundred, 1100 + 100 * hundred)))


def test_the_check_can_fail():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 5}}, "required": ["a"]}
    assert fits({"a": 5}, schema)
    for wrong in ({}, {"a": 6}, {"a": True}, {"a": "5"}, {"a": 1, "b": 1}, [], None):
        assert not fits(wrong, schema)
    text = {"type": "string", "pattern": "^[a-z]{2,5}$", "maxLength": 3}
    assert fits("abc", text) and not any(fits(wrong, text) for wrong in ("abcd", "a", "AB", 7))
    listed = {"type": "array", "items": {"enum": [1, None]}, "minItems": 1, "maxItems": 2}
    assert fits([1, None], listed) and not any(fits(wrong, listed) for wrong in ([], [1, 1, 1], [True], [0], {}))
    with pytest.raises(ValueError, match="twice"):
        read('{"a": 1, "a": 1}')
