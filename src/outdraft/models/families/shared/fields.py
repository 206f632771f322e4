"""Reading a `config.json`: typed fields, and which of its keys were asked for.

What was not asked for is judged at the end (`models/families/shared/config_keys.py`).
"""

from collections.abc import Sequence
from typing import TypeVar

from outdraft.nn.activation import ACTIVATIONS
from outdraft.options.errors import ModelLoadError
from outdraft.options.ranges import LARGEST
from outdraft.options.shown import shown

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
        """The value as it stands there; the key counts as known."""
        self.used.add(key)
        return self.raw.get(key)

    def fill(self, **values: object) -> None:
        """What keys mean that the file leaves out."""
        self.raw = values | {key: value for key, value in self.raw.items() if value is not None or key not in values}

    def only(self, **computed: object) -> None:
        """Keys that say what is computed here in any case: another value is an error."""
        for key, value in computed.items():
            if self.has(key) and self.raw[key] != value:
                raise self.error(key, self.raw[key], f"it must be {shown(value)}")

    def has(self, key: str) -> bool:
        """Whether there is a value."""
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
        """How many heads of keys and values."""
        kv_heads = self.size(key, heads)
        if heads % kv_heads:
            raise self.error(key, kv_heads, f"a divisor of the {heads} attention heads")
        return kv_heads

    def maybe_int(self, key: str) -> int | None:
        return self.get(key, int) if self.has(key) else None

    def activation(self, key: str, default: str) -> str:
        """The feed-forward's non-linearity."""
        name = self.get(key, str, default)
        if name not in ACTIVATIONS:
            raise self.error(key, name, f"supported: {', '.join(sorted(ACTIVATIONS))}")
        return name

    def eos_ids(self) -> tuple[int, ...]:
        """Zero, one or several ids that end a text."""
        value = self.look("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) for item in values):
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

    def sliding_window(self, absent: int) -> int | None:
        """How many keys a row sees. A null says: all; a key that is absent says `absent`, as in transformers."""
        return self.maybe_int("sliding_window") if "sliding_window" in self.raw else absent

    def windows(self, num_layers: int, size: int | None, first: int = 0) -> tuple[int | None, ...]:
        """Sliding windows: by `layer_types` where present, else on layers `first` and up."""
        return windows_of(
            self.layer_kinds([FULL if i < first or size is None else SLIDING for i in range(num_layers)]), size
        )


def every_nth_full(num_layers: int, period: int) -> list[str]:
    """Layers of which each `period`-th sees all and the others have a window; 0: all see all."""
    return [SLIDING if period and (i + 1) % period else FULL for i in range(num_layers)]


def windows_of(kinds: Sequence[str], size: int | None) -> tuple[int | None, ...]:
    """`ModelConfig.windows` of layers of these kinds."""
    if size is None or SLIDING not in kinds:
        return ()
    return tuple(size if kind == SLIDING else None for kind in kinds)
