"""Reading a `config.json`: typed fields, and what becomes of keys that were not asked for.

A key that the architecture's reader asked for is known. Of the others, some are bookkeeping, or have values that leave
the arithmetic as it is; any other with a value that says something is an error: it may change what is computed.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from sys import float_info
from typing import TypeVar

from outdraft.nn.activation import ACTIVATIONS
from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.ranges import LARGEST
from outdraft.options.shown import shown

_log = logging.getLogger(__name__)
OFF: tuple[object, ...] = (None, False, 0, "", [], {})
NEUTRAL: dict[str, tuple[object, ...]] = {  # key -> the values that leave the arithmetic as it is
    "attention_multiplier": (None, 1),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "scale_attn_weights": (None, True),
    "is_causal": (None, True),
    "is_decoder": (None, True, False),
    "position_embedding_type": (None, "absolute", "rope"),
    "head_type": (None, "lm"),
    "norm_type": (None, "layer_norm", "rms_norm"),
    "attention_type": (None, "full_attention"),
    "rope_interleaved": (None, False),
}
_SUSPECT = ("multiplier", "softcap", "expert", "quantiz", "num_nextn")
_REFUSED = set(NEUTRAL) | set(
    """
    alibi clip_qkv is_encoder_decoder add_cross_attention scale_attn_by_inverse_layer_idx use_qk_norm
    attention_chunk_size
    """.split()
)
_BOOKKEEPING = tuple(
    """
    architectures model_type _* auto_map torch_dtype dtype transformers_version use_cache *_token_id *_token_index
    *_token_ids *dropout *dropout*prob *_pdrop initializer_range initializer_factor *_initializer* return_dict
    output_attentions output_hidden_states output_router_logits output_scores router_aux_loss_coef torchscript
    use_bfloat16 tie_encoder_decoder cross_attention_hidden_size chunk_size_feed_forward id2label label2id
    num_labels problem_type task_specific_params finetuning_task tokenizer_class prefix remove_invalid_values
    summary_* pretraining_tp cache_implementation attn_implementation gradient_checkpointing
    reorder_and_upcast_attn classifier_* unsloth_* outdraft_* model_name name_or_path max_length min_length
    do_sample temperature top_k top_p typical_p repetition_penalty length_penalty num_beams num_beam_groups
    num_return_sequences early_stopping diversity_penalty exponential_decay_length_penalty
    encoder_no_repeat_ngram_size no_repeat_ngram_size bad_words_ids suppress_tokens begin_suppress_tokens
    return_dict_in_generate pruned_heads tf_legacy_loss transformers.js_config
    """.split()
)


T = TypeVar("T", int, float, bool, str)

FULL, SLIDING = "full_attention", "sliding_attention"
MOST_LAYERS, MOST_CHANNELS = 4096, 1 << 20  # of any model; what a damaged file claims is not counted out


class Fields:
    """A config.json under its architecture's name."""

    def __init__(self, raw: dict[str, object]) -> None:
        self.raw = raw
        self.name = str(raw.get("model_type"))
        self.used: set[str] = set()  # keys that were asked for

    def look(self, key: str) -> object:
        """The value as it stands there; the key counts as known. Raises `ModelLoadError` for numbers that are none."""
        self.used.add(key)
        value = self.raw.get(key)
        for place, number in _endless(key, value):
            raise self.error(place, number, "a finite number is needed")
        return value

    def fill(self, **values: object) -> None:
        """What keys mean that the file leaves out."""
        self.raw = values | {key: value for key, value in self.raw.items() if value is not None or key not in values}

    def only(self, **computed: object) -> None:
        """Keys that say what is computed here in any case: another value is an error."""
        for key, value in computed.items():
            if self.has(key) and self.raw[key] != value:
                raise self.error(key, self.raw[key], f"it must be {shown(value)}")

    def has(self, key: str) -> bool:
        return self.look(key) is not None

    def error(self, key: str, value: object, supported: str) -> ModelLoadError:
        """The one error for a value that we cannot honour."""
        return ModelLoadError(f"config.json of '{self.name}': {key}={shown(value)} is not supported ({supported})")

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A value of this type; None and absent mean the default, and without a default are an error."""
        value = self.look(key)
        if value is None:
            if default is None:
                raise ModelLoadError(f"config.json of '{self.name}' lacks '{key}'")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, value, f"a value of type {kind.__name__} is needed")
        return value

    def size(self, key: str, default: int | None = None, *, most: int = LARGEST) -> int:
        """A number of things: at least 1, and not so many that they could not even be counted here."""
        value = self.get(key, int, default)
        if not 1 <= value <= most:
            raise self.error(key, value, f"at least 1, at most {most}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A number that is divided by, or whose logarithm is taken."""
        value = self.get(key, float, default)
        if value <= 0:
            raise self.error(key, value, "a number above 0")
        return value

    def layers(self, key: str) -> int:
        """How many layers: the files' tensors are compared with it, so it must not be more than can be listed."""
        return self.size(key, most=MOST_LAYERS)

    def heads(self, key: str, width_key: str) -> tuple[int, int]:
        """How many heads, and how wide they are where nothing else says so."""
        heads, width = self.size(key), self.size(width_key, most=MOST_CHANNELS)
        if width % heads and not self.has("head_dim"):
            raise self.error(key, heads, f"a divisor of {width_key}={width}, or a head_dim")
        return heads, width // heads

    def kv_heads(self, key: str, heads: int) -> int:
        kv_heads = self.size(key, heads)
        if heads % kv_heads:
            raise self.error(key, kv_heads, f"a divisor of the {heads} attention heads")
        return kv_heads

    def maybe_int(self, key: str) -> int | None:
        return self.get(key, int) if self.has(key) else None

    def attention_biases(self) -> dict[str, bool]:
        """Of queries, keys and values, and of the map behind them."""
        bias = self.get("attention_bias", bool, False)
        return {"qkv_bias": bias, "out_bias": bias}

    def activation(self, key: str, default: str) -> str:
        name = self.get(key, str, default)
        if name not in ACTIVATIONS:
            raise self.error(key, name, f"supported: {', '.join(sorted(ACTIVATIONS))}")
        return name

    def eos_ids(self) -> tuple[int, ...]:
        """Zero, one or several ids that end a text."""
        value = self.look("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(item) is int for item in values):
            raise self.error("eos_token_id", value, "an id or a list of ids")
        return tuple(values)

    def layer_kinds(self, default: Sequence[str], known: Sequence[str] = (FULL, SLIDING)) -> list[str]:
        """What kind of attention each layer has: `layer_types`, or `default`, one name a layer."""
        kinds = self.look("layer_types")
        kinds = list(default) if kinds is None else kinds
        if not isinstance(kinds, list) or len(kinds) != len(default):
            raise self.error("layer_types", kinds, f"a list of {len(default)} names")
        unknown = sorted(set(map(str, kinds)) - set(known))
        if unknown:
            raise self.error("layer_types", unknown[0], f"supported: {', '.join(known)}")
        return kinds

    def sliding_window(self, absent: int | None = None) -> int | None:
        """How many keys a row sees. A null says: all; a key that is absent says `absent`, as in transformers."""
        key = "sliding_window"
        return self.size(key) if self.has(key) else None if key in self.raw else absent

    def without_windows(self) -> None:
        """`use_sliding_window` is false, so the other keys of windows say nothing.

        Raises `ModelLoadError` where layers have one all the same.
        """
        self.look("sliding_window"), self.look("max_window_layers")
        if names_windows(self.look("layer_types")):
            raise self.error("use_sliding_window", False, f"layer_types names {SLIDING}: one of the two is wrong")

    def windows(self, num_layers: int, size: int | None, first: int = 0) -> tuple[int | None, ...]:
        """Sliding windows: by `layer_types` where present, else on layers `first` and up."""
        return self.windows_of(
            self.layer_kinds([FULL if i < first or size is None else SLIDING for i in range(num_layers)]), size
        )

    def windows_of(self, kinds: Sequence[str], size: int | None) -> tuple[int | None, ...]:
        """`ModelConfig.windows` of layers of these kinds."""
        if SLIDING not in kinds:
            return ()
        if size is None:
            raise self.error("sliding_window", None, "layers with a window need its size")
        return tuple(size if kind == SLIDING else None for kind in kinds)


def _endless(place: str, value: object, depth: int = 3) -> Iterator[tuple[str, object]]:
    """What of a value, its lists and tables no float holds: NaN and infinity, which Python reads, and long integers."""
    if isinstance(value, int | float) and not abs(value) <= float_info.max:
        yield place, value
    elif depth and isinstance(value, list | dict):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _endless(f"{place}.{name}", one, depth - 1)


def all_ends(*told: object) -> list[int] | None:
    """The ids that end a text, by every place that names some: each is an id, a list of ids, or None.

    Raises `ModelLoadError` for anything else.
    """
    ends: list[int] = []
    for value in told:
        for end in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(end, int) or isinstance(end, bool):
                raise ModelLoadError(f"eos_token_id={shown(value)} is not supported (an id or a list of ids)")
            if end not in ends:
                ends.append(end)
    return ends or None


def names_windows(layer_types: object) -> bool:
    """Whether a layer has one by this value of the key."""
    return isinstance(layer_types, list) and SLIDING in layer_types


def every_nth_full(num_layers: int, period: int) -> list[str]:
    """Layers of which each `period`-th sees all and the others have a window; 0: all see all."""
    return [SLIDING if period and (i + 1) % period else FULL for i in range(num_layers)]


def check_keys(
    raw: Mapping[str, object], used: set[str], name: str, *, strict: bool, beside: Collection[str] = ()
) -> None:
    """Raise `ModelLoadError` for the first unread key of config.json that may change the arithmetic.

    strict: every key that is not known; else only those that are known to matter, or sound like it (the layers of a
    drafter, whose config.json has keys of its own), and one line names the others. beside: what another reader reads.
    """
    unread = []
    for key, value in raw.items():
        allowed = NEUTRAL.get(key, OFF)
        if key in used or key in beside or value in allowed:
            continue
        is_known = any(fnmatchcase(key, pattern) for pattern in _BOOKKEEPING)
        matters = key in _REFUSED or any(word in key for word in _SUSPECT)
        if not (matters or strict or is_known):
            unread.append(key)
        if matters or (strict and not is_known):
            raise ModelLoadError(
                f"config.json of '{name}': {key}={shown(value)} is not supported: it may change what the model "
                f"computes, and outdraft does not know the key{near_miss(key, used)}. If it changes nothing, delete it "
                "from config.json"
            )
    if unread:
        _log.warning("config.json of '%s' has keys that are not read: %s", name, ", ".join(sorted(unread)))
