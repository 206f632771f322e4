"""Faults of drafters that no text shows: guesses of another place, of other rows, of rows that should be gone.

Guesses are checked, so each of these only accepts less. Each is a change of one line, which `planted` makes for as long
as it is asked to; `tests/contracts/test_guess_faults.py` shows that the comparison with the learner finds all of them.
"""

import inspect
import textwrap
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

DRAFTERS = "outdraft.drafters"
_TEXTS = "shared.blocks.drafter:BlockTexts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`where`: MODULE:CLASS.METHOD below the drafters; there `right` stands once, and becomes `wrong`."""

    name: str
    kinds: tuple[str, ...]
    where: str
    right: str
    wrong: str


_BLOCKS = ("dflash", "dflash2", "domino", "dspark", "lilicorr", "specdec", "xpress")
FAULTS = (
    Fault(
        name="slot shift",
        kinds=tuple(kind for kind in _BLOCKS if kind != "xpress"),
        where=f"{_TEXTS}.blocks",
        right="net.scores(own[first:count]",
        wrong="net.scores(own[first:count].roll(1, 0)",
    ),
    Fault(
        name="slot shift",
        kinds=("xpress",),  # whose scores a correction outweighs
        where="shared.blocks.drafter:BlockDrafter._say",
        right="self._port.layers.embed)[:, -1]",
        wrong="self._port.layers.embed)[:, 0]",
    ),
    Fault(
        name="context of another row",
        kinds=("lilicorr",),
        where=f"{_TEXTS}.read_waiting",
        right="own[-1].clone()",
        wrong="own[0].clone()",
    ),
    Fault(
        name="block one position late",
        kinds=_BLOCKS,
        where=f"{_TEXTS}.blocks",
        right="self.texts[seq].end for",
        wrong="self.texts[seq].end + 3 for",
    ),
    Fault(
        name="wrong taps",
        kinds=_BLOCKS,
        where=f"{_TEXTS}.read_waiting",
        right="fuse(waiting.taps)",
        wrong="fuse(waiting.taps[::-1])",
    ),
    Fault(
        name="keys of a block that stay",
        kinds=_BLOCKS,
        where=f"{_TEXTS}.read_waiting",
        right="slots = self.cache",
        wrong="from lab.guess_faults import leave_rows; leave_rows(self, seqs); slots = self.cache",
    ),
    Fault(
        name="anchor of another row",
        kinds=_BLOCKS,
        where="shared.blocks.drafter:BlockDrafter.propose",
        right="[seq.pending for seq in asked]",
        wrong="[seq.tokens[-2] for seq in asked]",
    ),
    Fault(
        name="slot shift",
        kinds=("p_eagle",),
        where="p_eagle:MaskedPairs.block",
        right="range(stop - depth, stop)",
        wrong="range(stop - depth - 1, stop - 1)",
    ),
    Fault(
        name="mask rows one position late",
        kinds=("p_eagle",),
        where="p_eagle:MaskedPairs.block",
        right="range(last + 1, last + depth)",
        wrong="range(last + 4, last + depth + 3)",
    ),
    Fault(
        name="wrong taps",
        kinds=("p_eagle",),
        where="p_eagle:MaskedPairs.block",
        right="waiting.taps, net.mask_taps",
        wrong="waiting.taps[::-1], net.mask_taps",
    ),
    Fault(
        name="mask rows that stay",
        kinds=("p_eagle",),
        where="shared.networks.paired_text:PairedTexts.have_read",
        right="range(len(text.tokens))",
        wrong="range(len(text.tokens) + 1)",
    ),
    Fault(
        name="anchor of another row",
        kinds=("p_eagle",),
        where="p_eagle:MaskedPairs.block",
        right="*waiting.tokens[first:stop]",
        wrong="*([0] + waiting.tokens)[first:stop]",
    ),
    Fault(
        name="slot shift",
        kinds=("parallel_sampling",),
        where="parallel_sampling:ParallelSamplingDrafter.observe",
        right="one.logits[rows]",
        wrong="one.logits[rows[1:]]",
    ),
    Fault(
        name="anchor of another row",
        kinds=("parallel_sampling",),
        where="parallel_sampling:ParallelSamplingDrafter.observe",
        right="one.verdict.path[-1] if one.verdict.path else 0",
        wrong="-1",
    ),
    Fault(
        name="slot shift",
        kinds=("falcon",),
        where="falcon:FalconDrafter.propose",
        right="[1][step - done]",
        wrong="[1][max(0, step - done - 1)]",
    ),
    Fault(
        name="wrong taps",
        kinds=("falcon",),
        where="falcon:FalconTexts.read_waiting",
        right="self.port.layers.norm(waiting.taps[0])",
        wrong="waiting.taps[0]",
    ),
    Fault(
        name="rows of a guess that stay",
        kinds=("falcon",),
        where="falcon:FalconTexts.read_waiting",
        right="torch.cat((one[0], own))",
        wrong="torch.cat((own, one[0]))",
    ),
    Fault(
        name="anchor of another row",
        kinds=("falcon",),
        where="falcon:FalconTexts.read_waiting",
        right="torch.tensor(waiting.tokens,",
        wrong="torch.tensor([0, *waiting.tokens[:-1]],",
    ),
    Fault(
        name="slot shift",
        kinds=("kangaroo",),
        where="kangaroo:KangarooDrafter.propose",
        right="guess([seq.id for seq in own[:num_open]], h[:num_open], step)",
        wrong="guess([seq.id for seq in own[:num_open]], hidden[rows[0]][max(0, step - 1)][None], step)",
    ),
    Fault(
        name="wrong taps",
        kinds=("kangaroo",),
        where="kangaroo:KangarooDrafter.propose",
        right="stop=self.exit_layer",
        wrong="stop=self.exit_layer + 1",
    ),
    Fault(
        name="rows of a guess that stay",
        kinds=("kangaroo",),
        where="kangaroo:KangarooDrafter.propose",
        right="self._texts.cache.keep(seq.id, ())",
        wrong="self._texts.cache.keep(seq.id, (0,))",
    ),
)


def leave_rows(texts: Any, seqs: Seq[int]) -> None:
    """One row of ones more for each text, behind those that were read."""
    layers = texts.net.config.layers
    row = torch.ones(1, layers.num_kv_heads, layers.head_dim)
    for seq, slot in zip(seqs, texts.cache.grow_all(seqs, [1] * len(seqs)), strict=True):
        for layer in range(layers.num_layers):
            texts.cache.rows.write(seq, layer, slot, row, row)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Inside, the fault is there. Raises `ValueError` where its line is not."""
    module_name, _, path = fault.where.partition(":")
    module = import_module(f"{DRAFTERS}.{module_name}")
    class_name, _, method = path.partition(".")
    owner: Any = getattr(module, class_name)
    honest, text = owner.__dict__[method], textwrap.dedent(inspect.getsource(owner.__dict__[method]))
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.where} has {fault.right!r} {text.count(fault.right)} times, not once")
    made: dict[str, Any] = {}
    exec(compile(text.replace(fault.right, fault.wrong), inspect.getfile(owner), "exec"), module.__dict__, made)
    setattr(owner, method, made[method])
    try:
        yield
    finally:
        setattr(owner, method, honest)
