"""Table models and the drafts they make: distributions small enough that everything about them can be known exactly.

A table gives the next token's distribution from the last few tokens. `drafts_from` turns a table into a drafter
function for a given tree: children drawn without replacement from the table's distribution, or its most probable
tokens, deterministically.

    parents (-1, 0, 1, 2) a chain of three      (-1, 0, 0, 1, 1) two children of the root, two of the first child
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.core.draft import Draft, host_tree
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.warp import tree_paths

Distribution = Callable[[Seq[int]], Tensor]  # all tokens so far -> [V] float64
DraftFunction = Callable[[Seq[int], DraftCoins], Draft]  # all tokens so far, pending included -> a guess


@dataclass(frozen=True, slots=True)
class Table:
    """The distribution of the next token given the last `order` ones (missing ones count as token 0)."""

    rows: Tensor  # [V ** order, V] float64, each a distribution
    order: int

    @property
    def vocab_size(self) -> int:
        return self.rows.shape[1]

    def __call__(self, tokens: Seq[int]) -> Tensor:
        return self.rows[context_index(tokens, self.order, self.vocab_size)]


def context_index(tokens: Seq[int], order: int, vocab_size: int) -> int:
    """The last `order` tokens as one number."""
    index = 0
    for token in tokens[-order:] if order else ():
        index = index * vocab_size + token
    return index


def random_table(vocab_size: int, order: int, seed: int, *, spread: float = 1.0, top_k: int = 0) -> Table:
    """Rows at random: `spread` 1 is uniform over all distributions, larger is more peaked. `top_k`: keep only the best
    k."""
    noise = torch.rand(
        vocab_size**order, vocab_size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    rows = noise.clamp_(min=1e-12).log_().neg_().pow_(spread)
    if top_k:
        rows[rows < rows.topk(top_k, -1).values[:, -1:]] = 0
    return Table(rows / rows.sum(-1, keepdim=True), order)


def blend(a: Table, b: Table, share: float) -> Table:
    """`share` of a, the rest of b: a drafter that knows its target more or less well."""
    return Table(share * a.rows + (1 - share) * b.rows, a.order)


def drafts_from(
    distribution: Distribution, parents: Seq[int], *, sampled: bool = True, keep_q: bool | None = None
) -> DraftFunction:
    """Grow the tree `parents` (parents[0] = -1) below the pending token.

    A node whose parent has no mass left for it is left out, with all below it. `keep_q`: whether the draft says what it
    was drawn from; by default it does if it is sampled. (The other two combinations are for planting faults.)
    """
    wanted: list[list[int]] = [[j for j, parent in enumerate(parents) if parent == i] for i in range(len(parents))]

    def propose(tokens: Seq[int], coins: DraftCoins) -> Draft:
        ids, above, paths, made = [tokens[-1]], [-1], [list(tokens)], {0: 0}  # made: wanted node -> real node
        for node, children in enumerate(wanted):
            if node not in made or not children:
                continue
            here = made[node]
            q = distribution(paths[here])
            if sampled:
                drawn = coins.draw(q, len(paths[here]) - len(tokens), here, len(children))
            else:
                drawn = [int(token) for token in q.topk(min(len(children), len(q))).indices]
            for child, token in zip(children, drawn, strict=False):
                made[child] = len(ids)
                ids.append(token)
                above.append(here)
                paths.append([*paths[here], token])
        distributions = (
            torch.stack([distribution(path) for path in paths]) if (sampled if keep_q is None else keep_q) else None
        )
        return Draft(tokens=torch.tensor(ids), parents=torch.tensor(above), q=distributions)

    return propose


def one_sequence(
    tokens: Seq[int], *, seed: int = 0, coupled: bool = False, temperature: float = 1.0, id: int = 0, **params: Any
) -> Sequence:
    """A sequence in mid-decoding: everything but the last token is cached. `params`: further sampling settings."""
    return Sequence(
        id=id,
        request=Request(
            prompt_token_ids=(tokens[0],), params=SamplingParams(temperature=temperature, max_tokens=1 << 30, **params)
        ),
        tokens=list(tokens),
        prompt_len=1,
        max_len=1 << 30,
        seed=seed,
        coupled=coupled,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
        num_cached=len(tokens) - 1,
    )


def score(target: Distribution, seqs: Seq[Sequence], drafts: Seq[Draft]) -> tuple[PackedDrafts, Tensor]:
    """One pass of a table target: the packed drafts and p [M, V]."""
    packed = pack(seqs, drafts)
    distributions = []
    for seq, draft in zip(seqs, drafts, strict=True):
        distributions += [target([*seq.tokens, *path]) for path in tree_paths(host_tree(draft))]
    return packed, torch.stack(distributions)
