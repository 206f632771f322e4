"""The audit passes on honest rules and fails on a planted one; and each of its tests sees what it is meant to see."""

import argparse
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from weights.test_gguf_blocks import write_blocks

from outdraft.cli.commands import audit
from outdraft.cli.options import add_flags, build
from outdraft.core.events import Source
from outdraft.core.policy import Arm
from outdraft.core.registry import find
from outdraft.engine.llm import LLM
from outdraft.nn.quant.blocks import BLOCKS
from outdraft.options.params import SamplingParams
from outdraft.testing import losslessness
from outdraft.testing.lean import Lean
from outdraft.testing.losslessness import FAULTS, PLANTED, SETTINGS, Auditor, Setting
from outdraft.testing.prompts import distribution_prompts, identity_prompts
from outdraft.testing.token_distribution import guessed_positions, judge_tokens, text_distributions

SMALL = ("--tokens", 24, "--temperature", 0.4, "--json")


def test_audit_passes_and_planted_bias_fails(outdraft, tiny: Path):
    words = ("audit", "--model", tiny, "--drafter", "draft_model", "--drafter-options", f"model={tiny}", *SMALL)
    honest = outdraft(*words, "--prompts", 8, "--samples", 50)
    made = json.loads(honest.out)
    assert honest.code == 0 and made["passed"], made
    kinds = [check["name"].split(": ")[1] for check in made["checks"]]
    assert kinds == ["greedy identity", "seeded identity", "sampled distribution", "power", "token distribution"]
    lossy = outdraft(*words, "--prompts", 16, "--samples", 20, "--plant-bias")
    made = json.loads(lossy.out)
    assert lossy.code == 1 and not made["passed"]
    assert not {c["name"].split(": ")[1]: c["passed"] for c in made["checks"]}["token distribution"]


def test_a_speculative_config_names_what_is_audited(outdraft, tiny: Path):
    """Too little is looked at to tell anything; all of it is looked at."""
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    few = ("--prompts", 1, "--tokens", 2, "--samples", 20, "--json")
    made = json.loads(outdraft("audit", "--model", tiny, "--speculative-config", config, *few).out)
    assert [check["name"].split(",")[0] for check in made["checks"]] == ["ngram"] * 5


def test_a_stop_string_may_look_like_markup(outdraft, monkeypatch: pytest.MonkeyPatch):
    """It stands in the names of checks, on the line of progress and in the verdict."""
    name = "ngram, stop ('[/s]',): identity"

    def run_checks(options, samples, progress, notice):
        progress(name)
        yield losslessness.Check(name=name, passed=False, detail="another text")

    monkeypatch.setattr(audit, "run_checks", run_checks)
    ran = outdraft("audit", "--drafter", "ngram", "--stop", "[/s]")
    assert ran.code == 1 and name in " ".join(ran.out.split("failed; first: ")[1].split()), ran


def test_guesses_are_audited_whether_they_pay_or_not(plain: LLM):
    def asked(*words: object) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        add_flags(parser, audit.Options)
        return audit._always_drafting(build(audit.Options, parser.parse_args([str(word) for word in words])), {})

    config = {"method": "ngram", "num_speculative_tokens": 3}
    assert asked("--drafter", "ngram") == {"policy": {"name": "fixed"}}
    assert asked("--drafter", "ngram", "--policy", "auto") == {}
    assert asked("--speculative-config", json.dumps(config)) == {"speculative_config": {**config, "policy": "fixed"}}
    told = asked("--speculative-config", json.dumps({**config, "policy": "auto"}))
    assert told == {"speculative_config": {**config, "policy": "auto"}}
    for words in (asked("--drafter", "ngram"), told):
        drafter = None if words is told else "ngram"
        planted = plain.with_speculation(drafter=drafter, **audit._judged_by(PLANTED, words))
        assert not planted.lossless and planted.config["drafter"]["name"] == "ngram"


