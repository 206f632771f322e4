"""The contract between a method's learner and the training loop: what the learner is given, and what it returns.

    rows of ids -> the target's pass -> Lesson -> Learner.look -> Outlook -> the frame: loss, acceptance, speed-up

A learner says which states predict which token; only the training loop compares guesses with the target's
distribution. So every kind has the same losses and the same bookkeeping, and logits of a large vocabulary are never
held for all rows at once.

    position     a      a+1    a+2    a+3            the pending token stands at `a`
    guess                d=1    d=2    d=3            a guess of depth d is of the token at a + d,
    target row          row a  row a+1  row a+2       which the target's row a + d - 1 distributes
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from outdraft.core.head_format import HeadFormat
from outdraft.core.method import Options

Head = Callable[[Tensor], Tensor]  # states [n, W] -> logits [n, V], or of the draft's own vocabulary
Target = TypeVar("Target", contravariant=True)
TARGET = "target"  # the folder of a target that was taught along, beside its draft
OWN = "own"  # the name of a loss that a kind brings along itself: the user need not ask for it
_PRIME = 1_000_003  # between the seeds of steps, of rows and of purposes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where a batch stands in its run, which is the same when the run is resumed."""

    step: int
    steps: int  # of the whole run, as planned; where it is bounded by seconds, as reckoned now
    seed: int  # of this step, for noise
    first: int = 0  # the number of the first of these rows in the batch of the step

    def generator(self, row: int, purpose: int = 0) -> torch.Generator:
        """Random numbers of one row, however the batch is cut into passes and shared among workers.

        `row`: counted from the first of these; `purpose`: tells several uses in one step apart.
        """
        number = (self.seed * _PRIME + self.first + row) * _PRIME + purpose
        return torch.Generator().manual_seed(number % (1 << 63))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """B sequences of T rows, flat and batch-major: row b * T + t is token t of sequence b.

    Several documents may stand in one sequence; none sees another, and positions begin again with each.
    """

    ids: Tensor  # [B, T + 1] the token behind the last row included
    documents: Tensor  # [B, T + 1] a number for each document; padding is a document of its own
    positions: Tensor  # [B * T]
    counts: Tensor  # [B * T] bool: the row's next token is one that the draft will have to guess
    states: Tensor  # [B * T, D] after the target's last layer, not normed
    taps: Mapping[int, Tensor] = field(default_factory=dict)  # tap t: [B * T, D] after t layers
    moment: Moment | None = None  # in training; None: an exam, where nothing is noisy
    depth: int = 4  # of an exam: so many guesses are looked at, one behind the other, where a kind knows no end

    @property
    def shape(self) -> tuple[int, int]:
        """How many sequences, and how many rows each."""
        return self.ids.shape[0], self.ids.shape[1] - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A loss that compares something else than distributions of tokens, row by row: states, spellings, verdicts.

    There may be several of one name. Their mean over the rows that count is added to that of the guesses; where no
    guess weighs anything, it is all that is learned by.
    """

    name: str  # by which `--loss NAME=WEIGHT` weighs it; `OWN`: always once
    values: Tensor  # [N] with a gradient, also where N is 0
    rows: Tensor  # [N] the target's rows, which count as in a guess
    weight: float = 1.0  # in the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Guesses of one depth. Row `rows[i]` of the target distributes the token that state i guesses."""

    states: Tensor  # [N, W]
    head: Head
    rows: Tensor  # [N]
    weight: float = 1.0  # in the loss
    weights: Tensor | None = None  # [N] of each, times `weight`; None: all alike
    chance: Head | None = None  # states [n, W] -> the logit [n] of what is accepted, sum min(p, q): learned beside
    vocab: Tensor | None = None  # which of the target's tokens the head's columns are; None: all, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a draft guesses, depth by depth, where it stands on the text's own tokens.

    `recurs`: the only guess is good for every depth, because the draft reads its own tokens as it would the text's.
    """

    guesses: Seq[Guess]
    recurs: bool = False
    beside: Seq[Beside] = ()  # losses beside those of the guesses
    # [B * T, D] final states, not normed, of the target that will verify, where the learner changes it (its norm and
    # head stay); None: the lesson's
    states: Tensor | None = None


class Learner(Protocol):
    """One draft in training."""

    @property
    def module(self) -> nn.Module:
        """Its parameters that ask for a gradient are trained."""

    @property
    def taps(self) -> tuple[int, ...]:
        """States of the target that it reads: tap t is the state after t layers."""

    def look(self, lesson: Lesson) -> Outlook:
        """What it guesses in these texts; losses beside that are needed only where gradients are."""

    def save(self, directory: Path) -> None:
        """Write what the drafter loads."""


@runtime_checkable
class TargetLearner(Learner, Protocol):
    """One that teaches its target too. It works on a copy, which `save` writes into the folder `TARGET`, complete but
    for the tokenizer; whatever it promises is about that target.
    """

    @property
    def modifies_target(self) -> bool:
        """Always true; that the attribute is there sets it apart from a `Learner`."""

    @property
    def rates(self) -> Mapping[nn.Parameter, float]:
        """Parameters that learn at a share of the others' rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How good something is that guesses no tokens. The higher the score, the better."""

    score: float
    line: str  # for the progress report
    numbers: Mapping[str, float] = field(default_factory=dict)  # for the log


