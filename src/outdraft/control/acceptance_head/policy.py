"""Draft on until a head expects that one of the drafted tokens is rejected.

    after each token i    a_i = head(the drafter's state that has read it, perhaps its probability): the chance that
                          it is accepted
    stop                  where 1 - a_1 a_2 ... a_i > threshold, after at least `least` tokens

Huang, Guo and Wang, 2024, https://arxiv.org/abs/2405.19715. The decision for a token only settles whether the next one
is drawn, and knows the tokens that are kept and nothing of the target's coins; so no distribution changes. Data in:
sequences; data out: one budget each, which brings the head to the drafter.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from outdraft.control.acceptance_head.net import AcceptanceNet, load_acceptance
from outdraft.control.shared.budgets import SameBudget
from outdraft.core.policy import Arm, StateJudge
from outdraft.options.base import PolicyOptions
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import MOST_NODES, check_range
from outdraft.weights.digest import digest_weights

FOLDER = "acceptance_head"  # beside the draft's own files


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceHeadOptions(PolicyOptions):
    """The paper's settings. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    least: int = 2  # how many tokens are drafted whatever the head says
    threshold: float = 0.7  # drafting ends once the head finds a rejection likelier than this
    # the directory of the trained head; none takes the folder acceptance_head in the draft's own directory
    model: str | None = None

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "least", least=1, most=MOST_NODES)
        check_range(self, "threshold", least=0, most=1)


def judged_by(options: AcceptanceHeadOptions, net: AcceptanceNet) -> SameBudget:
    """The head decides while a guess is drafted."""
    judge = StateJudge(chances=net.chances, reads_probability=net.config.reads_probability, least=options.least)
    return SameBudget(options.num_speculative_tokens, others={"survival": 1 - options.threshold, "judge": judge})


def build(options: AcceptanceHeadOptions, arms: Seq[Arm]) -> SameBudget:
    """It does not choose among the arms: the first is asked.

    Raises `CapabilityError` for a drafter that hands over no hidden states, `ConfigError` for one without a head, or
    with the head of another.
    """
    arm = arms[0]
    if not arm.hands_states:
        raise CapabilityError(
            f"policy 'acceptance_head' reads hidden states, and drafter {arm.name!r} hands none over: it takes a "
            "drafter that writes chains with a network of its own, fed with its own tokens (draft_model; with width=1 "
            "also eagle, eagle1, eagle3, hass and mtp); or take policy 'calibrated'"
        )
    net = load_acceptance(_home(options, arm))
    if arm.home is not None and (known := digest_weights(arm.home)) != net.config.draft:
        raise ConfigError(
            f"the acceptance head in {_home(options, arm)} was trained on the states of other weights "
            f"({net.config.draft}) than those in {arm.home} ({known}): train it again for this draft (outdraft train "
            f"acceptance_head --options draft={arm.home})"
        )
    return judged_by(options, net)


def _home(options: AcceptanceHeadOptions, arm: Arm) -> Path:
    """The head's directory: the one named, or the draft's own folder of it. Raises `ConfigError` if neither is."""
    if options.model is not None:
        return user_path(options.model)
    if arm.home is None or not (arm.home / FOLDER).is_dir():
        where = "no directory of its own" if arm.home is None else f"no folder {FOLDER} in {arm.home}"
        raise ConfigError(
            f"policy 'acceptance_head' needs a head that was trained for its draft, and drafter {arm.name!r} has "
            f"{where}: name one, model=DIR, or train one (outdraft train acceptance_head --target MODEL --data FILE "
            "--options draft=DRAFT --out DRAFT/acceptance_head)"
        )
    return arm.home / FOLDER
