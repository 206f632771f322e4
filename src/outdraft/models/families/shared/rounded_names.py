"""Rename tables of models whose weights are rounded: what stands in place of each rounded weight.

layers.0.out.weight    ->  .qweight, .scales                          on our grid of integers, one row an output
layers.0.qkv.weight    ->  .blocks.0, .blocks.1, .blocks.2            blocks of a GGUF file: q, k and v as stored
"""

from collections.abc import Iterable
from dataclasses import replace

from outdraft.models.families.shared.naming import Entry, Layout, is_linear
from outdraft.models.networks.config import ModelConfig
from outdraft.options.errors import ModelLoadError


def stored_entries(table: Iterable[Entry], config: ModelConfig) -> Iterable[Entry]:
    """The table with the entries of what is stored in place of every weight that is rounded.

    Raises `ModelLoadError` for blocks that are not those of the stored tensors, or of one of two tied tables.
    """
    quant = config.quant
    assert quant is not None
    if config.tie_embeddings and bool(quant.parts_of("embedding", 0)) != bool(quant.parts_of("lm_head", 0)):
        raise ModelLoadError(
            "config.json: quantization_config has blocks of one of embedding and lm_head, which are tied"
        )
    for entry in table:
        stem, _, kind = entry.ours.rpartition(".")
        name = "embedding" if entry.ours == "embedding" else stem
        if kind not in ("weight", "embedding"):
            yield entry
        elif parts := quant.parts_of(name, 0):
            rows = tuple(count for _, count in parts)
            if len(rows) != len(entry.theirs) or (len(rows) > 1 and rows != entry.heights):
                raise ModelLoadError(
                    f"config.json: quantization_config has blocks of {name} with {rows} outputs, and the model has "
                    f"{entry.heights or len(entry.theirs)}"
                )
            yield from _block_entries(name, entry)
        elif is_linear(name) and quant.covers(name):
            layout = Layout.STACKED if entry.layout is Layout.TRANSPOSED else entry.layout
            for part in ("qweight", "scales"):
                theirs = tuple(f"{one.removesuffix('.weight')}.{part}" for one in entry.theirs)
                yield replace(entry, ours=f"{name}.{part}", theirs=theirs, layout=layout)
        else:
            yield entry


def _block_entries(name: str, entry: Entry) -> Iterable[Entry]:
    for i, theirs in enumerate(entry.theirs):
        heads = entry.pairs[i : i + 1]
        yield Entry(
            ours=f"{name}.blocks.{i}",
            theirs=(f"{theirs.removesuffix('.weight')}.blocks",),
            layout=Layout.STACKED if entry.layout is Layout.TRANSPOSED else entry.layout,
            num_heads=entry.num_heads,
            turned=entry.turned if any(heads) else 0,
            pairs=heads,
        )
