"""What an acceptance head learns from: a draft's tokens along a text, its states behind them, and what they are worth.

A guess of depth k + 1 of the draft's learner stands at the target's row r and guesses token r + 1; its state has read
token r. So the state that judges the drafted token at r is that of the next depth, and its q that of this depth:

    row         r - 1              r
    depth k     q(. ) -> y_r       .
    depth k+1   .                  e: has read y_r      label min(1, p(y_r) / q(y_r)), p of the target's row r - 1

Where a draft reads its own tokens as it would the text's (`Outlook.recurs`), one guess stands for both.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from outdraft.core.learner import Guess, Learner, Lesson, Moment

_CHUNK = 1 << 22  # logits that are held at once


class Examples(NamedTuple):
    """N drafted tokens, each with what the head sees of it and whether it would have been accepted."""

    states: Tensor  # [N, W] behind each
    labels: Tensor  # [N] how likely it is accepted
    told: Tensor  # [N] the draft's own probability of it
    rows: Tensor  # [N] of the lesson, whose next token it stands for


@torch.no_grad()
def examples_of(
    draft: Learner, lesson: Lesson, target_logits: Callable[[Tensor], Tensor], *, mixing: float, temperature: float
) -> Examples:
    """The draft's tokens along the lesson's texts, drawn at `temperature` (0: its best), mixed with the text's own.

    `target_logits`: final states [n, D] -> [n, V]. `mixing`: the share that is put back. Draws are a function of the
    lesson's moment; in an exam always the same.
    """
    batch, length = lesson.shape
    plain = replace(lesson, moment=None)  # the draft is frozen: it learns nothing, and needs no noise
    outlook = draft.look(plain)
    coins = _coins(lesson)  # [B, 2, T]
    tokens = _drawn(outlook.guesses[0], coins[:, 0].flatten(), temperature, batch * length)  # [N] token r + 1; -1: none
    same = (lesson.documents[:, 1:] == lesson.documents[:, :-1]).flatten()
    drawn = (tokens >= 0) & same & (coins[:, 1].flatten() >= mixing)
    ids = lesson.ids.clone()
    ids[:, 1:] = torch.where(drawn, tokens, lesson.ids[:, 1:].flatten()).view(batch, length)
    p = _chances(lesson.states, tokens, drawn, target_logits, temperature)
    after = draft.look(replace(plain, ids=ids))
    pairs = [(0, 0)] if after.recurs else [(k, k + 1) for k in range(len(after.guesses) - 1)]
    states, labels, told, rows = [], [], [], []
    for of_q, of_state in pairs:
        q = _told(outlook.guesses[of_q], tokens, drawn, temperature)  # [N] at r: of token r + 1; NaN: not guessed
        guess = after.guesses[of_state]
        before = guess.rows - 1
        kept = (guess.rows % length > 0) & drawn[before] & lesson.counts[before] & ~q[before].isnan()
        row = before[kept]
        states.append(guess.states[kept].float())
        labels.append((p[row] / q[row].clamp_min(1e-30)).clamp_max(1) if temperature else p[row])
        told.append(q[row])
        rows.append(row)
    return Examples(torch.cat(states), torch.cat(labels), torch.cat(told), torch.cat(rows))


def _coins(lesson: Lesson) -> Tensor:
    """Uniform numbers [B, 2, T]: who is drawn, and what is put back."""
    batch, length = lesson.shape
    moment = lesson.moment or Moment(step=0, steps=1, seed=0)
    made = [torch.rand(2, length, generator=moment.generator(row)) for row in range(batch)]
    return torch.stack(made).to(lesson.ids.device)


def _drawn(guess: Guess, coins: Tensor, temperature: float, num_rows: int) -> Tensor:
    """A token for every row of the target that the guess stands at: [num_rows], -1 where there is none."""
    tokens = torch.full((num_rows,), -1, device=coins.device)
    for part in _parts(guess):
        logits = guess.head(guess.states[part]).float()
        if temperature:
            upto = torch.softmax(logits / temperature, -1).double().cumsum(-1)
            at = torch.searchsorted(upto, coins[guess.rows[part], None].double() * upto[:, -1:], right=True)[:, 0]
            at = at.clamp_max(logits.shape[-1] - 1)
        else:
            at = logits.argmax(-1)
        tokens[guess.rows[part]] = at if guess.vocab is None else guess.vocab[at]
    return tokens


def _told(guess: Guess, tokens: Tensor, drawn: Tensor, temperature: float) -> Tensor:
    """The guess's probability of the drawn tokens, at the target's rows [N]; NaN where it says nothing of them."""
    q = torch.full(tokens.shape, torch.nan, device=tokens.device)
    for part in _parts(guess):
        rows = guess.rows[part]
        probs = torch.softmax(guess.head(guess.states[part]).float() / (temperature or 1), -1)
        wanted = tokens[rows].clamp_min(0)
        at = wanted if guess.vocab is None else torch.searchsorted(guess.vocab, wanted).clamp_max(len(guess.vocab) - 1)
        q[rows] = probs.gather(-1, at[:, None])[:, 0]
    return q.masked_fill(~drawn, torch.nan)


def _chances(
    states: Tensor, tokens: Tensor, drawn: Tensor, target_logits: Callable[[Tensor], Tensor], temperature: float
) -> Tensor:
    """The target's probability of the drawn tokens [N]; greedy: 1 where it is its best one."""
    p, wanted = torch.zeros(tokens.shape, device=tokens.device), drawn.nonzero()[:, 0]
    if not len(wanted):
        return p
    size = target_logits(states[wanted[:1]]).shape[-1]
    for part in torch.split(wanted, max(1, _CHUNK // size)):
        logits = target_logits(states[part]).float()
        if temperature:
            p[part] = torch.softmax(logits / temperature, -1).gather(-1, tokens[part, None])[:, 0]
        else:
            p[part] = (logits.argmax(-1) == tokens[part]).float()
    return p


def _parts(guess: Guess) -> tuple[Tensor, ...]:
    """The guess's rows in pieces of at most a chunk of logits."""
    if not len(guess.rows):
        return ()
    size = guess.head(guess.states[:1]).shape[-1]
    return torch.split(torch.arange(len(guess.rows), device=guess.rows.device), max(1, _CHUNK // size))
