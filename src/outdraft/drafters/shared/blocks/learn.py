"""Train a block network on a frozen target: blocks at random places of its texts, all of them in one pass.

    text      0 1 2 3 4 5 6 7 8           contexts of all rows, once
    blocks    [2 m m m]  [5 m m m]        each sees the rows before its anchor, and itself
    guesses    . 3 4 5    . 6 7 8         of depth d: the target's row a + d - 1 distributes the token
    a slot     counts as D-PACE says, or, k-th of its block, e^(-(k - 1) / gamma)

An exam takes a block at every row that counts. DFlash, Chen et al., 2026, https://arxiv.org/abs/2602.06036: anchors
where something is to be guessed, tokens between the anchor and a slot are the text's. D-PACE: as published in
speculators 0.9.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.learner import Guess, Lesson, Outlook
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet, within
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of, rows_inside
from outdraft.drafters.shared.features.learn import LayerLearning, begin, target_taps
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

_CHUNK = 1 << 24  # logits that are made at once where no gradient is asked for
_ALPHA = 0.5  # of D-PACE


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLearning(LayerLearning):
    """The network's shape, where blocks begin in training, and what their slots count. A size of 0 is the target's."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_layers: int = 2  # the paper's: 5
    block_size: int = 8
    mask_token_id: int = 0
    from_anchor: bool = False  # the anchor's own slot guesses the next token too
    window: int = 0  # committed rows that a block sees; 0: all
    qk_norm: bool = True
    anchors: int = 512  # blocks of a row of texts at most
    pace: bool = True  # D-PACE weights; False: a fixed decay
    gamma: float = 4.0  # of the fixed decay; the paper's: 4 at blocks of 8, 7 at 16

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "num_layers", least=1, most=32)
        check_range(self, "block_size", least=2, most=64)
        check_range(self, "mask_token_id", "window", least=0)
        check_range(self, "anchors", least=1, most=1 << 20)
        check_range(self, "gamma", least=0.1, most=1e6)


def decaying(count: int, gamma: float) -> list[float]:
    """Weights of `count` slots by a fixed decay."""
    return [exp(-k / gamma) for k in range(count)]


def paced(log_probs: Tensor, counts: Tensor) -> Tensor:
    """Log probabilities [n, S] of the text's tokens, and whether each counts -> D-PACE's weights [n, S].

    By what the block's verification would reach: w_j = sum over m >= j of q_1 ... q_m, where q_i is
    (1 - alpha) e^(-CE_i) + alpha: a slot behind an unlikely one counts less, and so do late ones.
    """
    chance = (1 - _ALPHA) * log_probs.exp() + _ALPHA
    reached = torch.where(counts, chance, torch.ones_like(chance)).cumprod(-1)
    return reached.flip(-1).cumsum(-1).flip(-1) * counts


