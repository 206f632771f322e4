"""transformers' own assisted generation with the same two models, for comparison.

The models go through a directory, so that both programs compute the same weights; the assistant agrees nearly always,
as ours does. Timed from the first tokens on, as ours are, so that reading the prompt does not count. Data out: tokens a
second, plain and assisted.
"""

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from lab.gpu.pair import Pair
from lab.gpu.rounds import PROMPT, wait
from outdraft.models.files.load import save_model


def time_transformers(pair: Pair, *, depth: int, tokens: int, repeats: int) -> dict[str, Any]:
    """{"plain": tokens/s, "assisted": tokens/s, "version"}, or {"absent": why}. Leaves the pair on the CPU."""
    if find_spec("transformers") is None:
        return {"absent": "transformers is not installed"}
    import transformers

    from lab.bench.peers.workers.with_transformers import Pieces

    device = pair.target.device
    with TemporaryDirectory() as above:
        loaded: list[Any] = []
        for name, decoder in (("target", pair.target), ("draft", pair.draft)):
            save_model(decoder.to("cpu"), Path(above) / name)
            kind: Any = transformers.AutoModelForCausalLM
            loaded.append(kind.from_pretrained(Path(above) / name, dtype=decoder.dtype).eval().to(device))
    target, draft = loaded
    vocab = pair.target.config.vocab_size
    ids = torch.tensor([[1 + i * 7 % (vocab - 1) for i in range(PROMPT)]], device=device)
    settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
    draft.generation_config.num_assistant_tokens = depth
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    told: dict[str, Any] = {"version": transformers.__version__}
    for label, more in (("plain", {}), ("assisted", {"assistant_model": draft})):
        rates = []
        for repeat in range(repeats + 1):
            pieces = Pieces()
            target.generate(ids, attention_mask=torch.ones_like(ids), streamer=pieces, **settings, **more)
            wait(device)
            rates += [(tokens - pieces.num_first) / (perf_counter() - pieces.first)] if repeat else []
        told[label] = max(rates)
    return told