def test_a_quick_audit_of_the_default_says_what_it_takes_and_what_it_sees(outdraft, monkeypatch):
    monkeypatch.setattr(audit, "QUICK_SECONDS", 0.0)  # the fewest texts
    ran = outdraft("audit", "--quick", "--json")
    made = json.loads(ran.out)
    assert ran.code == 0 and made["passed"], made
    assert ran.err.startswith("about ") and "12 prompts x 32 tokens" in ran.err and "36 sampled texts" in ran.err
    names, found = zip(*(check["name"].split(": ") for check in made["checks"]), strict=True)
    assert found == ("greedy identity", "seeded identity", "token distribution")
    assert names[0].startswith("default (ngram, suffix, eagle)")
    shift = float(re.search(r"total variation of ([\d.]+) to the guesses", made["checks"][2]["detail"])[1])
    assert 0.01 < shift < 0.1
    lossy = json.loads(outdraft("audit", "--quick", "--plant-bias", "--json").out)
    assert [check["passed"] for check in lossy["checks"]] == [True, True, False] and "LEAN" in str(lossy)


def test_every_drafter_of_the_default_guesses_in_turn():
    policy = find("policy", audit.EACH_ARM)
    made = policy.build(policy.options(), (Arm(name="a"), Arm(name="b")))
    seqs = [
        SimpleNamespace(tokens=range(length), room=9, request=SimpleNamespace(most_drafted=None))
        for length in (3, 4, 5)
    ]
    assert [(one.arm, one.depth) for one in made.plan(seqs)] == [(1, 4), (0, 4), (1, 4)]


def test_a_lean_is_measured_against_its_own_chance():
    lean = Lean(num_rounds=400, off=30.0, variance=36.0)
    assert lean.p_value == pytest.approx(math.erfc(5 / math.sqrt(2)))
    assert lean.smallest_shift(alpha=0.05, power=0.95) == pytest.approx((1.96 + 1.645) * 6 / 400, rel=1e-3)
    assert (few := Lean(num_rounds=9, off=3.0, variance=4.0)).p_value == 1.0 and few.smallest_shift(
        alpha=0.05, power=0.95
    ) == 1.0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--drafter", "none"), "name one with --drafter or --speculative-config"),
        (("--dtype", "float32"), "the default here is plain decoding"),
        (("--all", "--quick"), "leave out --all"),
        (("--all", "--speculative-config", '{"method": "ngram"}'), "leave out --speculative-config"),
        (("--drafter", "ngram", "--max-tokens", 3), "unrecognized argument '--max-tokens'"),
        (("--drafter", "ngram", "--seed", 3), "unrecognized argument '--seed'"),
    ],
)
def test_what_an_audit_does_not_look_at_is_refused(outdraft, tiny: Path, words, says):
    ran = outdraft("audit", "--model", tiny, *words)
    assert ran.code == 2 and says in ran.err


@pytest.fixture(scope="module")
def plain(tiny: Path) -> LLM:
    return LLM(tiny, drafter="none")


def auditor(plain: LLM, samples: int = 64, num_prompts: int = 6, max_tokens: int = 24, **changes: object) -> Auditor:
    prompts = identity_prompts(plain.codec, num_prompts, vocab_size=257, max_len=32)
    return Auditor(
        plain=plain,
        prompts=prompts,
        distribution_prompts=distribution_prompts(plain.codec, vocab_size=257),
        max_tokens=max_tokens,
        samples=samples,
        **changes,
    )


def test_identity_names_the_first_difference(plain: LLM):
    audit = auditor(plain)
    speculative = plain.with_drafter("ngram", num_speculative_tokens=3)  # `auto` may find that nothing pays here
    check = audit.identity(speculative, SETTINGS[0])
    assert check.passed, check.detail
    key = ("greedy", False)
    wrong = list(audit._texts[key])
    ids = (*wrong[2].token_ids[:5], (wrong[2].token_ids[5] + 1) % 256, *wrong[2].token_ids[6:])
    wrong[2] = replace(wrong[2], token_ids=ids)
    audit._texts[key] = wrong
    check = audit.identity(speculative, SETTINGS[0])
    assert not check.passed and "prompt 2: token 5 is" in check.detail


def test_nothing_drafted_is_no_proof(plain: LLM):
    check = auditor(plain).identity(plain.with_drafter("ngram", num_speculative_tokens=0), SETTINGS[0])
    assert not check.passed and "no proof" in check.detail and not check.conclusive


def test_too_few_tokens_are_inconclusive(plain: LLM):
    audit = auditor(plain, num_prompts=1, max_tokens=4)
    check = audit.tokens(plain.with_drafter("ngram"), Setting(name="T", sampling={"temperature": 1.0}))
    assert not check.passed and not check.conclusive and "too few to judge" in check.detail


