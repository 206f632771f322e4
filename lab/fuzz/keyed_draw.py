"""The keyed draw of docs/proof.md, written a second time from that page alone: nothing is shared with the engine.

Numpy in float64. `judge` says whether a token is the one that a row of logits stands for, or whether logits that moved
by a rounding error could have made it so (another library adds in another order).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float64]  # [V]
Kept = npt.NDArray[np.bool_]  # [V]

SAME, TIE, DIFFERENT = "same", "tie", "different"
SLACK = 1e-3  # how far the difference of two logits may be off between two libraries in float32
_WORD = (1 << 64) - 1


def _scramble(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)


def noise(seed: int, position: int, size: int) -> Row:
    """The uniforms [V] of the token at an absolute position; 1 is the purpose "the target's draw"."""
    golden, key = 0x9E3779B97F4A7C15, 0
    for word in (seed, 1, position):
        key = _scramble((key + golden + word) & _WORD)
    words = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(golden) + np.uint64(key)  # wraps, as it should
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    words ^= words >> np.uint64(31)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def edited(logits: Row, params: Mapping[str, Any], prompt: Seq[int], output: Seq[int], ends: Collection[int]) -> Row:
    """Bias, masks and penalties, in this order. `ends`: the ids that may end the text."""
    row = np.array(logits, dtype=np.float64)
    for token, bias in params.get("logit_bias", {}).items():
        row[int(token)] += bias
    if len(output) < params.get("min_tokens", 0):
        row[list({*ends, *params.get("stop_token_ids", ())})] = -np.inf
    row[_masked(params, output, len(row))] = -np.inf
    factor = params.get("repetition_penalty", 1.0)
    for token in {*prompt, *output}:
        row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
    for token, count in Counter(output).items():
        row[token] -= params.get("presence_penalty", 0.0) + params.get("frequency_penalty", 0.0) * count
    return row


def _masked(params: Mapping[str, Any], output: Seq[int], size: int) -> list[int]:
    """The tokens that may not follow the output, but for ends that come too early."""
    masked = set(params.get("banned_token_ids", ()))
    if params.get("allowed_token_ids") is not None:
        masked |= set(range(size)) - set(params["allowed_token_ids"])
    for word in params.get("bad_words", ()):
        *before, last = word
        if tuple(output[len(output) - len(before) :]) == tuple(before) and len(before) <= len(output):
            masked.add(last)
    forced = params.get("forced_prefix", ())
    if len(output) < len(forced):
        masked |= set(range(size)) - {forced[len(output)]}
    return list(masked)


def kept(scores: Row, params: Mapping[str, Any], slack: float) -> Kept:
    """Which tokens min-p, top-k and top-p leave, in this order.

    slack > 0: those too that could be in if differences of scores moved by so much; < 0: only those that stay in.
    """
    best = np.max(scores)
    inside: Kept = np.isfinite(scores)
    if params.get("min_p", 0.0):
        inside &= scores >= best + np.log(params["min_p"]) - slack
    top_k = params.get("top_k", 0)
    if 0 < top_k < len(scores):
        edge = np.sort(np.where(inside, scores, -np.inf))[::-1][top_k - 1]
        inside &= scores >= edge - slack
    if params.get("top_p", 1.0) < 1:
        masses = np.where(inside, np.exp(scores - best), 0.0)
        masses /= max(masses.sum(), 1e-300)
        order = np.argsort(-scores, kind="stable")
        before = np.concatenate(([0.0], np.cumsum(masses[order])))
        ranks = np.searchsorted(-scores[order], -(scores + slack), side="left" if slack >= 0 else "right")
        if slack == 0:
            ranks = np.argsort(order, kind="stable")
        ahead = before[ranks] - (masses if slack < 0 else 0.0)
        inside &= ahead < params["top_p"] + slack
    return _typical(scores, inside, params.get("typical_p", 1.0), slack)


def _typical(scores: Row, inside: Kept, mass: float, slack: float) -> Kept:
    """Of the tokens inside those nearest to the entropy that make up the mass.

    With slack, how near a token is moves too: by what a score moves, twice, and by what the entropy does.
    """
    if mass >= 1:
        return inside
    chances = np.where(inside, np.exp(scores - scores.max()), 0.0)
    chances /= max(chances.sum(), 1e-300)
    logs = np.log(np.where(chances > 0, chances, 1.0))
    off = np.where(chances > 0, np.abs(logs - chances @ logs), np.inf)
    play = 8 * slack  # of the order of the entropy in nats, and more than two scores can move
    before = np.array([chances[off < one - (play or 1e-12)].sum() for one in off])
    return inside & (before < mass + slack)


def judge(
    token: int, logits: Row, params: Mapping[str, Any], prompt: Seq[int], output: Seq[int], ends: Collection[int]
) -> str:
    """SAME, TIE or DIFFERENT: `token` after `prompt` and `output` against what these logits [V] lead to."""
    row = edited(logits, params, prompt, output, ends)
    factor = params.get("repetition_penalty", 1.0)
    slack = SLACK * max(factor, 1 / factor)
    temperature = params.get("temperature", 0.0)
    if not temperature:
        return SAME if token == int(np.argmax(row)) else TIE if row[token] >= row.max() - slack else DIFFERENT
    scores, slack = row / temperature, slack / temperature
    times = np.log(-np.log(noise(params["seed"], len(prompt) + len(output), len(row)))) - scores
    if token == int(np.argmin(np.where(kept(scores, params, 0.0), times, np.inf))):
        return SAME
    surely = kept(scores, params, -slack)
    leader = np.min(np.where(surely, times, np.inf))
    return TIE if kept(scores, params, slack)[token] and times[token] <= leader + slack else DIFFERENT
