"""What a model of `transformers` computes after its decoder: head, soft cap, scales.

model(h) = head(decoder(h))          a shallow copy of the model in which the decoder hands on what it is given:
shell(h) = head(h)                   all of the class's own code, and the same weights
"""

import copy
from typing import Any

from torch import Tensor, nn


class _Result(dict[Any, Any]):
    """What a decoder returns, as far as a model looks at it: its last states; whatever else is asked for is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return self.get("last_hidden_state" if key == 0 else key)


class _HandOn(nn.Module):
    """Stands in a decoder's place and hands on the states that it is given."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **others: Any) -> _Result:
        """[1, M, D] -> the same."""
        return _Result(last_hidden_state=inputs_embeds)


def behind_decoder(model: Any, decoder: nn.Module) -> Any:
    """The model without its decoder. Nothing of `model` is changed, and no weight is copied."""
    path = next(name for name, module in model.named_modules() if module is decoder)
    shell = below = _shallow(model)
    *outer, last = path.split(".")
    for name in outer:
        below._modules[name] = _shallow(below._modules[name])
        below = below._modules[name]
    below._modules[last] = _HandOn()
    return shell


def _shallow(module: Any) -> Any:
    """The same module with a list of parts of its own."""
    one = copy.copy(module)
    one._modules = dict(module._modules)
    return one
