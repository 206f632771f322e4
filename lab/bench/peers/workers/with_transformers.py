"""transformers (https://github.com/huggingface/transformers): `generate` on the directory as it is.

plain     the default, growing cache          static    a cache of fixed size
assisted  `assistant_model`, k tokens always  lookup    `prompt_lookup_num_tokens`
"""

import importlib
import os
from time import perf_counter
from typing import Any

import torch

transformers: Any = importlib.import_module("transformers")


def versions(**given: Any) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    return {"transformers": transformers.__version__, "torch": torch.__version__}


class Engine:
    """One model, and its assistant."""

    def __init__(
        self, *, model: str, draft: str | None, mode: str, k: int, threads: int, dtype: str = "auto", **_: Any
    ) -> None:
        torch.set_num_threads(threads)
        self.pids = [os.getpid()]
        self._model = _load(model, dtype)
        self._passes = 0
        self._model.register_forward_hook(self._count)
        self._options: dict[str, Any] = {}
        if mode == "static":
            self._options = {"cache_implementation": "static", "disable_compile": True}
        elif mode == "assisted":
            assistant = _load(str(draft), dtype)
            assistant.generation_config.num_assistant_tokens = k
            assistant.generation_config.num_assistant_tokens_schedule = "constant"
            assistant.generation_config.assistant_confidence_threshold = 0.0  # k tokens a pass, as every other engine
            self._options = {"assistant_model": assistant}
        elif mode == "lookup":
            self._options = {"prompt_lookup_num_tokens": k}

    def _count(self, *_: Any) -> None:
        self._passes += 1

    @torch.inference_mode()
    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long."""
        ids = torch.tensor([prompt])
        pieces = Pieces()
        self._passes = 0
        began = perf_counter()
        whole = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            streamer=pieces,
            **self._options,
        )
        seconds = perf_counter() - began
        return {
            "tokens": whole[0, len(prompt) :].tolist(),
            "seconds": seconds,
            "first_seconds": pieces.first - began,
            "num_first": pieces.num_first,
            "passes": self._passes,
        }

    def close(self) -> None:
        """The pipeline ends with its process, so there is nothing to close."""


class Pieces:
    """A streamer that notes when the first tokens after the prompt came, and how many."""

    def __init__(self) -> None:
        self.first, self.num_first, self._calls = 0.0, 0, 0

    def put(self, value: torch.Tensor) -> None:
        """First the prompt, then piece after piece."""
        self._calls += 1
        if self._calls == 2:
            self.first, self.num_first = perf_counter(), value.numel()

    def end(self) -> None:
        """Asked for by the protocol."""


def _load(directory: str, dtype: str) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()
    model.generation_config.eos_token_id = None  # nothing ends a text before its length
    model.generation_config.pad_token_id = 0
    return model
