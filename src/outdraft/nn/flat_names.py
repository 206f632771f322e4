"""A module whose parts do not show in the names of what they hold: `mixer.qkv.weight` is called `qkv.weight`.

Files, roundings and optimisers know a layer's tensors by name; how a layer is made of parts is not their affair. Names
in, names out: `named_parameters`, `get_submodule`, `state_dict`, and attributes, also those that are set.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import nn


class FlatNames(nn.Module):
    """`flat`: the attributes that hold its parts. No two parts may have a module of the same name."""

    flat: ClassVar[tuple[str, ...]] = ()

    def __getattr__(self, name: str) -> Any:
        is_own = name in (self.__dict__.get("_modules") or {})
        owner = None if is_own else self._owner(name)
        return super().__getattr__(name) if owner is None else owner._modules[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if (owner := self._owner(name)) is not None:
            setattr(owner, name, value)
        else:
            super().__setattr__(name, value)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """As any module's, without the names of its parts."""
        inner = f"{prefix}." if prefix else ""
        for name, module in super().named_modules(memo, prefix, remove_duplicate):
            yield self._outside(name, inner), module

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """As any module's, without the names of its parts."""
        found = super().state_dict(*args, prefix=prefix, keep_vars=keep_vars)
        told = {self._outside(key, prefix): value for key, value in found.items()}
        if destination is None:
            return told
        destination.update(told)
        return destination

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            name = key[len(prefix) :].split(".")[0]
            for part in self.flat:
                if self._owner(name) is self._modules.get(part) is not None:
                    state_dict[f"{prefix}{part}.{key[len(prefix) :]}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _owner(self, name: str) -> nn.Module | None:
        """The part that holds a module of this name."""
        modules = self.__dict__.get("_modules") or {}
        parts = (modules.get(part) for part in self.flat)
        return next((part for part in parts if part is not None and name in part._modules), None)

    def _outside(self, name: str, prefix: str) -> str:
        """What a tensor or module is called that stands as `name` below `prefix`."""
        part, _, rest = name.removeprefix(prefix).partition(".")
        held = self._modules.get(part) if part in self.flat else None
        return prefix + rest if held is not None and rest.split(".")[0] in held._modules else name
