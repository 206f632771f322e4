"""The contract suite is itself tested: a sound toy passes all of it, each planted fault fails the check it should."""

from types import SimpleNamespace

import pytest
from contracts import at_once

from outdraft.options.errors import CapabilityError
from outdraft.sampling.guidance import guide
from outdraft.testing.contract import CHECKS, budgets, distribution, ends, forced, guided, identity, masked, upkeep
from outdraft.testing.contract.ground import PROMPTS
from outdraft.testing.contract.masked import EveryOther
from outdraft.testing.reference_rule import ReferenceRule
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject
from tests.helpers.fakes import AuditError

FAULTS = [
    ("LEAKY", upkeep.leaks_nothing, "keeps state"),
    ("OVERDRAWN", budgets.budget_is_respected, "on a budget of"),
    ("EAGER", budgets.budget_zero_is_plain, "budget of 0"),
    ("SWAPPED", identity.alone_equals_batch, "node 0"),
    ("PEEKING", identity.greedy_equals_reference, "sees"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_sound_toy_passes(check, tmp_path):
    check(Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path))


@pytest.mark.parametrize(("fault", "check", "message"), FAULTS, ids=[fault[0].lower() for fault in FAULTS])
def test_a_fault_is_noticed(fault, check, message, tmp_path):
    with pytest.raises((AuditError, CapabilityError), match=message):  # of the audit, or of the engine itself
        check(Subject(DrafterRow(drafter=f"contracts.broken:{fault}"), tmp_path))


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("check", at_once.CHECKS, ids=lambda check: check.__name__)
def test_a_sound_toy_passes_all_at_once(check, turn, tmp_path):
    check(Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path), turn)


@pytest.mark.parametrize(("fault", "check", "message"), FAULTS, ids=[fault[0].lower() for fault in FAULTS])
def test_a_fault_is_noticed_at_once(fault, check, message, tmp_path):
    if fault == "EAGER":
        message = "budget of"  # of 0 in the midst of others
    with pytest.raises((AuditError, CapabilityError), match=message):
        at_once.texts(Subject(DrafterRow(drafter=f"contracts.broken:{fault}"), tmp_path), 0)


def scaled_twice(c, u, scale):
    return guide(c, u, scale * scale)


AT_ONCE = {  # a fault of the engine's: where it is planted, and what the run of everything says
    "a path that is forgotten": (
        "outdraft.core.sequence.Sequence.depends_on_history",
        False,
        "masked|settings|a run was cut",
    ),
    "guidance": ("outdraft.decode.guidance.guide", scaled_twice, "guided"),
    "forced tokens": ("outdraft.decode.guesses.forced_draft", lambda seq, least: None, "were forced"),
}


@pytest.mark.parametrize("fault", AT_ONCE)
def test_a_fault_of_the_engine_is_noticed_at_once(fault, tmp_path, monkeypatch):
    place, planted, message = AT_ONCE[fault]
    monkeypatch.setattr(place, planted)
    with pytest.raises(AuditError, match=message):
        at_once.texts(Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path), 0)


@pytest.mark.parametrize("turn", range(5))
def test_every_setting_meets_every_prompt_over_five_turns(turn):
    """And every feature: Latin squares, of which one turn takes each value of each factor once."""
    subject = SimpleNamespace(vocab_size=61)
    asked = [at_once.squared(subject, t) for t in range(5)]
    prompts = sorted(PROMPTS)
    assert sorted(r.prompt_token_ids for name, r in asked[turn] if name == "settings") == prompts
    assert (
        sorted(r.prompt_token_ids for name, r in asked[turn] if name not in ("greedy", "settings", "plain")) == prompts
    )
    met = [(r.params, r.prompt_token_ids) for square in asked for name, r in square if name == "settings"]
    assert all((params, prompt) in met for params in at_once.SETTINGS for prompt in prompts)
    met = [(name, r.params.seed, r.prompt_token_ids) for square in asked for name, r in square]
    for name, params in at_once.FEATURES:
        assert all((name, params.seed, prompt) in met for prompt in prompts)


def test_a_false_q_is_noticed(tmp_path):
    with pytest.raises(AuditError, match="target's distribution"):
        distribution.sampled_distribution_is_the_targets(
            Subject(DrafterRow(drafter="contracts.broken:SOFT_CLAIM"), tmp_path, vocab_size=7)
        )


def test_a_cut_in_the_wrong_place_is_noticed(tmp_path):
    """An engine that forgets the end of text, which no drafter can be blamed for."""
    subject = Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path)
    honest = subject.engine
    subject.engine = lambda eos=frozenset(), **rest: honest(**rest)
    with pytest.raises(AuditError, match="end of text"):
        ends.ends_inside_a_run(subject)


def test_a_loop_that_forgets_a_nodes_path_is_noticed(tmp_path, monkeypatch):
    subject = Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path)
    monkeypatch.setattr("outdraft.core.sequence.Sequence.depends_on_history", False)
    with pytest.raises(AuditError, match="masked"):
        masked.masked_requests_write_the_same(subject)


def test_a_constraint_that_gets_a_token_twice_is_noticed(tmp_path, monkeypatch):
    honest = EveryOther.advance
    monkeypatch.setattr(EveryOther, "advance", lambda self, token: (honest(self, token), honest(self, token)))
    row = DrafterRow(drafter="contracts.broken:SOUND")
    with pytest.raises(AuditError, match="masked"):
        masked.masked_requests_write_the_same(Subject(row, tmp_path))


GUIDANCE_FAULTS = {
    "the prompt alone": lambda c, u, scale: c,
    "scaled twice": lambda c, u, scale: guide(c, u, scale * scale),
    "the negative prompt alone": lambda c, u, scale: u,
}


@pytest.mark.parametrize("fault", GUIDANCE_FAULTS)
def test_false_guidance_is_noticed(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("outdraft.decode.guidance.guide", GUIDANCE_FAULTS[fault])
    with pytest.raises(AuditError, match="guided by"):
        guided.guided_requests_write_the_same(Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path))


def test_an_engine_that_drafts_no_forced_tokens_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("outdraft.decode.guesses.forced_draft", lambda seq, least: None)
    with pytest.raises(AuditError, match="4 tokens were forced, and 1 were drafted"):
        forced.forced_tokens_write_the_same(Subject(DrafterRow(drafter="contracts.broken:SOUND"), tmp_path))


class Deaf(ReferenceRule):
    """Asks a rule and judges for itself."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, packed, p, coins):
        self.rule(packed, p, coins)
        return super().__call__(packed, p, coins)


@pytest.mark.parametrize(
    ("drafter", "message"),
    [("SOUND", "a rule that keeps every guess went unnoticed"), ("DRAWING", "a biased rule went unnoticed")],
)
def test_a_check_without_power_is_noticed(drafter, message, tmp_path):
    """The planted rules change nothing, so that the texts are right says nothing."""
    subject = Subject(DrafterRow(drafter=f"contracts.broken:{drafter}"), tmp_path, vocab_size=7)
    honest = subject.engine
    subject.engine = lambda verifier, **rest: honest(verifier=Deaf(verifier), **rest)
    with pytest.raises(AuditError, match=message):
        distribution.sampled_distribution_is_the_targets(subject)


def test_a_drawn_guess_is_proven_too(tmp_path):
    row = DrafterRow(drafter="contracts.broken:DRAWING")
    distribution.sampled_distribution_is_the_targets(Subject(row, tmp_path, vocab_size=7))
