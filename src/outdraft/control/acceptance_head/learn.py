"""Train SpecDec++'s head on a frozen draft, under a frozen target, on texts.

    text        x1 x2 x3 ...                                      the target's own, best of all
    drawn       y2 ~ q(. | x1)   y3 ~ q(. | x1 x2)   ...          by the draft, along the text
    mixed       z_i = y_i, but x_i in a share `mixing`            what the draft reads: its states e_i have read z_i
    label       min(1, p(y_i) / q(y_i))                           where z_i = y_i was drawn
    loss        -w (1 - label) log(1 - a(e_i)) - label log a(e_i)    w: how much a rejection weighs

Huang, Guo and Wang, "SpecDec++", 2024, https://arxiv.org/abs/2405.19715. Which states a draft has, and what it guesses
from them, its own learner says (`core/learner.py`), so that the head can be trained for every kind whose drafter hands
its states over. Where such a learner unrolls its own outputs, the states of every depth are learned from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.control.acceptance_head.examples import Examples, examples_of
from outdraft.control.acceptance_head.net import (
    MODEL_TYPE,
    AcceptanceConfig,
    AcceptanceNet,
    load_acceptance,
    save_acceptance,
)
from outdraft.core.learner import OWN, Assessment, Beside, Learner, LearnMethod, Lesson, Outlook
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.foreign_heads import recognise
from outdraft.models.files.load import read_json
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.ranges import check_range
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve

_RECORD = "training.json"  # which `outdraft train` writes beside a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLearning:
    """The paper's settings. Raises `ConfigError` naming what is out of range."""

    draft: str = ""  # the directory of the draft whose tokens are judged; there is no default
    kind: str = ""  # what that is: eagle, draft_model, ...; "": as its own files say
    num_blocks: int = 3
    reads_probability: bool = False  # the head sees the draft's own probability of the token, too
    rejection_weight: float = 6.0  # of a rejection in the loss, against an acceptance
    mixing: float = 0.15  # share of the draft's own tokens that are put back to the text's
    temperature: float = 1.0  # at which texts will be written with it; 0: greedy

    def __post_init__(self) -> None:
        check_range(self, "num_blocks", least=0, most=64)
        check_range(self, "rejection_weight", least=1e-3, most=1e3)
        check_range(self, "mixing", least=0, most=0.99)
        check_range(self, "temperature", least=0, most=100)


class AcceptanceLearner:
    """A head over a frozen draft."""

    def __init__(self, net: AcceptanceNet, draft: Learner, target: Decoder, options: AcceptanceLearning) -> None:
        self.module: nn.Module = net
        self.taps = draft.taps
        self._net, self._draft, self._target, self._options = net, draft, target, options

    def look(self, lesson: Lesson) -> Outlook:
        """It guesses nothing: its loss is its own."""
        found = self._examples(lesson)
        return Outlook(guesses=(), beside=(Beside(name=OWN, values=self._losses(found), rows=found.rows),))

    @torch.no_grad()
    def assess(self, lessons: Iterable[Lesson]) -> Assessment:
        """The loss on texts that it never saw, and how well it separates what is accepted from what is not.

        AUC: how often it rates an accepted token likelier than a rejected one, with labels as shares of both.
        """
        parts = [self._examples(lesson) for lesson in lessons]
        whole = Examples(*map(torch.cat, zip(*parts, strict=True)))
        losses = self._losses(whole)
        loss = float(losses.mean()) if len(losses) else 0.0
        mean = float(whole.labels.mean()) if len(whole.labels) else 0.0
        own, bare = auc(self._net(whole.states, whole.told), whole.labels), auc(whole.told, whole.labels)
        line = (
            f"held-out: loss {loss:.4f}; AUC {own:.3f}, of the draft's own probabilities {bare:.3f}; "
            f"{mean:.3f} of {len(whole.labels)} drawn tokens would be accepted"
        )
        numbers = {"held_out_loss": loss, "auc": own, "auc_of_probabilities": bare, "accepted": mean}
        return Assessment(score=-loss, line=line, numbers=numbers)

    def save(self, directory: Path) -> None:
        save_acceptance(self._net, directory)

    def _examples(self, lesson: Lesson) -> Examples:
        options = self._options
        return examples_of(
            self._draft, lesson, self._target.logits, mixing=options.mixing, temperature=options.temperature
        )

    def _losses(self, found: Examples) -> Tensor:
        """Weighted binary cross-entropy of each [n]; of nothing, nothing that still has a gradient."""
        logits: Tensor = self._net(found.states, found.told)
        rejected = self._options.rejection_weight * (1 - found.labels) * F.softplus(logits)
        return rejected + found.labels * F.softplus(-logits)


