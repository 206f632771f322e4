"""The metadata of a GGUF file, read key by key: an unread key is an error, as it may change results."""

from pathlib import Path
from typing import Any

from torch import Tensor

from outdraft.models.families.shared.fields import OFF
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.gguf import GgufFile

_BOOKKEEPING = tuple(
    """
    vocab_size tensor_data_layout pooling_type rope.dimension_sections attention.causal rope.scaling.finetuned
    """.split()
)


class GgufMeta:
    """The keys under the architecture's name."""

    def __init__(self, file: GgufFile, arch: str, origin: Path) -> None:
        self._file, self.arch, self.origin = file, arch, origin
        self._used: set[str] = set()

    def value(self, key: str, default: Any = None) -> Any:
        """What stands there: a number, a string, a list of them, or the default."""
        self._used.add(key)
        return self._file.get(f"{self.arch}.{key}", default)

    def has(self, key: str) -> bool:
        return self.value(key) is not None

    def holds(self, tensor: str) -> bool:
        """Whether there is a tensor of llama.cpp's name."""
        return tensor in self._file.names()

    def tensor(self, name: str) -> Tensor | None:
        """A tensor of numbers that is no weight, by llama.cpp's name."""
        return self._file.tensor(name) if self.holds(name) else None

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number from 0 on; without a default it must be there."""
        value = self.value(key, default)
        if value is None:
            raise ModelLoadError(f"{self.origin} lacks the metadata '{self.arch}.{key}': download it again")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(key, "one number for all")
        return value

    def number(self, key: str, default: float) -> float:
        """The number that was meant: 1e-5, where float32 holds 9.99999974e-06."""
        name = f"{self.arch}.{key}"
        value = check_value(name, self.value(key, default), float, of=str(self.origin), error=ModelLoadError)
        return shortest(value)

    def flags(self, key: str, num_layers: int, period: int) -> list[bool]:
        """One for each layer: a list, or a period n of which every n-th is false; `period` where the key is absent."""
        value = self.value(key, period)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return [(i + 1) % value != 0 for i in range(num_layers)]
        if not isinstance(value, list) or len(value) != num_layers:
            raise self.error(key, f"a list of {num_layers}")
        return [bool(flag) for flag in value]

    def require_same(self, value: int, *keys: str) -> None:
        """Raise `ModelLoadError` where one of these keys says another number."""
        for key in keys:
            if self.count(key, value) != value:
                raise self.error(key, f"only {value}")

    def token_id(self, kind: str) -> int | None:
        """The id that the vocabulary has for `eos`, `eot`, ..."""
        name = f"tokenizer.ggml.{kind}_token_id"
        read = check_value(name, self._file.get(name), int | None, of=str(self.origin), error=ModelLoadError)
        return None if read is None else int(read)

    def error(self, key: str, why: str = "") -> ModelLoadError:
        """The one error for a value that is not honoured."""
        reason = f" ({why})" if why else ""
        return ModelLoadError(
            f"{self.origin}: {self.arch}.{key}={shown(self.value(key))} is not supported{reason}: take the model's "
            "safetensors"
        )

    def require_all_read(self, *, two_ways: bool = False) -> None:
        """Raise `ModelLoadError` for the first key that says something and was not asked for.

        `two_ways`: rows may see those behind them.
        """
        for name in self._file.keys(f"{self.arch}."):
            key = name.removeprefix(f"{self.arch}.")
            known = key in self._used or key in _BOOKKEEPING
            if not known and self._file.get(name) not in OFF:
                raise self.error(key)
        off = [] if two_ways else ["attention.causal"]
        if self.arch == "granite":  # which then has no positions at all
            off.append("rope.scaling.finetuned")
        for key in off:
            if self.value(key, True) is False:
                raise self.error(key)


def shortest(value: float) -> float:
    """The number that was meant by a float32."""
    return float(f"{value:.7g}")
