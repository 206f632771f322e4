"""Logits to a distribution, once, in one place, for target and drafter alike.

The order: logit bias, masks (`sampling/masks.py`), penalties, temperature, min-p, top-k, top-p, typical
(`sampling/typical.py`). Greedy decoding is the one-hot distribution of the processed logits, so no rule needs to know
of temperature. A residual is never warped again.
Repetition penalty: Keskar et al., "CTRL", 2019, https://arxiv.org/abs/1909.05858: a token of prompt or output has a
positive logit divided and a negative one multiplied. Presence and frequency, as in the OpenAI API: a token of the
output loses a constant, and a constant times its count. A node's own path counts as text already written.
Min-p: Nguyen et al., "Turning up the heat", 2024, https://arxiv.org/abs/2407.01082. Top-p: Holtzman et al., "The
curious case of neural text degeneration", 2019, https://arxiv.org/abs/1904.09751.
"""

from collections import Counter
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import HostTree
from outdraft.core.sequence import Sequence
from outdraft.kernels.decoder.distributions import Warp, warp_rows
from outdraft.options.errors import NumericsError, RequestError
from outdraft.options.params import SamplingParams
from outdraft.sampling.masks import mask_rows
from outdraft.sampling.typical import typical_rows


def penalise(seq: Sequence, logits: Tensor, path: list[int]) -> None:
    """Change one row `logits` [V] in place; `path`: the draft tokens between `seq.tokens` and this row's prediction."""
    params = seq.request.params
    counts: Counter[int] = seq.output_counts
    if path:
        counts = counts + Counter(path)
    if params.repetition_penalty != 1.0:
        present = seq.prompt_ids | counts.keys()
        ids = torch.tensor(sorted(present), dtype=torch.long, device=logits.device)
        chosen = logits[ids]
        factor = params.repetition_penalty
        logits[ids] = torch.where(chosen > 0, chosen / factor, chosen * factor)
    if counts and (params.presence_penalty or params.frequency_penalty):
        ids = torch.tensor(list(counts), dtype=torch.long, device=logits.device)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
        logits[ids] -= params.presence_penalty + params.frequency_penalty * times


def warp_nodes(
    seq: Sequence, logits: Tensor, paths: Seq[list[int]] | None = None, *, soft: bool = False, guesses: bool = False
) -> Tensor:
    """The distributions [n, V] that rows `logits` [n, V] stand for.

    `paths[i]`: draft tokens between `seq.tokens` and what row i predicts (empty at the pending node); needed only
    where `seq.depends_on_history`. `soft`: a greedy request's distribution at temperature 1 instead of the one-hot
    one, for lossy rules that ask how probable a token is. `guesses`: the logits are a drafter's, which may have none of
    the tokens that masks leave; then it draws from its unmasked distribution, and the target will refuse.

    Raises `NumericsError` on NaN or infinite logits (-inf is a mask, and fine); on a GPU, where looking would make the
    host wait, their distribution has no finite sum instead, and the rule that judges it raises.
    """
    params = seq.request.params
    logits = logits.to(torch.float32) if logits.dtype in (torch.bfloat16, torch.float16) else logits
    warp = warp_of(params)
    one_hot = params.greedy and not soft
    if not one_hot and not seq.edits_logits and (distribution := warp_rows(logits, warp)) is not None:
        return typical_rows(distribution, params.typical_p) if params.typical_p < 1 else distribution
    # One reduction finds NaN and +inf at once: the maximum of a row carries either.
    best = logits.amax(-1)
    if best.device.type == "cpu" and not bool(torch.isfinite(best).all()):
        row = int((~torch.isfinite(best)).nonzero()[0])
        raise NumericsError(
            f"sequence {seq.id}: logits of row {row} hold {float(best[row])} as their largest value at position "
            f"{len(seq.tokens)}: the weights are damaged, or overflow in their number format (try dtype float32)"
        )
    if seq.edits_logits:
        logits = edit_nodes(seq, logits, paths, guesses=guesses)
        best = logits.amax(-1)
    if one_hot:
        if best.device.type != "cpu":
            return poisoned_one_hot(logits, best)
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    if (distribution := warp_rows(logits, warp)) is None:
        distribution = torch.softmax(logits if warp.temperature == 1.0 else logits / warp.temperature, -1)
        distribution = _truncate(distribution, warp) if warp.truncates else distribution
    return typical_rows(distribution, params.typical_p) if params.typical_p < 1 else distribution


def warp_of(params: SamplingParams) -> Warp:
    """What makes a distribution of adjusted logits, but for `typical_p`, which the kernels do not know; of a greedy
    request the distribution at temperature 1."""
    return Warp(
        temperature=1.0 if params.greedy else params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
    )