@runtime_checkable
class AssessedLearner(Learner, Protocol):
    """One that learns about a draft and is none: nothing is promised of it, and it says itself how good it is."""

    def assess(self, lessons: Iterable[Lesson]) -> Assessment:
        """On texts that it has not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnMethod(Generic[Options, Target]):
    """How a method's draft is trained. It lies as `LEARN` in the module `learn` of the method's folder, or, of one that
    trains the target for a drafter without weights of its own, in the method's file in `finetune`.
    """

    summary: str
    options: type[Options]  # a frozen dataclass with a default for every field: size, depth, weights of the loss
    new: Callable[[Options, Target, int], Learner]  # an untrained draft for this target, from a seed
    load: Callable[[Options, Target, Path], Learner]  # one that was saved
    drafts: Mapping[str, Any] = field(default_factory=dict)  # the drafter's options under which it writes chains
    drafter: str | None = None  # who drafts with it; None: the method in whose folder it lies
    # that drafter's options for what lies in a directory
    drafter_options: Callable[[Path], Mapping[str, Any]] = lambda directory: {"model": str(directory)}
    # Where the user asks for none; {}: it learns by a loss of its own (`Beside`), and none can be asked for
    loss: Mapping[str, float] = field(default_factory=lambda: {"forward_kl": 1.0})
    # A kind that can draft some of the target's tokens only: given once, before a new draft learns, how often each
    # token is to be guessed in the texts [V], it chooses. (`new` alone does not see the texts, and must not need them.)
    choose_vocab: Callable[[Any, Tensor], None] | None = None
    # The states of its guesses are those of the drafter's own network behind the tokens that it has read, and the
    # drafter hands them over in chains (`Traits.hands_states`). The second of several has read one drafted token
    hands_states: bool = False
    # What config.json says of a head (model_type, speculators_model_type, or one of architectures); None: a model like
    # any other
    model_type: str | None = None
    formats: Seq[HeadFormat[Any, Any, Target]] = ()  # layouts of its directories, its own among them
    # (head, small target, where to, width, depth): the head of a bigger target that computes the same, for benches
    inflate: Callable[[Path, Target, Path, int, int], None] | None = None

    def is_named(self, config: Mapping[str, Any]) -> bool:
        """Whether this config.json is that of a head of this kind."""
        listed = config.get("architectures")
        said = [
            config.get("model_type"),
            config.get("speculators_model_type"),
            *(listed if isinstance(listed, list) else ()),
        ]
        return self.model_type is not None and self.model_type in said
