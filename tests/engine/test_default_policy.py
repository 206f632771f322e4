"""Which policy runs where none is named, and that a request's wish reaches it."""

import pytest

from outdraft.engine.llm import LLM
from outdraft.engine.naming.combination import combine
from outdraft.engine.naming.speculative_config import Speculation, from_mapping
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams


def test_auto_unless_a_number_is_named():
    assert combine(Speculation()).policy.name == "fixed"  # nothing is ever drafted
    assert combine(Speculation(drafter="ngram")).policy.name == "auto"
    assert combine(Speculation(num_speculative_tokens=0)).policy.name == "fixed"
    assert combine(Speculation(num_speculative_tokens=3, policy="auto")).policy.name == "auto"
    assert combine(from_mapping({"method": "ngram"})).policy.name == "auto"
    assert combine(from_mapping({"method": "ngram", "num_speculative_tokens": 4})).policy.name == "fixed"
    assert combine(from_mapping({"method": "ngram", "policy": "roc"})).policy.name == "roc"


def test_the_engine_is_built_so():
    plain = LLM("zoo:target", drafter="none")
    assert plain.config["policy"]["name"] == "fixed"
    assert plain.with_drafter("ngram").config["policy"]["name"] == "auto"
    both = plain.with_drafter("several", policy="auto", num_speculative_tokens=3)
    assert both.config["policy"]["num_speculative_tokens"] == 3 and list(both.config["drafter"]["arms"]) == [
        "ngram",
        "lookahead",
    ]
    params = SamplingParams(max_tokens=40)
    prompt = "The same was the same, and the same was the same, and"  # so that the first look-ups find something
    text = plain.generate(prompt, params)
    looking_up = plain.with_drafter("ngram")
    texts = [looking_up.generate(prompt, params) for _ in range(2)]
    assert {one.token_ids for one in (both.generate(prompt, params), *texts)} == {text.token_ids}
    assert texts[0].metrics["speculative_decoding"]["num_draft_tokens"]
    with pytest.raises(ConfigError, match="unknown policy 'autos', did you mean 'auto'"):
        plain.with_drafter("ngram", policy="autos")
