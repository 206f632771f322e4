"""The reward of a window of drafted tokens, token by token.

    accepted   token i brings prod_{j <= i} min(1, p_j / q_j): the chance that it is kept by rejection sampling, so that
               the sum is the expected accepted length
    bleu       BLEU-4 (Papineni et al. 2002, https://aclanthology.org/P02-1040) of the window against the text, with one
               added to matches and counts of two and more tokens (Lin and Och 2004, https://aclanthology.org/C04-1072)
    rouge      ROUGE-L (Lin 2004, https://aclanthology.org/W04-1013): F1 of the longest common subsequence

The last two belong to the window as a whole, and are brought by its last token.
"""

from collections import Counter
from collections.abc import Sequence as Seq
from math import exp, log

import torch
from torch import Tensor


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
