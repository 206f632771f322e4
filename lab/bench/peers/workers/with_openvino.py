"""OpenVINO GenAI (https://github.com/openvinotoolkit/openvino.genai): its `LLMPipeline` on the CPU.

    plain     as it is          assisted  a draft model, k tokens always          lookup  prompt look-up

optimum-intel's own exporter writes the model in OpenVINO's form, and rounds it by its own defaults. Its cache of
prompts that came before is off, for the draft model too: every text reads its prompt, as every engine's does.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

numpy: Any = importlib.import_module("numpy")
openvino: Any = importlib.import_module("openvino")
genai: Any = importlib.import_module("openvino_genai")


def versions(**given: Any) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    return {"openvino": openvino.__version__, "openvino-genai": genai.__version__}


def export(*, source: str, out: str, rounding: str, **_: Any) -> None:
    """A model directory in OpenVINO's form: `rounding` is fp16, int8 or int4."""
    tool = Path(sys.executable).with_name("optimum-cli")
    if not tool.is_file():
        raise FileNotFoundError(f"{tool} (pip install 'optimum-intel[openvino]')")
    words = ["export", "openvino", "--model", source, "--task", "text-generation-with-past"]
    subprocess.run([tool, *words, "--weight-format", rounding, out], check=True)


class Engine:
    """One OpenVINO pipeline: a model, and a draft or a look-up if wanted."""

    def __init__(self, *, model: str, draft: str | None, mode: str, k: int, threads: int, **_: Any) -> None:
        self.pids = [os.getpid()]
        schedule = genai.SchedulerConfig()
        schedule.enable_prefix_caching = False
        schedule.max_num_batched_tokens = sys.maxsize  # a prompt is read whole, as by its own default
        options: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "scheduler_config": schedule}
        self._k = k if mode in ("assisted", "lookup") else 0
        self._lookup = mode == "lookup"
        if mode == "assisted":
            options["draft_model"] = genai.draft_model(
                draft, "CPU", INFERENCE_NUM_THREADS=threads, scheduler_config=schedule
            )
        elif mode == "lookup":
            options["prompt_lookup"] = True
        self._pipe = genai.LLMPipeline(model, "CPU", **options)

    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long."""
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        if self._k:
            config.num_assistant_tokens = self._k
        if self._lookup:
            config.max_ngram_size = 3
        ids = numpy.array([prompt], dtype=numpy.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        began = perf_counter()
        told = self._pipe.generate(inputs, config)
        seconds = perf_counter() - began
        tokens = [int(token) for token in told.tokens[0]]
        first = told.perf_metrics.get_ttft().mean / 1000
        answer = {"tokens": tokens, "seconds": seconds, "first_seconds": min(first, seconds), "num_first": 1}
        if not self._k:
            return answer | {"passes": len(tokens)}
        more = told.extended_perf_metrics
        if more is not None:
            accepted = more.get_num_accepted_tokens()
            answer |= {"passes": len(tokens) - accepted, "accepted": accepted}
        return answer

    def close(self) -> None:
        """The pipeline ends with its process, so there is nothing to close."""
