"""Reinforcement: the draft writes a few tokens where the text goes on, and those that bring reward become likelier.

REINFORCE (Williams 1992, https://doi.org/10.1007/BF00992696): with rewards r_i of tokens x_i drawn from q,

    loss = - sum_i (R_i - b_i) log q(x_i) - sum_i r_i - e sum_i H(q_i)        R_i = r_i + r_{i+1} + ..., a constant

b_i: the mean of R_i so far, which changes no expectation and makes the estimate quieter. The second sum counts only
where a reward depends on q itself, as the accepted length does; with it the gradient is that of the expected reward,
exactly in expectation. H: the entropy, so that q does not collapse. An extra term beside NLL and KL. The rewards:

    accepted   token i brings prod_{j <= i} min(1, p_j / q_j): the chance that it is kept by rejection sampling, so that
               the sum is the expected accepted length
    bleu       BLEU-4 (Papineni et al. 2002, https://aclanthology.org/P02-1040) of the window against the text, with one
               added to matches and counts of two and more tokens (Lin and Och 2004, https://aclanthology.org/C04-1072)
    rouge      ROUGE-L (Lin 2004, https://aclanthology.org/W04-1013): F1 of the longest common subsequence

The last two belong to the window as a whole, and are brought by its last token.
"""

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal

import torch
from torch import Tensor

from outdraft.core.learner import Learner
from outdraft.learn.losses import logs
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range
from outdraft.training.lessons import Teacher
from outdraft.training.on_policy import beginning
from outdraft.training.packing import PackedRows
from outdraft.training.writing import write_on

_MEMORY = 0.99  # of the mean rewards, once there are enough of them
_PURPOSE = 0x5EED  # tells these coins from other noise of the same rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceOptions:
    """What the loss `reinforce` rewards, and over how many written tokens."""

    reward: Literal["accepted", "bleu", "rouge"] = "accepted"
    window: int = 4  # tokens that the draft writes in each row
    entropy: float = 1e-3  # the weight of the entropy bonus

    def __post_init__(self) -> None:
        check_range(self, "window", least=1, most=64)
        check_range(self, "entropy", least=0.0)