def poisoned_one_hot(logits: Tensor, largest: Tensor) -> Tensor:
    """The greedy distribution [n, V] of logits that were not checked: NaN in place of 1 where `largest` [n] is not
    finite."""
    one = torch.where(largest.isfinite(), 1.0, torch.nan).to(logits)
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), one[:, None])


def tree_paths(tree: HostTree) -> list[list[int]]:
    """Draft tokens from below the pending node to each node, itself included."""
    paths: list[list[int]] = [[]]
    for node in range(1, len(tree.tokens)):
        paths.append([*paths[tree.parents[node]], tree.tokens[node]])
    return paths


def edit_nodes(seq: Sequence, raw: Tensor, paths: Seq[list[int]] | None, *, guesses: bool) -> Tensor:
    """Rows `raw` [n, V] after biases, masks and penalties; behind draft tokens raw rows where those leave no token.

    Such a node stands behind a token that may not come, so that no rule asks, or at an end without a way out: what is
    drawn there is not emitted (`decode/commit.py`), and plain decoding comes there and raises. Raises `RequestError`
    where no token may follow the output, unless they are `guesses`, whose rows are raw there too.
    """
    edited = adjust(seq, raw, paths)
    best = edited.amax(-1)
    is_sound = best.isfinite()
    if best.device.type == "cpu" and bool(is_sound.all()):
        return edited
    is_drafted = torch.tensor([guesses or bool(paths and paths[i]) for i in range(len(raw))], device=raw.device)
    if best.device.type == "cpu" and not bool((is_sound | is_drafted).all()):
        raise RequestError(
            f"logit_bias, penalties and what is masked leave no token to choose at position {len(seq.tokens)}: the "
            f"largest logit is {float(best[~(is_sound | is_drafted)][0])} after them; weaken or leave out one of them"
        )
    return torch.where((is_sound | ~is_drafted)[:, None], edited, raw)


def adjust(seq: Sequence, logits: Tensor, paths: Seq[list[int]] | None) -> Tensor:
    """Bias, masks and penalties: rows [n, V] -> [n, V], the same tensor if there are none."""
    params = seq.request.params
    if not seq.edits_logits:
        return logits
    logits = logits.clone()
    if params.logit_bias:
        ids, biases = _biases(seq, logits)
        logits[:, ids] += biases.to(logits)
    mask_rows(seq, logits, paths)
    if params.penalises:
        for i, row in enumerate(logits):
            path = paths[i] if paths is not None else []
            penalise(seq, row, path)
    return logits


def _biases(seq: Sequence, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Ids [n] and what is added to their logits [n]; made once, since there may be many."""
    given, device = seq.request.params.logit_bias, logits.device

    def make() -> tuple[Tensor, Tensor]:
        ids = torch.tensor(list(given), dtype=torch.long, device=device)
        return ids, torch.tensor(list(given.values()), dtype=torch.float64, device=device)

    return seq.request.once.of(("biases", device), make)


def processed_logits(seq: Sequence, logits: Tensor, distribution: Tensor) -> Tensor:
    """[V] logits after all that was done to them: what `distribution` [V], of the token that comes next, is made of.

    Tokens that masks, min-p, top-k, top-p and typical-p leave out have -inf; a greedy request has masks alone, and no
    temperature.
    """
    params = seq.request.params
    wide = logits.to(distribution.dtype)
    edited = adjust(seq, wide[None], None)[0]
    if params.greedy:
        return edited
    edited = edited / params.temperature
    truncates = warp_of(params).truncates or params.typical_p < 1
    return edited.masked_fill(distribution == 0, -torch.inf) if truncates else edited


def _truncate(distribution: Tensor, warp: Warp) -> Tensor:
    """Zero what min-p, top-k and top-p leave out, and renormalise. Ties at the edge of top-k all stay."""
    if warp.min_p:
        distribution = distribution.masked_fill(distribution < warp.min_p * distribution.amax(-1, keepdim=True), 0.0)
    if warp.top_k and warp.top_k < distribution.shape[-1]:
        edge = distribution.topk(warp.top_k, -1).values[..., -1:]
        distribution = distribution.masked_fill(distribution < edge, 0.0)
    if warp.top_p < 1:
        distribution = distribution / distribution.sum(-1, keepdim=True)
        ordered, index = torch.sort(distribution, dim=-1, descending=True, stable=True)
        outside = ordered.cumsum(-1) - ordered >= warp.top_p  # the mass before it already suffices
        distribution = distribution.masked_fill(outside.gather(-1, index.argsort(-1)), 0.0)
    return distribution / distribution.sum(-1, keepdim=True)
