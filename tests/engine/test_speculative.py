"""A request says who drafts it, how much and by which rule: the text stays, and the settings in force are reported."""

import asyncio
from itertools import product

import pytest

from outdraft import LLM, Result, SamplingParams
from outdraft.core.request import Request
from outdraft.engine.requests.speculative import read_speculative, settle
from outdraft.options.errors import CapabilityError, RequestError
from outdraft.options.params import SamplingParams as Params
from outdraft.options.speculative import Held, Settled, Speculative

PROMPT = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return"
TOKENS = 12
GREEDY, SEEDED = SamplingParams(max_tokens=TOKENS), SamplingParams(max_tokens=TOKENS, seed=3, temperature=1.0)
HELD = Held(
    methods=("look-up", "network"), shapes=("tree", "chain"), verifier="auto", policy="auto", num_speculative_tokens=16
)


@pytest.fixture(scope="module")
def llm():
    with LLM("zoo:target") as made:
        yield made


def together(llm: LLM, asked: list[tuple[SamplingParams, dict]]) -> list[Result]:
    """All at once, in one ragged batch."""

    async def ask() -> list[Result]:
        texts = (llm.agenerate(PROMPT, params, speculative=words) for params, words in asked)
        return await asyncio.gather(*texts)

    return asyncio.run(ask())


def test_every_setting_writes_the_same_text(llm):
    """Greedy and seeded, each method that the default engine holds, each depth, planned and fixed; all in one batch."""
    methods = llm.engine.parts.held.methods
    assert len(methods) > 2
    settings = [
        {"method": method, "policy": policy, "num_speculative_tokens": count}
        for method, policy, count in product((None, *methods), ("auto", "fixed"), (None, 0, 1, 5))
        if method or policy == "auto"
    ]
    settings += [{"verifier": rule, "method": methods[0]} for rule in ("auto", "coupled")]
    plain = {params.seed: llm.generate(PROMPT, params, speculative=False) for params in (GREEDY, SEEDED)}
    assert all(one.stats.num_draft_tokens == 0 for one in plain.values())
    asked = [(params, words) for words in settings for params in (GREEDY, SEEDED)]
    for (params, words), result in zip(asked, together(llm, asked), strict=True):
        assert result.token_ids == plain[params.seed].token_ids, words
        drafted, most = set(result.stats.rounds_by_method), words.get("num_speculative_tokens")
        assert drafted <= ({words["method"]} if words["method"] else set(methods)), words
        assert not drafted or most != 0
        assert result.speculative.num_speculative_tokens == (16 if most is None else most)
        assert sum(result.stats.rounds_by_method.values()) == result.stats.num_drafted_steps


def test_greedy_text_is_the_same_under_every_lossless_rule(llm):
    plain = llm.generate(PROMPT, GREEDY, speculative=False)
    chains = [
        name
        for name, shape in zip(llm.engine.parts.held.methods, llm.engine.parts.held.shapes, strict=True)
        if shape == "chain"
    ]
    rules = ("auto", "block", "coupled", "gated", "greedy", "multi_draft", "rejection", "sequential", "traversal")
    asked = [
        (GREEDY, {"method": chains[-1], "policy": "fixed", "num_speculative_tokens": 3, "verifier": rule})
        for rule in rules
    ]
    for (_, words), result in zip(asked, together(llm, asked), strict=True):
        assert result.token_ids == plain.token_ids, words
        assert result.speculative == Speculative(**words)
        assert result.lossless and result.error is None


def test_fixed_drafts_as_many_in_every_round():
    llm = LLM("zoo:target", drafter={"name": "several", "drafters": ["ngram", "draft_model"]})
    result = llm.generate(
        PROMPT,
        SamplingParams(max_tokens=30),
        speculative={"method": "draft_model", "policy": "fixed", "num_speculative_tokens": 3},
    )
    drafted = [count for count, _ in result.stats.per_step]
    assert len(drafted) >= result.stats.num_steps - 2  # the first token, and perhaps the last, come without a guess
    assert all(count == 3 for count in drafted[:-1])
    assert result.stats.rounds_by_method == {"draft_model": len(drafted)}


def test_the_last_chunk_tells_what_was_in_force(llm):
    words = {"method": "ngram", "num_speculative_tokens": 4}
    *first, last = llm.stream(PROMPT, GREEDY, speculative=words)
    assert last.speculative == Speculative(method="ngram", num_speculative_tokens=4, verifier="auto", policy="auto")
    assert all(chunk.speculative is None for chunk in first)
    told = last.stats.as_metrics()["speculative_decoding"]
    assert told["num_spec_steps_by_method"] == dict(last.stats.rounds_by_method)