@pytest.mark.slow
def test_settings_pass_for_a_tree(plain: LLM, tiny: Path):
    audit = auditor(plain, num_distributions=2 * len(SETTINGS), distribution_tokens=3)
    options = {"model": str(tiny), "width": 2, "sample": "greedy"}
    spec = plain.with_drafter({"name": "draft_model", **options}, num_speculative_tokens=5)
    for setting in (SETTINGS[0], SETTINGS[2], SETTINGS[4]):
        checks = [audit.identity(spec, setting)]
        if not setting.greedy:
            checks += [audit.distribution(spec, setting), audit.tokens(spec, setting, effort=3)]
        for check in checks:
            assert check.passed, (setting.name, check)


def test_rules_that_do_not_couple_promise_no_seeded_text(plain: LLM):
    spec = plain.with_drafter("ngram", verifier=PLANTED)
    check = auditor(plain).identity(spec, Setting(name="T", sampling={"temperature": 1.0}))
    assert check.passed and "not promised" in check.detail


def test_a_crude_fault_stands_in_where_a_subtle_one_shows_nothing(plain: LLM, monkeypatch: pytest.MonkeyPatch):
    """At T=1.5 the toy target rarely gives anything the 0.3 from which the subtle fault departs.

    The crude one is caught with room to spare: p from 1e-49 to 1e-22 in eight runs of this size, where 1e-4 is asked
    (with half the prompts and tokens it was 1e-10 to 3e-4: by luck).
    """
    monkeypatch.setattr(losslessness, "MAX_EFFORT", 2)
    drafts = {
        name: plain.with_drafter("ngram", verifier=rule, num_speculative_tokens=5) for name, rule in FAULTS.items()
    }
    setting = Setting(name="T", sampling={"temperature": 1.5})
    check, effort = auditor(plain, num_prompts=12, max_tokens=48).power(drafts, setting)
    assert check.passed and "'keep everything' is caught" in check.detail and effort == 2
    assert "'keep what is likely' changes so little" in check.detail


@pytest.mark.parametrize("negative", [None, (5, 6, 7)])
def test_recomputed_distributions_are_those_of_the_engine(plain: LLM, negative: tuple[int, ...] | None):
    """Against the log probabilities that the engine reports: penalties, truncation and guidance included."""
    params = SamplingParams(
        max_tokens=12,
        temperature=0.7,
        top_p=0.9,
        repetition_penalty=1.3,
        seed=5,
        logprobs=0,
        guidance_scale=1.0 if negative is None else 1.7,
    )
    result = plain.generate("abc", params, negative_prompt=negative)
    distributions = text_distributions(plain, result.prompt_token_ids, result.token_ids, params, negative)
    assert result.logprobs is not None
    for distribution, token, reported in zip(distributions, result.token_ids, result.logprobs, strict=True):
        assert float(distribution[token].log()) == pytest.approx(reported.warped, abs=1e-4)


def test_a_forbidden_token_is_found_at_once(plain: LLM):
    params = SamplingParams(max_tokens=8, temperature=1.0, top_k=1, seed=1)
    result = plain.with_drafter("ngram").generate("ababab", params)
    assert judge_tokens(plain, [result], params).forbidden == 0
    bad = replace(result, token_ids=((result.token_ids[0] + 1) % 256, *result.token_ids[1:]))
    found = judge_tokens(plain, [bad], params)
    assert found.forbidden >= 1 and found.p_value == 0.0


def test_guessed_positions():
    a, r, b, p = Source.ACCEPTED, Source.RECOVERED, Source.BONUS, Source.PLAIN
    assert guessed_positions([p, a, a, b, r, p, a, r]) == [1, 4, 6]
    assert guessed_positions([p, a, a]) == [1]
    assert guessed_positions([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKS)
def test_an_audit_of_a_file_in_each_type_of_block_passes(outdraft, kind: str, tmp_path: Path):
    path = write_blocks(tmp_path / "m.gguf", lambda part: kind)
    ran = outdraft("audit", "--model", path, "--drafter", "ngram", *SMALL)
    assert ran.code == 0, ran.out + ran.err
