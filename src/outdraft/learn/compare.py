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
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.checkpoint import checkpoint

from outdraft.core.learner import OWN, Beside, Guess, Lesson, Outlook
from outdraft.kernels.row_losses import log_sums
from outdraft.learn.fused_loss import fused_loss
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
    vocab_size = logits_of(lesson.states[:0]).shape[-1]
    widths = [_width(guess.vocab, vocab_size) for guess in outlook.guesses]
    again = sum(len(rows) * width for rows, width in zip(kept, widths, strict=True)) > held
    looked, place = _looked_at(outlook, lesson)
    vocabs = {id(guess.vocab): guess.vocab for guess in outlook.guesses}
    is_kept = len(looked) * sum(_width(one, vocab_size) for one in vocabs.values()) <= held
    said_of = {key: _said(logits_of, judged[looked], one, chunk) for key, one in vocabs.items()} if is_kept else {}
    for guess, counted in zip(outlook.guesses, kept, strict=True):

        def judge(
            own: Tensor, theirs: Tensor, whole: Tensor, at: Tensor, x: Tensor, w: Tensor, guess: Guess = guess
        ) -> Tensor:
            if not said_of:
                theirs, whole = _said(logits_of, theirs, guess.vocab, chunk)
            q = guess.head(own)
            said = x if guess.vocab is None else _places(guess.vocab, vocab_size)[x]
            found = fused_loss(theirs, whole, at, q, said, w, loss) if temperature == 1 else None
            far, mass = found or _by_torch(theirs[at], whole[at], q, said, w, loss, temperature)
            if guess.chance is not None:
                sure = guess.chance(own).float()
                far = far + (binary_cross_entropy_with_logits(sure, mass.clamp(0, 1), reduction="none") * w).sum()
            return torch.stack([far, mass.sum()])

        sums, each = torch.zeros(2, device=guess.states.device), guess.weights
        each = torch.ones(len(guess.rows), device=guess.states.device) if each is None else each
        for part in _parts(counted, _width(guess.vocab, vocab_size) if said_of else vocab_size, chunk):
            rows = guess.rows[part]
            if said_of:
                (theirs, whole), at = said_of[id(guess.vocab)], place[rows]
            else:  # the logits are made of these states, once more for the gradient
                theirs, whole, at = judged[rows], tokens[rows], torch.arange(len(rows), device=rows.device)
            given = guess.states[part], theirs, whole, at, tokens[rows], each[part]
            sums = sums + (checkpoint(judge, *given, use_reentrant=False) if again else judge(*given))
        total, weight = total + guess.weight * sums[0], weight + guess.weight * float(each[counted].sum())
        rates.append((sums[1] / max(1, len(counted))).detach())
    for guess in outlook.guesses:  # where nothing counts, a gradient of zeros all the same
        total = total + 0 * guess.states.sum()
    means = _beside(outlook.beside, lesson, {OWN: 1.0, **beside})
    weight = weight or max((heavy for _, heavy in means), default=0.0)
    for mean, _ in means:
        total = total + mean * weight
    return Compared(total=total, weight=weight, rates=rates)


def _by_torch(
    theirs: Tensor, whole: Tensor, q: Tensor, said: Tensor, w: Tensor, loss: Loss, temperature: float
) -> tuple[Tensor, Tensor]:
    """The sum of weighted losses [], and what would be accepted [n]."""
    log_p, log_q = logs(theirs, temperature), logs(q, temperature)
    far = (loss(log_p, log_q, said) * w).sum() * temperature**2
    with torch.no_grad():
        log_q = log_q if temperature == 1 else logs(q)
        return far, torch.minimum(theirs - whole[:, None], log_q).exp_().sum(-1)


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
def said_of_text(
    outlook: Outlook, lesson: Lesson, logits_of: Logits, temperature: float, *, chunk: int | None = None
) -> Tensor:
    """What `accepted` compares drafts with [B * T], at rows that are looked at.

    The target's log probability of the text's next token; greedy: its best token.
    """
    tokens, judged = lesson.ids[:, 1:].flatten(), lesson.states if outlook.states is None else outlook.states
    said = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    rows, chunk = _looked_at(outlook, lesson)[0], chunk or CHUNK * _times(lesson.states)
    for part in _parts(rows, logits_of(lesson.states[:0]).shape[-1], chunk):
        log_p = logs(logits_of(judged[part]), temperature or 1)
        found = log_p.gather(-1, tokens[part, None])[:, 0] if temperature else log_p.argmax(-1)
        said[part] = found.double()
    return said


