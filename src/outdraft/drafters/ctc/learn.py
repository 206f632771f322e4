"""Train the CTC network on a frozen target: whatever alignment of its slots spells the text's next tokens is right.

Wen et al., "Speculative decoding with CTC-based draft model", 2024, https://arxiv.org/abs/2412.00061.

    row r    reads the state of row r and token r + 1; its slots are to spell tokens r + 2 .. r + 1 + num_tokens,
             in a part of the vocabulary those before the first one that is outside it

The loss is the kind's own, and the only one. To it may be added, as the paper's code does, what EAGLE's layer learns
by, on the layer's output g_r below the slots: its smooth L1 distance to the target's state at row r + 1, and the soft
cross-entropy of the target's head on g_r to the target's distribution there.

What is promised is the chain of each slot's best token, collapsed: a guess of depth d is that one token, or there is
none. While it learns, that chain is not asked for, and none is made.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from outdraft.core.learner import OWN, Beside, Guess, Lesson, Outlook
from outdraft.drafters.ctc.net import CtcNet
from outdraft.drafters.shared.heads.files import save_heads
from outdraft.drafters.shared.heads.layers import stem_sizes
from outdraft.drafters.shared.heads.learn import choose_projected, last_states, learn_heads, rows_ahead, stem_outputs
from outdraft.drafters.shared.learning.states import smooth_l1
from outdraft.learn.losses import logs, soft_cross_entropy
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

_CHUNK = 1 << 22  # logits that are held at once
_SURE = 1e4  # logit of the one token of a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcLearning:
    """How many slots spell how many tokens, and what is learned beside. The published code's weights: 100 and 10."""

    num_slots: int = 6
    num_tokens: int = 3  # that the slots are to spell
    feature_weight: float = 0.0  # of the layer's distance to the target's next state, against 1 of the slots' spelling
    soft_weight: float = 0.0  # of the layer's soft cross-entropy to the target's next distribution
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training
    draft_vocab_size: int = 0  # of the target's tokens the most frequent in the texts; 0: all

    def __post_init__(self) -> None:
        check_range(self, "num_slots", "num_tokens", least=1, most=64)
        check_range(self, "draft_vocab_size", least=0)
        check_range(self, "noise", "feature_weight", "soft_weight", least=0.0)
        _require_room(self.num_slots, self.num_tokens)


def _require_room(num_slots: int, num_tokens: int) -> None:
    """Raise `ConfigError` unless so many slots can spell every text of so many tokens."""
    if num_slots < 2 * num_tokens - 1:
        raise ConfigError(
            f"num_slots={num_slots} cannot spell num_tokens={num_tokens} equal tokens, which need blanks between them: "
            f"take at least {2 * num_tokens - 1} slots, or num_tokens={(num_slots + 1) // 2}"
        )


