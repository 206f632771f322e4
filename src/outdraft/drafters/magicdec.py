"""MagicDec: the whole target drafts over a view of a fixed number of its own keys and values; all of them verify.

    draft       pending -> [target over the view] -> t1 -> t2 ...           verify: [target over the whole text]
    streaming   [ sinks | ................. | window ]   the first few rows and the last: Xiao et al. 2023,
                                                         https://arxiv.org/abs/2309.17453
    snapkv      [ ..#....##.......#........ | window ]   what the window's queries look at most, each head for itself:
                                                         Li et al. 2024, https://arxiv.org/abs/2404.14469

Sadhukhan et al., "MagicDec: breaking the latency-throughput tradeoff for long context generation with speculative
decoding", 2024, https://arxiv.org/abs/2408.11049. Data in: sequences; data out: chains with the distributions they were
drawn from (none at temperature 0).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.own_layers.sparse_view import SparseViews, last_queries
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

_POOL = 7  # neighbours that a row's score is averaged over, so that what stands together stays together


def streaming_rows(length: int, sinks: int, budget: int, device: torch.device) -> Tensor:
    """Row numbers [min(budget, length)]."""
    window = torch.arange(max(min(sinks, budget), length - budget + sinks), length, device=device)
    return torch.cat([torch.arange(min(sinks, length), device=device), window])


def snapkv_rows(keys: Tensor, queries: Tensor, budget: int) -> Tensor:
    """Row numbers [Hkv, budget]: the last w, which the queries [w, H, d] belong to, and the best of those before."""
    kv_heads, length, width = keys.shape
    count = queries.shape[0]
    grouped = queries.to(keys.dtype).transpose(0, 1).reshape(kv_heads, -1, width)  # [Hkv, H / Hkv * w, d]
    scores = (grouped @ keys.transpose(1, 2)).float() * width**-0.5  # [Hkv, H / Hkv * w, n]
    place = torch.arange(length, device=keys.device)
    own = torch.arange(length - count, length, device=keys.device).repeat(grouped.shape[1] // count)
    scores = scores.masked_fill(place[None, None] > own[None, :, None], -torch.inf)
    attention = scores.softmax(-1).sum(1)[:, : length - count]  # [Hkv, n - w]
    pooled = F.avg_pool1d(attention, _POOL, stride=1, padding=_POOL // 2, count_include_pad=False)
    best = pooled.topk(budget - count, dim=-1).indices.sort(-1).values
    window = torch.arange(length - count, length, device=keys.device).expand(kv_heads, -1)
    return torch.cat([best, window], 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MagicDecOptions(DrawOptions):
    """Which rows, how many. Raises `ConfigError` naming what is out of range."""

    # which rows the draft sees: "streaming", the first and the last ones; "snapkv", those that the last rows attend
    # to most
    select: Literal["streaming", "snapkv"] = "streaming"
    budget: int = 512  # how many rows of the text the draft sees
    sinks: int = 4  # how many rows at the beginning of the text "streaming" always keeps
    observe: int = 32  # how many of the last rows "snapkv" asks what they attend to
    refresh: int = 128  # after how many tokens the rows are chosen anew; until then the draft sees the new tokens too

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        if self.select not in ("streaming", "snapkv"):
            raise ConfigError(f"select={self.select!r}: it is 'streaming' or 'snapkv'")
        check_range(self, "sinks", least=0)
        check_range(self, "budget", "observe", "refresh", least=1)
        least = self.sinks if self.select == "streaming" else self.observe
        if self.budget <= least:
            name = "sinks" if self.select == "streaming" else "observe"
            raise ConfigError(f"budget={self.budget}, {name}={least}: the budget must hold more rows than {name}")


class MagicDecDrafter(PlainDrafter):
    """A view for each sequence, brought up to the text before each guess."""

    def __init__(self, options: MagicDecOptions, port: TargetPort) -> None:
        self.views = SparseViews(port)
        self._options = options
        self._port = port
        self._network = target_network(port)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Give each sequence a view that sees nothing yet."""
        for seq in seqs:
            self.views.add(seq)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Chains that the target's own network writes over the views, which are brought up to date first."""
        for seq, budget in zip(seqs, budgets, strict=True):
            if budget.depth > 0:
                self._bring_up(seq)
        return grow_own_chains(seqs, budgets, self._network, self.views.tentative, self._options)

    def _bring_up(self, seq: Sequence) -> None:
        options = self._options
        if not self.views.is_due(seq, options.budget, options.refresh):
            self.views.follow(seq)
        elif options.select == "snapkv" and seq.num_cached + options.observe <= seq.max_len:
            queries = last_queries(self._port, seq, options.observe)
            self.views.choose(seq, lambda layer, keys: snapkv_rows(keys, queries[layer], options.budget))
        else:
            rows = streaming_rows(seq.num_cached, options.sinks, options.budget, self._port.facts.device)
            self.views.choose(seq, lambda layer, keys: rows)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.views.free(seq)


METHOD = DrafterMethod(
    name="magicdec",
    summary="the whole target over a few of its keys: for long contexts in large batches",
    build=MagicDecDrafter,
    options=MagicDecOptions,
    paper=arxiv(
        "2408.11049",
        "MagicDec: breaking the latency-throughput tradeoff for long context generation with speculative decoding",
    ),
)
