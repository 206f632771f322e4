"""A lossy rule is named wherever a result is shown: catalogue, text, chat, JSON, bench; the audit refuses it."""

import json
from pathlib import Path

import pytest

from outdraft.bench.identity import is_promised
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

TYPICAL = ("--verifier", "typical", "--drafter", "ngram")
GATED = ("--drafter", "ngram", "--verifier", "gated", "--verifier-options", "threshold=0.3")
NOTICE = "LOSSY: with these options verifier {} does not keep the target's distribution"


def test_catalogue_says_so(outdraft):
    made = {(m["kind"], m["name"]): m["lossless"] for m in json.loads(outdraft("methods", "--json").out)}
    assert made["verifier", "typical"] is False and made["verifier", "gated"] is True
    table = outdraft("methods", "--kind", "verifier").out
    (line,) = (line for line in table.splitlines() if line.startswith("typical"))
    assert line.split()[1] == "NO"


@pytest.mark.parametrize(
    ("words", "lossy"), [(TYPICAL, "typical"), (GATED, None), ((*GATED, "--verifier-options", "exact=false"), "gated")]
)
def test_generate_says_so(outdraft, tiny: Path, words, lossy):
    asked = ("generate", "one two one two", "--model", tiny, *words, "--max-tokens", 8)
    told = outdraft(*asked).err
    assert ("LOSSY" in told) == (lossy is not None)
    assert lossy is None or NOTICE.format(lossy) in " ".join(told.split())
    made = json.loads(outdraft(*asked, "--json").out)
    assert made["lossless"] == made["config"]["verifier"]["lossless"] == (lossy is None)


def test_chat_says_so(outdraft, tiny: Path):
    chat = ("chat", "--model", tiny, "--max-tokens", 4)
    assert "LOSSY" in outdraft(*chat, *TYPICAL, stdin="hello\n").out
    assert "LOSSY" not in outdraft(*chat, *GATED, stdin="hello\n").out
    assert outdraft(*chat, *TYPICAL, stdin="hello\n/stats\n").out.count("LOSSY") == 2


def test_audit_refuses(outdraft, tiny: Path):
    ran = outdraft("audit", "--model", tiny, *TYPICAL, "--prompts", 2, "--samples", 20, "--tokens", 4)
    assert ran.code != 0 and "typical" in ran.err and "nothing to prove" in ran.err.replace("\n", " ")


def test_nothing_is_promised_and_results_say_so(tiny: Path):
    plain = LLM(tiny, drafter="none")
    greedy = SamplingParams(max_tokens=6)
    lossy = plain.with_drafter("ngram", verifier={"name": "leniency", "leniency": 4.0})
    exact = plain.with_drafter("ngram", verifier={"name": "leniency", "leniency": 1.0})
    for llm, kept in ((lossy, False), (exact, True), (plain, True)):
        assert llm.lossless is kept and is_promised(llm, greedy) is kept
        assert llm.config["verifier"]["lossless"] is kept
        assert llm.generate("one two one two", greedy).lossless is kept
    assert lossy.engine.parts.soft and not exact.engine.parts.soft


def test_soft_rules_judge_greedy_text_by_how_probable_it_is(tiny: Path):
    """At threshold 0 nothing but certainty is kept, and the text is plain; far from it, the drafter's guesses stay."""
    plain = LLM(tiny, drafter="none")
    greedy = SamplingParams(max_tokens=24)
    wanted = plain.generate("one two one two", greedy).token_ids
    strict, loose = (
        plain.with_drafter(
            "ngram", verifier={"name": "rollback", "threshold": nats}, num_speculative_tokens=5
        ).generate("one two one two", greedy)
        for nats in (0.0, 50.0)
    )
    assert strict.token_ids == wanted and strict.stats.num_draft_tokens and not strict.stats.num_accepted_tokens
    assert loose.token_ids != wanted and loose.stats.num_rejections == 0


def test_a_near_token_that_is_forbidden_is_not_kept(tiny: Path):
    """Within this distance lie all tokens, so the look-up's guesses stay up to the first t."""
    llm = LLM(tiny, drafter="ngram", verifier={"name": "distance_tolerance", "distance": 300}, num_speculative_tokens=8)
    for temperature in (0.0, 1.0):
        params = SamplingParams(
            max_tokens=24, temperature=temperature, banned_token_ids=(ord("t"),), forced_prefix=" o", seed=1
        )
        result = llm.generate("one two one two", params)
        assert ord("t") not in result.token_ids
        assert 0 < result.stats.num_accepted_tokens < result.stats.num_draft_tokens


@pytest.mark.parametrize(("rule", "options"), [("gated", {"confidence": 0.12}), ("leniency", {"leniency": 50.0})])
def test_a_policy_that_asks_for_no_confidence_leaves_the_rule_what_it_reads(tiny: Path, rule, options):
    """`threshold` asks for confidences and ends nothing here, `fixed` asks for none: the text is the same."""
    loose = {"exact": False} if rule == "gated" else {}
    made = []
    for policy, own in (("fixed", {}), ("threshold", {"threshold": 1e-9})):
        llm = LLM(
            tiny,
            drafter="early_exit",
            verifier={"name": rule, **options, **loose},
            policy={"name": policy, "num_speculative_tokens": 4, **own},
        )
        assert llm.engine.parts.reads_confidence
        made.append(llm.generate("one two one two", SamplingParams(max_tokens=24)))
    fixed, asking = made
    assert fixed.token_ids == asking.token_ids
    assert fixed.stats.num_accepted_tokens == asking.stats.num_accepted_tokens
    assert 0 < fixed.stats.num_accepted_tokens < fixed.stats.num_draft_tokens