def test_false_is_plain_and_an_engine_of_one_method_tells_it(llm):
    assert llm.generate(PROMPT, GREEDY, speculative=False).stats.num_draft_tokens == 0
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=4) as single:
        result = single.generate(PROMPT, GREEDY)
        assert result.speculative == Speculative(
            method="ngram", num_speculative_tokens=4, verifier="auto", policy="fixed"
        )
        assert result.stats.rounds_by_method == {"ngram": result.stats.num_drafted_steps}
        assert single.generate(PROMPT, GREEDY, speculative={"num_speculative_tokens": 2}).speculative == Speculative(
            method="ngram", num_speculative_tokens=2, verifier="auto", policy="fixed"
        )


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_rule_for_chains_is_refused_beside_a_drafter_of_trees(rule):
    eagle = {"name": "eagle", "model": "zoo:eagle"}
    for drafter in ({**eagle, "width": 4}, "lookahead", {"name": "several", "drafters": ["ngram", "lookahead"]}):
        with pytest.raises(CapabilityError, match=f"{rule!r} judges chains only, and drafter .* drafts trees here"):
            LLM("zoo:target", drafter=drafter, verifier=rule)
    for width in (0, 1):  # 0: a chain or a tree, by the kernels
        with LLM("zoo:target", drafter={**eagle, "width": width}, num_speculative_tokens=4) as llm:
            (shape,) = llm.engine.parts.held.shapes
            if shape == "chain":
                assert llm.generate(PROMPT, GREEDY, speculative={"verifier": rule}).speculative.verifier == rule
            else:
                assert not width
                with pytest.raises(RequestError, match="may draft trees"):
                    llm.generate(PROMPT, GREEDY, speculative={"verifier": rule})


def test_a_lossy_engine_and_a_request_that_wants_none_of_it():
    with LLM("zoo:target", drafter="ngram", verifier="typical", num_speculative_tokens=6) as llm:
        assert not llm.generate(PROMPT, GREEDY).lossless
        exact = llm.generate(PROMPT, GREEDY, speculative={"verifier": "auto"})
        assert exact.lossless
        plain = llm.generate(PROMPT, GREEDY, speculative={"verifier": "auto", "num_speculative_tokens": 0})
        assert exact.token_ids == plain.token_ids
        assert llm.generate(PROMPT, GREEDY, speculative={"verifier": "typical"}).speculative.verifier == "typical"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"method": "eagle3"}, "method 'eagle3' is not held here: held are look-up, network"),
        ({"policy": "bandit"}, "policy 'bandit' is not held here: held are auto and fixed"),
        ({"policy": "fixed"}, "policy 'fixed' needs a method.*held are look-up, network"),
        ({"verifier": "blok"}, "verifier 'blok' is not known, did you mean 'block'"),
        ({"verifier": "os:system"}, "verifier 'os:system' is not known"),
        ({"verifier": "leniency"}, "verifier 'leniency' may change the distribution.*take one of auto, block"),
        ({"verifier": "block"}, "'block' judges chains only, and 'look-up' may draft trees: name .*\\(network\\)"),
        ({"verifier": "block", "method": "look-up"}, "'look-up' may draft trees"),
    ],
)
def test_what_is_not_held_is_refused_by_name(words, told):
    with pytest.raises(RequestError, match=told):
        settle(Request(prompt_token_ids=(1,), speculative=read_speculative(words)), HELD)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (True, "speculative=True must be False"),
        ("ngram", "speculative='ngram' must be False"),
        ({"metod": "x"}, "speculative takes no 'metod', did you mean 'method'"),
        ({"method": 3}, "method=3 of speculative must be"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens=-1 of speculative is out of range"),
        ({"num_speculative_tokens": 4097}, "out of range"),
        ({"num_speculative_tokens": 1.5}, "num_speculative_tokens=1.5 of speculative must be"),
    ],
)
def test_words_that_are_none(given, told):
    with pytest.raises(RequestError, match=told):
        read_speculative(given)


def test_refused_before_any_work(llm):
    with pytest.raises(RequestError, match="held are ngram"):
        llm.generate(PROMPT, GREEDY, speculative={"method": "medusa"})
    with pytest.raises(RequestError, match="give it once"):
        llm.generate(PROMPT, GREEDY, speculative={"num_speculative_tokens": 2}, num_speculative_tokens=3)
    with pytest.raises(RequestError, match="verifier 'greedy' follows the best token only"):
        llm.generate(PROMPT, SEEDED, speculative={"verifier": "greedy"})
    assert not llm.engine.running and not len(llm.engine.waiting)


def test_a_policy_spares_no_drafter_that_a_request_has_asked_for():
    spared = frozenset({1, 2})
    assert Settled(resting=frozenset({0})).without(spared).resting == {0, 1, 2}
    for own in (Settled(arm=1, resting=frozenset({0, 2})), Settled(depth=4)):
        assert own.without(spared) is own


def test_what_is_settled():
    def told(held=HELD, count=None, **words):
        words = read_speculative(words) if words else None
        return settle(Request(prompt_token_ids=(1,), speculative=words, num_speculative_tokens=count), held)

    assert told().told == Speculative(num_speculative_tokens=16, verifier="auto", policy="auto")
    assert told(count=20).told.num_speculative_tokens == 16  # the policy's most
    assert told(count=2).told.num_speculative_tokens == 2
    pinned = told(method="network")
    assert (pinned.arm, pinned.resting, pinned.depth, pinned.rule) == (1, {0}, None, None)
    fixed = told(method="network", policy="fixed", num_speculative_tokens=40, verifier="block")
    assert (fixed.arm, fixed.depth, fixed.rule, fixed.told.num_speculative_tokens) == (1, 40, "block", 40)
    assert told(method="network", policy="fixed").depth == 16
    assert told(verifier="auto").rule is None  # the engine's own
    assert told(Held()).told == Speculative()
    assert Request(prompt_token_ids=(1,), params=Params(), speculative=Speculative()).most_drafted is None
