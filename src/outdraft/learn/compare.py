"""Guesses beside the target's distribution: the loss that is trained on, and what would be accepted.

The logits of a chunk of rows are made and compared. Where those of all guesses are many, they are then forgotten, and
made once more for the gradient, so that the memory of the heads is that of one chunk, whatever the vocabulary and the
length of the texts. Where they are few, they are kept: making them twice takes longer than anything else here.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from outdraft.core.learner import OWN, Beside, Guess, Lesson, Outlook
from outdraft.learn.losses import Loss, logs

Logits = Callable[[Tensor], Tensor]
CHUNK = 1 << 22  # logits of the target that are held at once on a CPU
HELD = 1 << 25  # logits of all guesses of a pass that are kept for the gradient: some 12 bytes each with KL
ON_DEVICE = 16  # times as many on a GPU, which would take longer to begin a smaller piece than to compute it
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Of one depth, on the rows of a lesson; 0 where nothing was guessed."""

    guessed: Tensor  # [B * T] bool
    ratio: Tensor  # [B * T] min(1, q(x) / p(x)) of the text's token x; greedy: whether both have the same best token


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A loss as a sum and what it is a sum over, so that the mean of many passes is that of one over all of them."""

    total: Tensor  # [] the losses of counted guesses, each times its weight
    weight: float  # the weights of counted guesses
    rates: list[Tensor]  # of each depth: mean acceptance

    @property
    def loss(self) -> Tensor:
        """The mean; 0 where nothing counts."""
        return self.total / (self.weight or 1.0)


def compare(
    outlook: Outlook,
    lesson: Lesson,
    logits_of: Logits,
    loss: Loss,
    *,
    temperature: float = 1.0,
    beside: Mapping[str, float] = _NONE,
    chunk: int | None = None,
    held: int | None = None,
) -> Compared:
    """The loss over counted rows of all depths, a guess as heavy as its depth; and each depth's mean acceptance.

    `logits_of`: the target's final states [n, D] -> [n, V]. `temperature`: the loss compares both distributions there,
    and is multiplied by its square, so that gradients keep their size. `beside`: the weights of losses beside those of
    the guesses, by name: each is a mean of its own over the rows given here, so where it counts others than the guesses
    do, the loss depends a little on how a step is cut into passes. `chunk`: logits that are held at once; `held`: so
    many of all guesses together are kept for the gradient, and of more the chunks are made again. None: as many as suit
    the device.
    """
    times = _times(lesson.states)
    chunk, held = chunk or CHUNK * times, HELD * times if held is None else held
    total = lesson.states.new_zeros((), dtype=torch.float32)
    weight, tokens, rates = 0.0, lesson.ids[:, 1:].flatten(), []
    judged = lesson.states if outlook.states is None else outlook.states
    kept = [lesson.counts[guess.rows].nonzero()[:, 0] for guess in outlook.guesses]
    vocab_size = logits_of(lesson.states[:1]).shape[-1]
    again = sum(map(len, kept)) * vocab_size > held
    for guess, counted in zip(outlook.guesses, kept, strict=True):

        def judge(own: Tensor, theirs: Tensor, x: Tensor, guess: Guess = guess) -> Tensor:
            with torch.no_grad():
                p = logits_of(theirs)
            q = guess.head(own)
            asked = _inside(p, guess)
            said = x if guess.vocab is None else _places(guess.vocab, p.shape[-1])[x]
            log_p, log_q = logs(asked, temperature), logs(q, temperature)
            far = loss(log_p, log_q, said).sum() * temperature**2
            with torch.no_grad():
                if guess.vocab is not None or temperature != 1:
                    log_p, log_q = _inside(logs(p), guess), logs(q)
                mass = torch.minimum(log_p, log_q).exp_().sum()
            return torch.stack([far, mass])

        sums = torch.zeros(2, device=guess.states.device)
        for part in _parts(counted, vocab_size, chunk):
            rows = guess.rows[part]
            given = guess.states[part], judged[rows], tokens[rows]
            sums = sums + (checkpoint(judge, *given, use_reentrant=False) if again else judge(*given))
        total, weight = total + guess.weight * sums[0], weight + guess.weight * len(counted)
        rates.append((sums[1] / max(1, len(counted))).detach())
    for guess in outlook.guesses:  # where nothing counts, a gradient of zeros all the same
        total = total + 0 * guess.states.sum()
    means = _beside(outlook.beside, lesson, {OWN: 1.0, **beside})
    weight = weight or max((heavy for _, heavy in means), default=0.0)
    for mean, _ in means:
        total = total + mean * weight
    return Compared(total=total, weight=weight, rates=rates)


def _beside(losses: Seq[Beside], lesson: Lesson, asked: Mapping[str, float]) -> list[tuple[Tensor, float]]:
    """Of each name that is asked for, the mean times what is asked, and the weight that it is a mean over."""
    found = []
    for name in dict.fromkeys(one.name for one in losses if asked.get(one.name)):
        sums: list[Tensor] = []
        heavy = 0.0
        for one in losses:
            if one.name == name:
                counts = lesson.counts[one.rows]
                sums.append(one.weight * one.values[counts].sum())
                heavy += one.weight * float(counts.sum())
        found.append((asked[name] * torch.stack(sums).sum() / (heavy or 1.0), heavy))
    return found


@torch.no_grad()
def accepted(
    outlook: Outlook, lesson: Lesson, logits_of: Logits, temperature: float, *, chunk: int | None = None
) -> list[Accepted]:
    """Depth by depth, at a temperature; 0: greedy, where the text is what the target's best tokens spell."""
    tokens, found = lesson.ids[:, 1:].flatten(), []
    judged = lesson.states if outlook.states is None else outlook.states
    vocab_size, chunk = logits_of(lesson.states[:1]).shape[-1], chunk or CHUNK * _times(lesson.states)
    for guess in outlook.guesses:
        guessed = torch.zeros_like(lesson.counts)
        ratio = torch.zeros(len(guessed), device=guessed.device)
        for part in _parts(lesson.counts[guess.rows].nonzero()[:, 0], vocab_size, chunk):
            rows = guess.rows[part]
            p_logits, q_logits = logits_of(judged[rows]), guess.head(guess.states[part])
            log_p, log_q = logs(p_logits, temperature or 1), logs(q_logits, temperature or 1)
            guessed[rows] = True
            of_text = _whole(log_q, guess, log_p.shape[-1])
            if temperature:
                x = tokens[rows, None]
                ratio[rows] = (of_text.gather(-1, x) - log_p.gather(-1, x)).exp().clamp_max(1)[:, 0].float()
            else:
                ratio[rows] = (of_text.argmax(-1) == log_p.argmax(-1)).float()
        found.append(Accepted(guessed=guessed, ratio=ratio))
    return found


def _times(states: Tensor) -> int:
    return 1 if states.device.type == "cpu" else ON_DEVICE


def _places(vocab: Tensor, vocab_size: int) -> Tensor:
    """The draft's index of each of the target's tokens [V]; -1 where it has none."""
    places = torch.full((vocab_size,), -1, device=vocab.device)
    places[vocab] = torch.arange(len(vocab), device=vocab.device)
    return places


def _inside(p: Tensor, guess: Guess) -> Tensor:
    """Of [n, V], the tokens that the draft can say."""
    return p if guess.vocab is None else p[:, guess.vocab]


def _whole(log_q: Tensor, guess: Guess, vocab_size: int) -> Tensor:
    """log q of the target's vocabulary [n, V]: nothing is said outside the draft's own."""
    if guess.vocab is None:
        return log_q
    return log_q.new_full((len(log_q), vocab_size), -torch.inf).index_copy_(1, guess.vocab, log_q)


def _parts(kept: Tensor, vocab_size: int, chunk: int) -> Seq[Tensor]:
    """The rows in pieces of at most `chunk` logits."""
    return torch.split(kept, max(1, chunk // vocab_size)) if len(kept) else ()
