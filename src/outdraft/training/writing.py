"""A draft in training writes text itself, for rows on its own policy and for windows to reward.

Data in: a decoder of the target's vocabulary, the beginnings of texts, uniforms. Data out: ids. What is written is a
function of the weights and the uniforms, so a run that is resumed writes the same.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.cache.static import StaticCache
from outdraft.core.learner import Learner
from outdraft.models.networks.base import Decoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import ConfigError


def require_writer(learner: Learner, vocab_size: int, what: str) -> Decoder:
    """The decoder that a learner trains. Raises `ConfigError` where it writes no text itself. `what`: asks for it."""
    draft = learner.module
    if not isinstance(draft, Decoder) or draft.config.vocab_size != vocab_size:
        raise ConfigError(
            f"{what} needs a draft that writes texts by itself in the target's vocabulary: a draft model; this kind "
            "drafts from the target's states, or in a vocabulary of its own"
        )
    return draft


@torch.no_grad()
def write_on(draft: Decoder, beginnings: Seq[Tensor], uniforms: Seq[Tensor], *, ends: bool = True) -> list[Tensor]:
    """Sampled at temperature 1 behind each beginning [n_i] of ids: as many tokens as it has uniforms in 0..1.

    `ends`: an end token is the last one, whatever uniforms are left. Returns ids [m_i], m_i <= len(uniforms[i]).
    """
    known, device = draft.config, draft.device
    cache = StaticCache(known.num_layers, known.num_kv_heads, known.head_dim, draft.dtype, str(device), known.max_len)
    written: list[list[int]] = [[] for _ in beginnings]
    fed = [one.tolist() for one in beginnings]
    alive = [i for i, some in enumerate(uniforms) if len(some)]
    for i in alive:
        cache.add(i)
    while alive:
        segments: list[Segment] = []
        ids: list[int] = []
        places: list[int] = []
        for i in alive:
            base = cache.length(i)
            cache.reserve(i, len(fed[i]))
            segments.append(Segment(seq=i, start=len(ids), stop=len(ids) + len(fed[i]), base=base))
            ids += fed[i]
            places += range(base, base + len(fed[i]))
        where = torch.tensor(places, device=device)
        with torch.autocast(device.type, enabled=False):
            context = CachedContext(cache, segments, exact=False)
            states = draft.run(draft.embed(torch.tensor(ids, device=device), where), where, context).hidden
            logits = draft.logits(states[[one.stop - 1 for one in segments]])  # [n, V]
        edges = logits.double().softmax(-1).cumsum(-1)
        coins = torch.stack([uniforms[i][len(written[i])].double() for i in alive]).to(device)
        drawn = torch.searchsorted(edges, (coins * edges[:, -1])[:, None], right=True)[:, 0]
        for i, token in zip(alive, drawn.clamp_max(logits.shape[-1] - 1).tolist(), strict=True):
            cache.commit(i, list(range(len(fed[i]))))
            written[i].append(token)
            fed[i] = [token]
        over = set(known.eos_ids) if ends else set()
        alive = [i for i in alive if len(written[i]) < len(uniforms[i]) and written[i][-1] not in over]
    return [torch.tensor(one, dtype=torch.long) for one in written]
