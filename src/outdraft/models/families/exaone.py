"""EXAONE 4: norms only behind each half, queries and keys normed head by head; with windows, only those layers turn.

LG AI Research, "EXAONE 4.0", 2025, https://arxiv.org/abs/2507.11407.
"""

from outdraft.models.families.llama import kinds_of, read_common, write_common, write_windows
from outdraft.models.families.shared.fields import FULL, SLIDING, Fields, every_nth_full
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    size, layers = fields.sliding_window(4096), fields.layers("num_hidden_layers")
    fields.look("sliding_window_pattern")  # which says nothing without a window
    kinds = fields.layer_kinds(_by_pattern(fields, layers) if size is not None else [FULL] * layers)
    config = read_common(
        fields,
        norm_eps=fields.get("rms_norm_eps", float, 1e-5),
        pre_norm=False,
        post_norm=True,
        qk_norm=True,
        windows=fields.windows_of(kinds, size),
    )
    return config.turned_where([size is None or kind == SLIDING for kind in kinds])


def _by_pattern(fields: Fields, layers: int) -> list[str]:
    """`sliding_window_pattern`: how often a layer sees all, or a text of L (window) and G (all) that is repeated."""
    pattern = fields.look("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= set("LG"):
        kinds = [FULL if pattern[i % len(pattern)] == "G" else SLIDING for i in range(layers)]
        return [*kinds[:-1], FULL]  # the last layer always sees all
    return every_nth_full(layers, fields.get("sliding_window_pattern", int, 4))


def _write(config: ModelConfig) -> dict[str, object]:
    fields = {**write_common(config), **write_windows(config), "layer_types": kinds_of(config)}
    return fields | ({} if config.windows else {"sliding_window_pattern": None})


EXAONE4 = Architecture(model_type="exaone4", class_name="Exaone4ForCausalLM", parse=_read, write=_write)
