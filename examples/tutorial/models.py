"""What a tutorial hands over: loaded models of `transformers`, tensors of ids, and how this engine takes them.

A loaded model of a supported architecture is written once to a temporary directory, with its tokenizer if one is given,
and read from there by the engine, which has kernels and caches of its own. Data in: a model or a prompt in any of these
forms; data out: a directory, a prompt of the engine's.
"""

import atexit
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from torch import Tensor

from outdraft.engine.callers.prompts import Prompt
from outdraft.options.errors import ConfigError


class Saves(Protocol):
    """A loaded model, or a tokenizer, of `transformers`."""

    def save_pretrained(self, directory: str, /) -> Any:
        """Write the model as a directory that can be loaded again."""
        ...


Model = str | Path | Saves
AnyPrompt = Prompt | Tensor | list[int]


def directory_of(model: Model, tokenizer: Saves | None = None) -> str | Path:
    """Where a model's files are; of a loaded one, where they were written. It is gone when Python ends.

    Raises `ConfigError` for what is neither, and for a tokenizer beside a directory, which has its own.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise ConfigError(f"{model} is a directory and has its own tokenizer: leave tokenizer= out")
        return model
    if not hasattr(model, "save_pretrained"):
        raise ConfigError(
            f"a model is a directory, a name, or a loaded model of transformers, not {type(model).__name__}"
        )
    directory = mkdtemp(prefix="outdraft-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    model.save_pretrained(directory)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    return Path(directory)


def as_prompt(prompt: AnyPrompt) -> Prompt:
    """Ids as a tensor [T] or [1, T] or as a list, or a prompt as the engine knows it."""
    if not isinstance(prompt, Tensor):
        return {"prompt_token_ids": prompt} if isinstance(prompt, list) else prompt
    if prompt.dim() == 2 and prompt.shape[0] != 1:
        raise ConfigError(
            f"ids of shape {tuple(prompt.shape)}: one text at a time; BatchSpeculativeDecoding takes many"
        )
    return {"prompt_token_ids": prompt.flatten()}