@torch.no_grad()
def accepted(
    outlook: Outlook,
    lesson: Lesson,
    logits_of: Logits,
    temperature: float,
    *,
    said: Tensor | None = None,
    chunk: int | None = None,
) -> list[Accepted]:
    """Depth by depth, at a temperature; 0: greedy, where the text is what the target's best tokens spell.

    `said` [B * T]: what `said_of_text` found, where several drafts are compared with one target.
    """
    tokens, found = lesson.ids[:, 1:].flatten(), []
    said = said_of_text(outlook, lesson, logits_of, temperature, chunk=chunk) if said is None else said
    vocab_size, chunk = logits_of(lesson.states[:0]).shape[-1], chunk or CHUNK * _times(lesson.states)
    for guess in outlook.guesses:
        guessed = torch.zeros_like(lesson.counts)
        ratio = torch.zeros(len(guessed), device=guessed.device)
        for part in _parts(lesson.counts[guess.rows].nonzero()[:, 0], _width(guess.vocab, vocab_size), chunk):
            rows = guess.rows[part]
            log_q = logs(guess.head(guess.states[part]), temperature or 1)
            guessed[rows] = True
            if temperature:
                x = tokens[rows] if guess.vocab is None else _places(guess.vocab, vocab_size)[tokens[rows]]
                of_text = log_q.gather(-1, x.clamp_min(0)[:, None])[:, 0].masked_fill(x < 0, -torch.inf)
                ratio[rows] = (of_text - said[rows]).exp().clamp_max(1).float()
            else:
                best = log_q.argmax(-1) if guess.vocab is None else guess.vocab[log_q.argmax(-1)]
                ratio[rows] = (best == said[rows]).float()
        found.append(Accepted(guessed=guessed, ratio=ratio))
    return found


def _looked_at(outlook: Outlook, lesson: Lesson) -> tuple[Tensor, Tensor]:
    """The counted rows [n] that some guess is about, and the index of each row among them [B * T]."""
    is_one = torch.zeros_like(lesson.counts)
    for guess in outlook.guesses:
        is_one[guess.rows] = True
    is_one &= lesson.counts
    return is_one.nonzero()[:, 0], is_one.cumsum(0) - 1


@torch.no_grad()
def _said(logits_of: Logits, states: Tensor, vocab: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
    """[n, D] -> the logits of a vocabulary [n, V'], and the logarithm of what all sum up to [n]; piece by piece."""
    first = logits_of(states[:0])
    wide = torch.promote_types(first.dtype, torch.float32)
    said = states.new_empty((len(states), _width(vocab, first.shape[-1])), dtype=wide)
    sums = states.new_empty(len(states), dtype=wide)
    for part in _parts(torch.arange(len(states), device=states.device), first.shape[-1], chunk):
        p = logits_of(states[part])
        sums[part] = log_sums(p)
        said[part] = (p if vocab is None else p.index_select(-1, vocab)).to(wide)
    return said, sums


def _width(vocab: Tensor | None, vocab_size: int) -> int:
    """Logits of a guess."""
    return vocab_size if vocab is None else len(vocab)


def _times(states: Tensor) -> int:
    return 1 if states.device.type == "cpu" else ON_DEVICE


def _places(vocab: Tensor, vocab_size: int) -> Tensor:
    """The draft's index of each of the target's tokens [V]; -1 where it has none."""
    places = torch.full((vocab_size,), -1, device=vocab.device)
    places[vocab] = torch.arange(len(vocab), device=vocab.device)
    return places


def _parts(kept: Tensor, vocab_size: int, chunk: int) -> Seq[Tensor]:
    """The rows in pieces of at most `chunk` logits."""
    return torch.split(kept, max(1, chunk // vocab_size)) if len(kept) else ()
