"""Train a small decoder to write like the target: it learns the target's whole distribution at every position.

Zhou et al., "DistillSpec", 2023, https://arxiv.org/abs/2310.08461. It begins as some of the target's own layers, with
its embeddings, norms and head (`cut`), or from nothing, with sizes of its own.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.drafters.draft_model.formats import FORMATS
from outdraft.models.files.borrowed import TABLES
from outdraft.models.files.load import fill_decoder, open_weights, save_model, tensors_of
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.models.remake.cut import cut_decoder, every_third
from outdraft.models.target.tables import tables_of
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLearning:
    """Where the draft begins. Without sizes it is cut from the target."""

    layers: tuple[int, ...] = ()  # of the target, that the draft keeps; (): every third and the last
    hidden_size: int = 0  # above 0: a new decoder of this width; the other sizes are needed then
    num_layers: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    intermediate_size: int = 0
    borrow: bool = False  # keep the target's embedding and head, which learn nothing then; the file is without them

    def __post_init__(self) -> None:
        sizes = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size")
        check_range(self, *sizes, "layers", least=0)
        given = [name for name in sizes if getattr(self, name)]
        if given and len(given) < len(sizes):
            lacking = ", ".join(name for name in sizes if name not in given)
            raise ConfigError(f"{given[0]}={getattr(self, given[0])} asks for a new decoder: give {lacking} too")
        if given and self.layers:
            raise ConfigError(f"layers={self.layers} cuts the draft from the target: leave {given[0]} out")


class DraftLearner:
    """A decoder of the target's vocabulary."""

    taps: tuple[int, ...] = ()

    def __init__(self, draft: Decoder, dtype: torch.dtype, borrowed: Seq[str] = ()) -> None:
        """`borrowed`: the tables that are the target's."""
        self.module, self._dtype, self._borrowed = draft.train().requires_grad_(True), dtype, tuple(borrowed)
        tensors = tensors_of(draft)
        for name in self._borrowed:
            tensors[TABLES[name]].requires_grad_(False)

    def look(self, lesson: Lesson) -> Outlook:
        """It reads its own guesses as it would the text, so one depth stands for all."""
        batch, length = lesson.shape
        if self.module.positions is not None and length > (most := self.module.config.max_len):
            raise ConfigError(
                f"the draft has learned positions for {most} tokens, and texts are {length} long: take shorter rows "
                f"(--loop seq_len={most})"
            )
        context = PackedContext(batch, length, lesson.documents[:, :-1])
        ids = lesson.ids[:, :-1].flatten()
        states = self.module.run(self.module.embed(ids, lesson.positions), lesson.positions, context).hidden
        rows = torch.arange(len(ids), device=ids.device)
        return Outlook(guesses=[Guess(states=states, head=self.module.logits, rows=rows)], recurs=True)

    def save(self, directory: Path) -> None:
        """A model directory, but for the tokenizer, which is the target's."""
        save_model(self.module, directory, self._dtype, self._borrowed)


def new(options: DraftLearning, target: Decoder, seed: int) -> DraftLearner:
    """Cut from the target, or fresh."""
    known = target.config
    borrowed = (["embedding"] if known.tie_embeddings else [*TABLES]) if options.borrow else []
    if not options.hidden_size:
        layers = options.layers or every_third(known.num_layers)
        return DraftLearner(cut_decoder(target, layers, torch.float32), target.dtype, borrowed)
    if borrowed:
        raise ConfigError("borrow=true keeps the target's tables, so the draft is cut from the target: leave sizes out")
    config = llama_config(
        vocab_size=known.vocab_size,
        hidden_size=options.hidden_size,
        num_layers=options.num_layers,
        num_heads=options.num_heads,
        num_kv_heads=options.num_kv_heads,
        intermediate_size=options.intermediate_size,
        max_len=known.max_len,
        norm_eps=known.norm_eps,
        bos_id=known.bos_id,
        eos_ids=known.eos_ids,
    )
    return DraftLearner(initialise(Decoder(config, torch.float32, target.device), seed), target.dtype)


def load(options: DraftLearning, target: Decoder, directory: Path) -> DraftLearner:
    """A draft that was trained before. Raises `ConfigError` for another vocabulary, and for rounded weights."""
    stored = open_weights(directory, torch.float32, tables_of(target))
    draft = fill_decoder(stored, target.device)  # not packed: it follows autocast
    if draft.config.vocab_size != target.config.vocab_size:
        raise ConfigError(
            f"{directory} has {draft.config.vocab_size} tokens, the target {target.config.vocab_size}: a draft that "
            "learns from it needs its vocabulary"
        )
    if draft.config.quant is not None:
        raise ConfigError(f"{directory} has rounded weights: go on from the draft that they were rounded from")
    return DraftLearner(draft, target.dtype, stored.borrowed)


LEARN = LearnMethod(
    summary="a small decoder, cut from the target or new",
    options=DraftLearning,
    new=new,
    load=load,
    hands_states=True,
    formats=FORMATS,
)
