"""LiLiCorr's head: a small network over the best candidates of all slots says which candidates of neighbours match.

    node (slot s, candidate c)    x = T e_c + P h_s + MLP(log p, p, log p - best, rank, is best) + E[s] + E[rank]
    all nodes of a block          x += attention(norm(x)) with a bias for the distance of slots      x += MLP(norm(x))
    context of the last row       a = norm(C context)
    factors                       f = silu(W [x; a; x * a])      out = unit(O f)     in = unit(I f)

    anchor --- unit(A a) . in_1(c) ---> c --- out_1(c) . in_2(c') ---> c' ---> ...        times `logit_scale`

The factors alone decide: a slot's token is chosen by the softmax over its candidates. LiLiCorr, NVIDIA, 2026,
https://arxiv.org/abs/2608.20530. n blocks, S slots behind the anchor's, k candidates of each, L = S k nodes, H heads.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from outdraft.core.learner import Beside
from outdraft.drafters.shared.blocks.correction import Correction, Embed, Scores, unfilled, weighed
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.nn.linear import Linear
from outdraft.nn.norm import LayerNorm, RMSNorm
from outdraft.nn.scores import attention

_FEATURES = 5  # of a candidate: log p, p, log p less the best, rank, whether it is the best
_FEATURE_EPS = 1e-5
_SHARE = 0.25  # of the loss of factors, beside that of slots


@dataclass(frozen=True, slots=True, kw_only=True)
class LilicorrSizes:
    """As config.json spells them."""

    lilicorr_candidate_topk: int = 8  # k
    lilicorr_hidden_size: int = 0  # of nodes; 0: that of the network
    lilicorr_num_layers: int = 2
    lilicorr_num_heads: int = 8
    lilicorr_mlp_ratio: float = 2.0  # of a layer's inner width
    lilicorr_factor_dim: int = 1024
    lilicorr_vector_eps: float = 1e-4  # a shorter vector is not stretched to a unit
    lilicorr_logit_scale: float = 8.0
    conv_kernel_size: int = 0  # rows of a block that a convolution around a sublayer reads; 0: there is none
    conv_group_size: int = 0  # channels that share a moving kernel


class NodeLayer(nn.Module):
    """Every node sees every node of its block."""

    def __init__(self, width: int, inner: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.attn_norm, self.mlp_norm = (RMSNorm(width, eps, dtype, device) for _ in range(2))
        self.qkv, self.out = Linear(width, 3 * width, True, dtype, device), Linear(width, width, True, dtype, device)
        self.up, self.down = Linear(width, inner, True, dtype, device), Linear(inner, width, True, dtype, device)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """[n * L, D], [H, L, L] -> [n * L, D]."""
        heads, length = bias.shape[:2]
        parts = self.qkv(self.attn_norm(x)).view(len(x) // length, length, 3, heads, x.shape[-1] // heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # [n, H, L, d] each
        mixed = attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=bias.to(q.dtype))
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        added: Tensor = x + self.down(F.silu(self.up(self.mlp_norm(x))))
        return added


class CandidateChain(Correction):
    """Of these sizes, behind this backbone, whose anchor's slot guesses nothing."""

    reads_all = reads_scores = True
    learns_scores = False

    def __init__(self, config: BlockConfig, own: LilicorrSizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        wide, eps = config.layers.hidden_size, config.layers.norm_eps
        width, slots = own.lilicorr_hidden_size or wide, config.depth
        heads, factors = own.lilicorr_num_heads, own.lilicorr_factor_dim
        self.top = min(own.lilicorr_candidate_topk, config.layers.vocab_size)
        self.scale, self.eps = own.lilicorr_logit_scale, own.lilicorr_vector_eps

        def linear(num_in: int, num_out: int) -> Linear:
            return Linear(num_in, num_out, True, dtype, device)

        empty = partial(unfilled, dtype=dtype, device=device)
        self.token = None if width == wide else linear(wide, width)  # T
        self.state, self.context = linear(wide, width), linear(wide, width)  # P, C
        self.feature_norm = LayerNorm(_FEATURES, _FEATURE_EPS, dtype, device)
        self.feature_weight, self.feature_bias = empty(width, _FEATURES), empty(width)  # too narrow to be rounded
        self.feature_down = linear(width, width)
        self.slot_embedding = empty(1, 1, slots, 1, width)
        self.rank_embedding = empty(1, 1, 1, own.lilicorr_candidate_topk, width)
        self.slot_bias, self.same_bias = empty(heads, 2 * config.block_size - 1), empty(heads)
        inner = int(width * own.lilicorr_mlp_ratio)
        self.layers = nn.ModuleList(NodeLayer(width, inner, eps, dtype, device) for _ in range(own.lilicorr_num_layers))
        self.norm, self.context_norm = (RMSNorm(width, eps, dtype, device) for _ in range(2))
        self.mix = linear(3 * width, width)  # W
        self.leaving, self.entering, self.starting = (linear(width, factors) for _ in range(3))  # O, I, A
        self.embeds = frozenset(("token.weight", "context.weight"))
        self.reads = dict.fromkeys(("state.weight", *self.embeds), slice(0, wide))

    def known(self, h: Tensor, scores: Tensor, context: Tensor, embed: Embed) -> Tensor:
        """[n, b, D], [n, S, V], [n, D] -> ids of the candidates, and log factors from each to each of the next slot's:
        [n, S, k + k * k], in at least float32. All candidates of the slot before the first stand for the anchor.
        """
        best = scores.topk(self.top, -1).indices
        log_p = scores.to(self._wide(h)).log_softmax(-1).gather(-1, best)  # [n, S, k]
        x = self._nodes(h[:, -scores.shape[1] :].flatten(0, 1), embed(best).flatten(0, 2), log_p)
        for layer in self.layers:
            x = layer(x, self._bias(scores.shape[1]))
        there = (context != 0).any(-1, keepdim=True)
        a = self.context_norm(self.context(context) * there)  # [n, D]
        x, each = self.norm(x), a.repeat_interleave(scores.shape[1] * self.top, 0)
        f = F.silu(self.mix(torch.cat((x, each, x * each), -1)))
        made = self._unit(torch.stack((self.leaving(f), self.entering(f))))
        leaving, entering = made.view(2, *log_p.shape, made.shape[-1])  # [n, S, k, F] each
        begins = self._unit(self.starting(a))[:, None, None].expand(-1, 1, self.top, -1)  # [n, 1, k, F]
        factors = self.scale * torch.cat((begins, leaving[:, :-1]), 1) @ entering.transpose(-1, -2)  # [n, S, k, k]
        return torch.cat((best.to(factors), factors.flatten(2)), -1)

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """What is known [n, S, k + k * k], tokens [n, m] -> ids and log factors of a slot's candidates [n, m, 2 k]."""
        factors = self._behind(h, before[:, 2:])
        found = torch.cat((h[:, : factors.shape[1], : self.top], factors), -1)
        return torch.cat((found[:, :1], found), 1)  # the anchor's slot guesses nothing

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """[n, V], [n, D], [n, 2 k] -> [n, V], -inf but for the candidates."""
        ids, factors = summary.chunk(2, -1)
        return torch.full_like(scores, -torch.inf, dtype=summary.dtype).scatter(-1, ids.long(), factors)

    def beside(
        self, scores: Scores, h: Tensor, before: Tensor, after: Tensor, rows: Tensor, weights: Tensor, known: Tensor
    ) -> Seq[Beside]:
        """Cross-entropy over a slot's candidates, behind the text's tokens, as long as these are candidates."""
        is_next = known[..., : self.top] == after[..., None]  # [n, S, k]
        reached, factors = is_next.any(-1).cumprod(1) > 0, self._behind(known, after[:, :-1])
        found = []
        for slot in range(after.shape[1]):
            kept = reached[:, slot] & (rows[:, slot] >= 0)
            place = is_next[kept, slot].int().argmax(-1)
            far = F.cross_entropy(factors[kept, slot].float(), place, reduction="none")
            found.append(weighed(_SHARE * far, rows[kept, slot], weights[kept, slot]))
        return found

    def _behind(self, known: Tensor, tokens: Tensor) -> Tensor:
        """Log factors [n, m + 1, k] of the first slots' candidates behind the anchor and tokens [n, m]: behind one that
        is no candidate, all are alike.
        """
        ids, count = known[..., : self.top], tokens.shape[1]
        factors = known[:, : count + 1, self.top :].reshape(len(known), count + 1, self.top, self.top)
        is_before = ids[:, :count] == tokens[..., None]  # [n, m, k]
        later = torch.where(is_before[..., None], factors[:, 1:], 0).sum(2)
        return torch.cat((factors[:, :1, 0], later), 1)

    def _nodes(self, h: Tensor, e: Tensor, log_p: Tensor) -> Tensor:
        """[n * S, D], [n * L, D], [n, S, k] -> [n * L, D']."""
        ranks = torch.arange(self.top, device=h.device).expand_as(log_p)
        told = (log_p, log_p.exp(), log_p - log_p[..., :1], ranks / max(1, self.top - 1), ranks == 0)
        features = self.feature_norm(torch.stack([one.to(h) for one in told], -1).flatten(0, 2))
        said = self.feature_down(F.silu(F.linear(features, self.feature_weight, self.feature_bias)))
        tokens = e if self.token is None else self.token(e)
        nodes: Tensor = tokens + self.state(h).repeat_interleave(self.top, 0) + said
        places = self.slot_embedding[0, :, : log_p.shape[1]] + self.rank_embedding[0, :, :, : self.top]  # [1, S, k, D']
        return (nodes.view(*log_p.shape, nodes.shape[-1]) + places).flatten(0, 2)

    def _bias(self, count: int) -> Tensor:
        """Of a node for another, by the distance of their slots, of so many: [H, L, L]."""
        slots = torch.arange(count, device=self.slot_bias.device).repeat_interleave(self.top)
        far = slots[:, None] - slots
        near: Tensor = self.slot_bias[:, far + self.slot_bias.shape[1] // 2]
        return near + self.same_bias[:, None, None] * (far == 0)

    def _unit(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors.to(self._wide(vectors)), dim=-1, eps=self.eps)

    def _wide(self, like: Tensor) -> torch.dtype:
        return torch.promote_types(like.dtype, torch.float32)