def accepted(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """[n, G, V], [n, G, V], [n, G] -> [n, G], differentiable."""
    ratio = (log_p.gather(-1, tokens[..., None]) - log_q.gather(-1, tokens[..., None]))[..., 0].clamp_max(0)
    return ratio.cumsum(-1).exp()


def of_windows(kind: str, guesses: Tensor, texts: Tensor) -> Tensor:
    """`bleu` or `rouge` of windows [n, G] against texts [n, G]: [n, G], all of it at the last token."""
    score = {"bleu": bleu4, "rouge": rouge_l}[kind]
    found = torch.zeros(guesses.shape, dtype=torch.float64)
    for i, (guess, text) in enumerate(zip(guesses.tolist(), texts.tolist(), strict=True)):
        found[i, -1] = score(guess, text)
    return found.to(guesses.device)


def bleu4(guess: Seq[int], text: Seq[int]) -> float:
    """In 0..1: the geometric mean of n-gram precisions, n = 1..4, times the penalty of being shorter than the text."""
    if not guess:
        return 0.0
    total = 0.0
    for n in range(1, 5):
        ours, theirs = _grams(guess, n), _grams(text, n)
        hits, count, add = sum((ours & theirs).values()), sum(ours.values()), int(n > 1)
        if hits + add == 0:
            return 0.0
        total += log((hits + add) / (count + add)) / 4
    return exp(total + min(0.0, 1 - len(text) / len(guess)))


def _grams(tokens: Seq[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def rouge_l(guess: Seq[int], text: Seq[int]) -> float:
    """In 0..1: twice the longest common subsequence over both lengths."""
    longest = [0] * (len(text) + 1)
    for token in guess:
        before = longest[:]
        for i, other in enumerate(text):
            longest[i + 1] = before[i] + 1 if token == other else max(before[i + 1], longest[i])
    return 2 * longest[-1] / max(1, len(guess) + len(text))


def surrogate(log_q: Tensor, tokens: Tensor, rewards: Tensor, baseline: Tensor, entropy: float) -> Tensor:
    """Log q [n, G, V], tokens drawn from it [n, G], rewards [n, G], baseline [G] -> [n], to be minimised."""
    said = log_q.gather(-1, tokens[..., None])[..., 0]
    chaos = -(log_q.exp() * log_q).sum(-1)
    ahead = to_go(rewards.detach()) - baseline
    return -(ahead * said + rewards + entropy * chaos).sum(-1)


def to_go(rewards: Tensor) -> Tensor:
    """Each token's own reward and those behind it: [n, G] -> [n, G]."""
    return rewards.flip(-1).cumsum(-1).flip(-1)


class Baseline:
    """The running mean of rewards to go, by place in the window; all workers have the same."""

    def __init__(self, window: int) -> None:
        self.state = torch.zeros(window + 1, dtype=torch.float64)  # the means, and of how many steps
        self._seen = torch.zeros(window + 1, dtype=torch.float64)  # sums of this step, and how many windows

    @property
    def mean(self) -> Tensor:
        """[G] mean reward to go at each place of the window, over the steps so far."""
        return self.state[:-1]

    def see(self, rewards: Tensor) -> None:
        """Rewards [n, G] of a pass."""
        self._seen[:-1] += to_go(rewards.detach().double()).sum(0).cpu()
        self._seen[-1] += len(rewards)

    def settle(self, seen: Tensor) -> None:
        """After a step, with what all workers saw [G + 1]."""
        if seen[-1] > 0:
            rate = max(1 / (float(self.state[-1]) + 1), 1 - _MEMORY)
            self.state[:-1] += rate * (seen[:-1] / seen[-1] - self.state[:-1])
            self.state[-1] += 1
        self._seen.zero_()

    @property
    def seen(self) -> Tensor:
        """What this worker saw in this step [G + 1]."""
        return self._seen.clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Where the draft writes: of those rows in which a whole window counts."""

    rows: PackedRows  # only them, cut behind the last window
    cuts: Tensor  # [n] the first token of each window
    numbers: list[int]  # [n] of these rows among those given
    weights: Tensor  # [n] how many tokens count in the whole row
    beginnings: list[Tensor]

    def filled(self, tokens: Tensor) -> PackedRows:
        """The rows with these windows [n, G], and nothing behind them."""
        ids, documents = self.rows.ids.clone(), self.rows.documents.clone()
        for row, cut in enumerate(self.cuts.tolist()):
            ids[row, cut : cut + tokens.shape[1]] = tokens[row].to(ids.device)
            documents[row, cut + tokens.shape[1] :] = int(documents[row, cut]) + 1
        return replace(self.rows, ids=ids, documents=documents, own=True)


def choose(rows: PackedRows, window: int, coins: Seq[torch.Generator]) -> Windows | None:
    """One window a row, evenly among those that count from end to end, by the row's coins; None where there is none."""
    whole = rows.counts.unfold(1, window, 1).all(-1)  # [B, T - G + 1]: token t + 1 and the next ones count
    chosen = [i for i in range(len(whole)) if bool(whole[i].any())]
    if not chosen:
        return None
    cuts = []
    for i in chosen:
        places = whole[i].nonzero()[:, 0] + 1
        cuts.append(int(places[torch.randint(len(places), (), generator=coins[i])]))
    stop, some = max(cuts) + window, torch.tensor(chosen)
    cut = replace(
        rows, ids=rows.ids[some, :stop], documents=rows.documents[some, :stop], counts=rows.counts[some, : stop - 1]
    )
    return Windows(
        rows=cut,
        cuts=torch.tensor(cuts),
        numbers=chosen,
        weights=rows.counts[some].sum(1).double(),
        beginnings=[beginning(cut, row, at) for row, at in enumerate(cuts)],
    )


class Reinforcement:
    """The loss as a part of a draft's training. `weight`: beside the losses of guesses, per token that counts."""

    def __init__(self, draft: Decoder, options: ReinforceOptions, weight: float) -> None:
        self.draft, self.options, self.weight = draft, options, weight
        self.baseline = Baseline(options.window)

    def total(self, learner: Learner, teacher: Teacher, rows: PackedRows) -> Tensor:
        """[]: a row's window weighs as much as all of the row's tokens that count."""
        assert rows.moment is not None
        coins = [rows.moment.generator(row, _PURPOSE) for row in range(len(rows.ids))]
        size = self.options.window
        windows = None if rows.own and self.options.reward != "accepted" else choose(rows, size, coins)
        if windows is None:
            return torch.zeros((), device=self.draft.device)
        uniforms = [torch.rand(size, generator=coins[i], dtype=torch.float64) for i in windows.numbers]
        texts = torch.stack([windows.rows.ids[row, at : at + size] for row, at in enumerate(windows.cuts.tolist())])
        drawn = write_on(self.draft, windows.beginnings, uniforms, ends=False)
        lesson = teacher.lesson(windows.filled(torch.stack(drawn)))
        (guess,) = learner.look(lesson).guesses
        tokens = torch.stack(drawn).to(lesson.states.device)
        at = torch.arange(len(tokens))[:, None] * lesson.shape[1] + windows.cuts[:, None] - 1 + torch.arange(size)
        at = at.to(tokens.device)  # [n, G] the rows whose next token is a drawn one
        states = torch.zeros_like(guess.states).index_copy(0, guess.rows, guess.states)  # row by row of the lesson
        log_q = logs(guess.head(states[at.flatten()])).view(*at.shape, -1)
        with torch.no_grad():
            log_p = logs(teacher.logits(lesson.states[at.flatten()])).view_as(log_q)
        if self.options.reward == "accepted":  # which knows its gradient; scores of texts have none
            rewards = accepted(log_p, log_q, tokens)
        else:
            rewards = of_windows(self.options.reward, tokens, texts.to(tokens.device))
        mean = self.baseline.mean.to(rewards)
        self.baseline.see(rewards)
        one = surrogate(log_q, tokens, rewards, mean, self.options.entropy)
        return self.weight * (one * windows.weights.to(one)).sum()
