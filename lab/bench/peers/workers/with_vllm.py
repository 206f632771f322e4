"""vLLM (https://github.com/vllm-project/vllm) on the CPU: its engine in this process, one request at a time.

    plain     as it is          assisted  a draft model, k tokens always          lookup  prompt look-up

Its cache of prompts that came before is off: every text reads its prompt, as every engine's does.
"""

import importlib
import os
from time import perf_counter
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # it works in this process, whose time is watched
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
vllm: Any = importlib.import_module("vllm")


def versions(**given: Any) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    return {"vllm": vllm.__version__}


class Engine:
    """One engine: a model, and a draft or a look-up if wanted."""

    def __init__(
        self, *, model: str, draft: str | None, mode: str, k: int, max_len: int, dtype: str = "auto", **_: Any
    ) -> None:
        self.pids = [os.getpid()]
        guess: dict[str, Any] | None = None
        if mode == "assisted":
            guess = {"method": "draft_model", "model": draft, "num_speculative_tokens": k}
        elif mode == "lookup":
            guess = {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
        self._engine = vllm.LLM(
            model,
            dtype=dtype,
            max_model_len=max_len,
            max_num_seqs=1,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
            speculative_config=guess,
        ).llm_engine
        self._count = 0

    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long."""
        params = vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        self._count += 1
        tokens: list[int] = []
        first, num_first, passes = 0.0, 0, 0
        began = perf_counter()
        self._engine.add_request(str(self._count), {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            for told in self._engine.step():
                tokens, passes = list(told.outputs[0].token_ids), passes + 1
                first, num_first = (first, num_first) if first else (perf_counter() - began, len(tokens))
        seconds = perf_counter() - began
        return {"tokens": tokens, "seconds": seconds, "first_seconds": first, "num_first": num_first, "passes": passes}

    def close(self) -> None:
        """It ends with its process, so there is nothing to close."""