class CtcLearner:
    """The network under its frozen target."""

    def __init__(self, net: CtcNet, target: Decoder, options: CtcLearning) -> None:
        _require_room(net.config.num_heads, options.num_tokens)
        self.module, self.taps = net, (int(net.config.tap),)
        self._target, self._options = target, options

    def look(self, lesson: Lesson) -> Outlook:
        """In training the loss alone; in an exam the chain that would be drafted at every row."""
        net = self.module
        count, width = net.config.num_heads, net.config.hidden_size
        h, stem = last_states(self._target, lesson, net.config, self._options.noise), net.stem
        g = h if stem is None else stem_outputs(stem, h, lesson, self._target)  # [B * T, D]
        slots = net.finish(g).view(-1, count, width)  # [B * T, S, D]
        own = (self._loss(g, slots, lesson),) if torch.is_grad_enabled() else ()
        if lesson.moment is not None:
            return Outlook(guesses=(), beside=own)
        with torch.no_grad():
            chains = self._chains(slots)  # [B * T, S], -1 behind the end
        guesses = []
        for ahead in range(1, count + 1):
            source, rows = rows_ahead(lesson, ahead)
            chosen = chains[source, ahead - 1]
            there = chosen >= 0
            states = chosen[there, None].float()
            guesses.append(Guess(states=states, head=self._says, rows=rows[there], weight=0.0))
        return Outlook(guesses=guesses, beside=own)

    def _says(self, chosen: Tensor) -> Tensor:
        """All mass on the one token that is guessed: [n, 1] -> [n, V]."""
        logits = chosen.new_zeros(len(chosen), self.module.config.vocab_size)
        return logits.scatter(1, chosen.long(), _SURE)

    def _chains(self, slots: Tensor) -> Tensor:
        """What each row's best alignment spells: [N, S, D] -> [N, S], -1 behind the end."""
        net, size = self.module, max(1, _CHUNK // (self.module.blank + 1))
        best = torch.cat([net.logits(part).argmax(-1) for part in torch.split(slots.flatten(0, 1), size)])
        best = best.view(slots.shape[:2])
        keep = best != net.blank
        keep[:, 1:] &= best[:, 1:] != best[:, :-1]
        place = torch.where(keep, keep.cumsum(1) - 1, best.shape[1])  # what is dropped goes behind the end
        chains = best.new_full((len(best), best.shape[1] + 1), -1)
        return chains.scatter(1, place, net.tokens_of(best.where(keep, 0)))[:, :-1]

    def _loss(self, g: Tensor, slots: Tensor, lesson: Lesson) -> Beside:
        """-log P(the next tokens), a token, of each row whose first one counts; and what the layer learns by."""
        (batch, length), documents = lesson.shape, lesson.documents
        counts = lesson.counts.view(batch, length)
        first = torch.zeros_like(counts)
        first[:, :-1] = counts[:, 1:] & (documents[:, 1:-1] == documents[:, :-2])
        asked = first.flatten().nonzero()[:, 0]
        values, most = [slots[:0].sum((1, 2)).float()], self._options.num_tokens
        if not len(asked):
            return Beside(name=OWN, values=values[0], rows=asked)
        wanted, lengths = self._sayable(*next_tokens(lesson, asked, most))

        def nats(own: Tensor, tokens: Tensor, counts: Tensor, layer: Tensor, rows: Tensor) -> Tensor:
            logits = self.module.logits(own.flatten(0, 1))
            log_probs = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
            log_probs = log_probs.view(*own.shape[:2], -1).transpose(0, 1)  # [S, n, V + 1]
            spelled = torch.full((len(own),), own.shape[1], device=own.device)
            found = F.ctc_loss(log_probs, tokens, spelled, counts, blank=self.module.blank, reduction="none")
            return found / counts.clamp_min(1) + self._of_layer(layer, lesson, rows)

        size = max(1, _CHUNK // (slots.shape[1] * (self.module.blank + 1)))
        with torch.autocast(slots.device.type, enabled=False):
            own = slots.float() if self.module.projections[0].weight.dtype == torch.float32 else slots
            for part in torch.split(torch.arange(len(asked), device=slots.device), size):
                rows = asked[part]
                given = own[rows], wanted[part], lengths[part], g[rows], rows + 1
                values.append(checkpoint(nats, *given, use_reentrant=False))
        return Beside(name=OWN, values=torch.cat(values), rows=asked + 1)

    def _sayable(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Columns [n, m] of these tokens, and how many of them [n] stand before the first one that has none."""
        vocab = self.module.vocab
        if vocab is None:
            return tokens, lengths
        columns = vocab.new_full((self.module.config.vocab_size,), -1)
        columns[vocab] = torch.arange(len(vocab), device=vocab.device)
        found = columns[tokens]
        return found.clamp_min(0), lengths.minimum((found >= 0).cumprod(1).sum(1))

    def _of_layer(self, g: Tensor, lesson: Lesson, rows: Tensor) -> Tensor | float:
        """What the layer's outputs [n, D] learn by, against the target's states of these rows [n]: [n]."""
        target, options, scale = self._target, self._options, self.module.config.scale
        true = target.norm(lesson.states[rows]).detach()
        found: Tensor | float = 0.0
        if options.feature_weight:
            found = found + options.feature_weight * smooth_l1(g, true * scale)
        if options.soft_weight:
            log_p, log_q = logs(target.head(true)), logs(target.head((g / scale).to(true.dtype)))
            found = found + options.soft_weight * soft_cross_entropy(log_p, log_q, rows)
        return found

    def choose_vocab(self, counts: Tensor) -> None:
        """Spell the tokens that the texts ask for most often, if not all: counts [V]."""
        choose_projected(self.module, self._target, counts)

    def save(self, directory: Path) -> None:
        save_heads(self.module, directory, self._target.dtype)


def next_tokens(lesson: Lesson, asked: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The tokens behind the pending one of rows [N]: [N, most], and how many of them are of the same document."""
    batch, width = lesson.ids.shape
    start = asked // (width - 1) * width + asked % (width - 1)  # the row's own token among the ids
    places = start[:, None] + 2 + torch.arange(most, device=asked.device)
    inside = start[:, None] // width == places // width  # of the same sequence
    places = places.clamp_max(batch * width - 1)
    documents = lesson.documents.flatten()
    inside &= documents[places] == documents[start][:, None]
    return lesson.ids.flatten()[places], inside.sum(1)


LEARN = learn_heads(
    CtcNet,
    CtcLearning,
    lambda options, known: {"num_heads": options.num_slots, **stem_sizes(known, 1)},
    lambda net, target, options, seed, directory: CtcLearner(net, target, options),
    summary="slots over the vocabulary and a blank that are to spell the next tokens",
    drafts={"width": 1},
    loss={},
)
