"""vLLM's CPU backend (https://github.com/vllm-project/vllm): its `LLM` on the directory as it is.

    plain     as it is          assisted  `draft_model`, k tokens always          lookup  `ngram`

Its threads are as many as OMP_NUM_THREADS says, not bound to cores; Intel's OpenMP is loaded first where it is
installed, as vLLM asks for. Its processes may sleep when idle.
"""

import importlib
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

_OPENMP = Path(sys.prefix) / "lib" / "libiomp5.so"
os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SLEEP_WHEN_IDLE": "1"}
if _OPENMP.is_file():  # for the processes that it starts
    os.environ["LD_PRELOAD"] = ":".join(filter(None, [str(_OPENMP), os.environ.get("LD_PRELOAD")]))

psutil: Any = importlib.import_module("psutil")
torch: Any = importlib.import_module("torch")
vllm: Any = importlib.import_module("vllm")


def versions(**given: Any) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    return {"vllm": vllm.__version__, "torch": torch.__version__}


class Engine:
    """One engine and the processes that it started."""

    def __init__(self, *, model: str, draft: str | None, mode: str, k: int, max_len: int, **_: Any) -> None:
        speculation: dict[str, Any] | None = None
        if mode == "assisted":
            speculation = {"method": "draft_model", "model": draft, "num_speculative_tokens": k}
        elif mode == "lookup":
            speculation = {
                "method": "ngram",
                "num_speculative_tokens": k,
                "prompt_lookup_max": 3,
                "prompt_lookup_min": 1,
            }
        self._mode = mode
        self._llm = vllm.LLM(
            model=model,
            max_model_len=max_len,
            max_num_seqs=1,
            enable_prefix_caching=False,
            disable_log_stats=False,
            speculative_config=speculation,
        )
        self.pids = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]

    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long."""
        params = vllm.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        before = self._counters()
        began = perf_counter()
        told = self._llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0]
        seconds = perf_counter() - began
        tokens = list(told.outputs[0].token_ids)
        answer = {
            "tokens": tokens,
            "seconds": seconds,
            "first_seconds": told.metrics.first_token_latency,
            "num_first": 1,
        }
        if self._mode == "plain":
            return answer | {"passes": len(tokens)}
        drafts, drafted, accepted = (int(now - then) for now, then in zip(self._counters(), before, strict=True))
        answer |= {"drafted": drafted, "accepted": accepted}
        return (
            answer | {"passes": 1 + drafts} if self._mode == "assisted" else answer
        )  # look-up passes may go undrafted

    def _counters(self) -> list[float]:
        """Drafts, their tokens, and those accepted, since the start."""
        told = {metric.name: metric for metric in self._llm.get_metrics()}
        names = [f"vllm:spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens")]
        return [told[name].value if name in told else 0.0 for name in names]

    def close(self) -> None:
        """Its processes end with ours."""
