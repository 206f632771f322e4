"""Skip sets: a plain one to begin with, and files that hold one.

    alternating, 8 layers, ratio .45      layer   0  1  2  3  4  5  6  7        first and last layer always run
                                          attn       x     x     x
                                          mlp        x     x     x

Data: a `Skip`, or a JSON object {"num_layers": 8, "attention": [1, 3, 5], "mlp": [1, 3, 5]}.
"""

import json
from pathlib import Path

from outdraft.core.skip import Skip
from outdraft.options.errors import ConfigError
from outdraft.options.read_file import load_json


def alternating(num_layers: int, ratio: float) -> Skip:
    """Every second inner layer, from the second one on, until `ratio` of the inner sublayers are left out."""
    wanted = round(ratio * (num_layers - 2)) if num_layers > 2 else 0
    inner = [*range(1, num_layers - 1, 2), *range(2, num_layers - 1, 2)][:wanted]
    return Skip(frozenset(inner), frozenset(inner))


def save_skip(skip: Skip, num_layers: int, path: Path, **notes: object) -> None:
    """Write a skip set, with whatever else the reader may want to know."""
    held = {"num_layers": num_layers, "attention": sorted(skip.attention), "mlp": sorted(skip.mlp), **notes}
    path.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")


def load_skip(path: Path, num_layers: int) -> Skip:
    """The skip set in a file; raises `ConfigError` if it is none, or another model's."""
    cure = "write one with `outdraft tune-skip`"
    try:
        held = load_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"skip file {path} cannot be read ({error}): {cure}") from error
    if not isinstance(held, dict) or not all(_is_layers(held.get(part)) for part in ("attention", "mlp")):
        raise ConfigError(f"skip file {path} has no lists 'attention' and 'mlp' of layer numbers: {cure}")
    if held.get("num_layers", num_layers) != num_layers:
        raise ConfigError(
            f"skip file {path} is for a model of {held['num_layers']} layers, the target has {num_layers}: {cure}"
        )
    skip = Skip(frozenset(held["attention"]), frozenset(held["mlp"]))
    skip.check(num_layers, f"skip file {path}")
    return skip


def _is_layers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
