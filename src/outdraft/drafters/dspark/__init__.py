"""DSpark: a block in one pass, each slot corrected by the token before it, and a confidence.

DeepSeek, 2026, https://arxiv.org/abs/2607.05147.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import torch

from outdraft.core.head_format import served_by_sglang
from outdraft.core.method import arxiv
from outdraft.drafters.dspark.net import DsparkSizes, Kind, MarkovHead
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.keys import Absent, one_flag, whole_number
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Entry, linear
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

_STD = 0.01  # of the table's first weights
_HEAD, _CONFIDENCE = "markov_head", "confidence_head.proj"
_THEIRS = {"plain": "vanilla", "gated": "gated", "rnn": "rnn"}


def _also() -> dict[str, str]:
    """ModelOpt's names of tensors, and llama.cpp's, -> ours."""
    stems = {f"{part}_proj": f"{_HEAD}.{part}_proj" for part in ("gate", "joint")}
    stems |= {f"markov_w{n}": f"{_HEAD}.markov_w{n}" for n in (1, 2)} | {"confidence_proj": _CONFIDENCE}
    stems["conf_proj"] = _CONFIDENCE
    return {f"{theirs}.{end}": f"{ours}.{end}" for theirs, ours in stems.items() for end in ("weight", "bias")}


def _read(said: Mapping[str, Any], tensors: TensorSource, directory: Path) -> DsparkSizes:
    fields = Fields({**said, "model_type": directory.name})
    heads, told = {theirs: ours for ours, theirs in _THEIRS.items()}, fields.get("markov_head_type", str, "vanilla")
    if told not in heads:
        raise ModelLoadError(
            f"{directory}: markov_head_type={shown(told)} of config.json: known are {', '.join(heads)}"
        )
    asked = one_flag(fields, ("enable_confidence_head", "use_confidence_head"), directory)
    confident = f"{_CONFIDENCE}.weight" in tensors if asked is None else asked
    if confident and not fields.get("confidence_head_with_markov", bool, True):
        raise ModelLoadError(f"{directory}: a confidence head that reads states alone is not supported")
    head: Any = heads[told]
    assert head in get_args(Kind)
    if "markov_rank" not in said and (table := f"{_HEAD}.markov_w1.weight") in tensors:  # a GGUF file has no such key
        said = {**said, "markov_rank": tensors.shape(table)[-1]}
    return DsparkSizes(head=head, rank=whole_number(said, "markov_rank", directory, least=1), confident=confident)


def _write(own: DsparkSizes) -> dict[str, Any]:
    return {
        "markov_head_type": _THEIRS[own.head],
        "markov_rank": own.rank,
        "enable_confidence_head": own.confident,
        "confidence_head_with_markov": True,
    }


def _entries(config: BlockConfig, own: DsparkSizes) -> Iterable[Entry]:
    yield Entry(ours="correction.embedding", theirs=(f"{_HEAD}.markov_w1.weight",))
    yield from linear("correction.projections", [f"{_HEAD}.markov_w2"], False)
    if own.head != "plain":
        named = {"gated": "gate_proj", "rnn": "joint_proj"}[own.head]
        yield from linear("correction.mix", [f"{_HEAD}.{named}"], True)
    if own.confident:
        yield from linear("correction.confidence", [_CONFIDENCE], True)


@torch.no_grad()
def _begin(net: BlockNet) -> None:
    """The head adds nothing at first, and the confidence knows nothing."""
    head = net.correction
    assert isinstance(head, MarkovHead)
    head.embedding.mul_(_STD / head.embedding.std())
    head.projections.weight.zero_()
    if head.confidence is not None:
        head.confidence.weight.zero_()


KIND: BlockKind[DsparkSizes] = BlockKind(
    name="dspark",
    architecture="DSparkSpeculator",
    flat_architecture="Qwen3DSparkModel",
    read=_read,
    write=_write,
    keys=(
        *("markov_head_type", "markov_rank", "enable_confidence_head", "use_confidence_head"),
        "confidence_head_with_markov",
    ),
    mark=f"{_HEAD}.markov_w1.weight",
    also=_also(),
    absent=Absent(from_anchor=True, flat_causal_windows=False, block_size=None),
    served={"vllm": "vllm serve {out}"},
    served_flat={"sglang": served_by_sglang("DSPARK")},
    parts=lambda config, own, dtype, device: BlockParts(correction=MarkovHead(config, own, dtype, device)),
    entries=_entries,
    begin=_begin,
)

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by the token before it; a chain or a tree",
    paper=arxiv("2607.05147", "DSpark"),
)