def auc(scores: Tensor, labels: Tensor) -> float:
    """Of scores [n] for labels [n] in 0 .. 1: ties count half. 0.5 where one kind is missing."""
    order = scores.argsort()
    _, tied = torch.unique_consecutive(scores[order], return_inverse=True)
    accepted = labels[order].double()
    groups = int(tied[-1]) + 1 if len(tied) else 0
    kept, lost = (
        torch.zeros(groups, dtype=torch.float64, device=scores.device).index_add_(0, tied, one)
        for one in (accepted, 1 - accepted)
    )
    pairs = float(kept.sum() * lost.sum())
    return float((kept * (lost.cumsum(0) - lost / 2)).sum()) / pairs if pairs else 0.5


def new(options: AcceptanceLearning, target: Decoder, seed: int) -> AcceptanceLearner:
    """A head that knows nothing yet. Its beginning does not depend on the seed."""
    draft, digest = _draft(options, target)
    config = AcceptanceConfig(
        width=_width(draft, target),
        num_blocks=options.num_blocks,
        draft=digest,
        temperature=options.temperature,
        reads_probability=options.reads_probability,
    )
    return AcceptanceLearner(AcceptanceNet(config, target.device), draft, target, options)


def load(options: AcceptanceLearning, target: Decoder, directory: Path) -> AcceptanceLearner:
    """A head that was trained before. Raises `ConfigError` for that of another draft."""
    draft, digest = _draft(options, target)
    net = load_acceptance(directory).to(target.device).train().requires_grad_(True)
    if net.config.draft != digest:
        raise ConfigError(
            f"{directory} holds a head for another draft ({net.config.draft}) than {options.draft} ({digest})"
        )
    net.config = replace(net.config, temperature=options.temperature)
    return AcceptanceLearner(net, draft, target, options)


def _draft(options: AcceptanceLearning, target: Decoder) -> tuple[Learner, str]:
    """The learner that says what the draft guesses, frozen; and which weights it has."""
    if not options.draft:
        raise ConfigError("an acceptance head judges the tokens of one draft: name its directory, --options draft=DIR")
    place = resolve(options.draft)
    method: LearnMethod[Any, Any] = find_learner(options.kind or _kind(place))
    if not method.hands_states:
        raise CapabilityError(
            f"{options.draft} ({options.kind or _kind(place)}) has no hidden state that has read its own last token: "
            "an acceptance head is for drafters that feed their tokens to a network of their own"
        )
    learner = method.load(method.options(), target, place)
    learner.module.eval().requires_grad_(False)
    return learner, digest_weights(place)


def _kind(place: Path) -> str:
    """What lies there: as its own record says, or its files."""
    record = place / _RECORD
    if record.is_file() and isinstance(kind := read_json(record).get("kind"), str):
        return kind
    found = recognise(place)
    if found is None:
        raise ConfigError(f"{place} does not say what kind of draft it is: name it, --options kind=KIND")
    return found[0]


@torch.no_grad()
def _width(draft: Learner, target: Decoder) -> int:
    """Of the draft's states: as they are for a text of nothing."""
    ids = torch.zeros(1, 5, dtype=torch.long, device=target.device)
    states = torch.zeros(4, target.config.hidden_size, dtype=target.dtype, device=target.device)
    lesson = Lesson(
        ids=ids,
        documents=ids,
        positions=torch.arange(4, device=target.device),
        counts=torch.ones(4, dtype=torch.bool, device=target.device),
        states=states,
        taps=dict.fromkeys(draft.taps, states),
    )
    with torch.autocast(target.device.type, torch.bfloat16, enabled=target.dtype == torch.bfloat16):
        return draft.look(lesson).guesses[-1].states.shape[-1]


LEARN = LearnMethod(
    summary="a head on a draft's hidden states that says when to stop drafting",
    options=AcceptanceLearning,
    new=new,
    load=load,
    loss={},
    model_type=MODEL_TYPE,
)