class BlockLearner:
    """A network under a frozen target."""

    def __init__(self, net: BlockNet, target: Decoder, save: Callable[[Path], None], options: BlockLearning) -> None:
        self.module: nn.Module = net
        self.taps = net.config.taps
        self.net, self.target, self._save, self._options = net, target, save, options

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each slot that guesses, but for those that are shown what they should guess."""
        net, config, length = self.net, self.net.config, lesson.shape[1]
        anchors = chosen_rows(lesson, self._options.anchors)  # [n]
        context = net.fuse([lesson.taps[tap] for tap in self.taps])
        seen = PackedBlocks(
            net.keys(context, lesson.positions), documents_of(lesson, anchors), config.block_size, config.sight
        )
        ids = lesson.ids[:, :length].flatten()
        positions, none = lesson.positions[anchors], context[:0].repeat(config.block_size, 1)
        table = within(self.target.embed, self.target.config.max_len)

        def states(shown: Tensor | None = None) -> Tensor:  # [n, b, D]
            h = none
            if len(anchors):
                h = net.run(net.embed(ids[anchors], positions, table, shown=shown), positions, seen)
            return h.view(len(anchors), config.block_size, h.shape[-1])

        rows, inside = rows_inside(lesson, anchors, anchors, config.depth)
        shown = None if lesson.moment is None else self._shown(lesson, anchors, rows, inside, states)
        if shown is not None:
            inside = inside & (shown < 0)
        last = torch.where(positions[:, None] > 0, context[anchors - 1], torch.zeros_like(context[anchors]))
        return self._outlook(lesson, states(shown), last, rows, inside)

    def _shown(
        self, lesson: Lesson, anchors: Tensor, rows: Tensor, inside: Tensor, states: Callable[[], Tensor]
    ) -> Tensor | None:
        """The text's tokens that stand in slots behind the anchor's in training [n, b - 1]; -1: the mask does."""
        return None

    def _outlook(self, lesson: Lesson, h: Tensor, last: Tensor, rows: Tensor, inside: Tensor) -> Outlook:
        """Of states [n, b, D] of all slots, contexts [n, D] of the rows before the anchors (zeros: there is none), the
        target's rows [n, S] of the slots that guess, and whether there is one.
        """
        net, correction, first = self.net, self.net.correction, self.net.config.first_slot
        before, after = (lesson.ids[:, shift : shift + lesson.shape[1]].flatten()[rows] for shift in (0, 1))
        known, h = h, h[:, first:]  # [n, b, D], [n, S, D]
        if correction is not None and correction.reads_scores:
            scores = self._scores(h.flatten(0, 1)).view(len(h), h.shape[1], net.config.draft_vocab_size)
            known = net.known(known, scores, last, self.target.embed)
        learns, beside, states = torch.is_grad_enabled(), [], h
        corrected = correction is not None and (correction.learns_scores or not learns)
        if correction is not None and corrected:
            tokens = torch.cat((before[:, :first], before), 1)
            summaries = net.summaries(known, tokens, self.target.embed)[:, first:]
            exact = correction.reads_scores  # then summaries hold ids, which half precision would round
            states = torch.cat((h.to(summaries), summaries) if exact else (h, summaries.to(h)), -1)
        head, own = self._corrected if corrected else self._scores, self._own(after)
        weights: Tensor | None = None
        if learns:
            counted = inside & lesson.counts[rows]
            weights = counted.float()
            if self._options.pace:
                weights = paced(self._log_probs(states, own, counted, head), counted)
            if correction is not None:
                counting = torch.where(counted, rows, -1)
                beside = list(correction.beside(self._scores, h, before, own, counting, weights, known))
        steps = decaying(rows.shape[1], self._options.gamma)
        guesses = [
            Guess(
                states=states[kept, step],
                head=head,
                rows=rows[kept, step],
                weight=1.0 if self._options.pace else steps[step],
                weights=None if weights is None else weights[kept, step],
                vocab=net.vocab,
                chance=correction.chance if corrected and correction is not None else None,
            )
            for step, kept in enumerate(inside.unbind(1))
        ]
        return Outlook(guesses=guesses, beside=beside)

    def save(self, directory: Path) -> None:
        self._save(directory)

    def _scores(self, h: Tensor) -> Tensor:
        return self.net.scores(h, self.target.head)

    def _corrected(self, states: Tensor) -> Tensor:
        """States and summaries [n, D + E] -> corrected scores [n, V']."""
        width = self.net.config.layers.hidden_size
        h, summary = states[:, :width], states[:, width:]
        assert self.net.correction is not None
        found: Tensor = self.net.correction(self._scores(h), h, summary)
        return found

    def _own(self, tokens: Tensor) -> Tensor:
        """The target's tokens as the draft's; -1: one that it cannot say."""
        vocab = self.net.vocab
        if vocab is None:
            return tokens
        places = torch.full((self.net.config.layers.vocab_size,), -1, device=tokens.device)
        places[vocab] = torch.arange(len(vocab), device=tokens.device)
        return places[tokens]

    @torch.no_grad()
    def _log_probs(self, states: Tensor, tokens: Tensor, counted: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Of tokens [n, S] at states [n, S, E], where they count; -inf for those that the draft cannot say."""
        found = torch.full(tokens.shape, -torch.inf, device=tokens.device)
        chosen = (counted & (tokens >= 0)).nonzero()
        for part in torch.split(chosen, max(1, _CHUNK // self.net.config.draft_vocab_size)):
            n, s = part.unbind(1)
            found[n, s] = head(states[n, s]).float().log_softmax(-1).gather(-1, tokens[n, s, None])[:, 0]
        return found


def block_config(options: BlockLearning, target: Decoder) -> BlockConfig:
    """Of a new network for this target."""
    known = target.config
    vocab = options.vocab(target)
    size = known.vocab_size if vocab is None else len(vocab)
    if options.mask_token_id >= known.vocab_size:
        raise ConfigError(f"mask_token_id={options.mask_token_id}: the target has {known.vocab_size} tokens")
    layers = options.layers(known, num_layers=options.num_layers, qk_norm=options.qk_norm)
    if options.window:
        layers = replace(layers, windows=(options.window,) * options.num_layers)
    return BlockConfig(
        layers=layers,
        taps=target_taps(options.taps, known.num_layers),
        target_hidden_size=known.hidden_size,
        block_size=options.block_size,
        mask_token_id=options.mask_token_id,
        from_anchor=options.from_anchor,
        draft_vocab_size=size,
        own_head=size < known.vocab_size,
    )


@torch.no_grad()
def begin_blocks(net: BlockNet, target: Decoder, seed: int) -> None:
    """Fresh weights; the last norm and an own head begin as the target's."""
    begin(net, seed)
    net.get_parameter("norm.weight").copy_(target.final_norm.weight)  # type: ignore[arg-type]
    if net.lm_head is not None and net.vocab is not None:
        net.lm_head.weight.copy_(target.head_matrix()[net.vocab])
