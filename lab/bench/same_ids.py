"""`python -m lab.bench.same_ids --out FILE.json`: are our greedy ids those of transformers, both in float32?

200 questions of the suite `real` as SmolLM2's chats, 64 tokens each. Ours computes the GGUF file's weights in float32,
plainly and with what drafts by default; transformers the same numbers, in one pass over each question and our text. If
its best token is ours at every position, then its own greedy decoding writes this text, by induction. Where it is not,
it prints by how much its logits of the two tokens differ. Nothing is timed; an interrupted run goes on.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch

from lab.bench.peers.gguf_target import whole
from lab.bench.peers.texts import first_difference, read_prompts
from outdraft.bench.shelf import Shelf
from outdraft.engine.llm import LLM
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams
from outdraft.weights.hub import resolve

PLAIN, DEFAULT = "none", "default"
_BATCH = 20  # questions between two writings of the record


def compare(logits: torch.Tensor, tokens: Seq[int]) -> dict[str, Any] | None:  # logits: [T, V]
    """Where the best token first is not ours, which it is, and by how much its logit is larger; None: nowhere."""
    best = logits.argmax(-1).tolist()
    index = first_difference(best, tokens)
    if index is None:
        return None
    margin = logits[index, best[index]] - logits[index, tokens[index]]
    return {"index": index, "ours": tokens[index], "theirs": best[index], "margin": float(margin)}


def closest(logits: torch.Tensor) -> float:  # logits: [T, V]
    """The smallest difference of the best two logits of any position."""
    best = logits.topk(2, -1).values
    return float((best[:, 0] - best[:, 1]).min())


def says(found: Seq[dict[str, Any]]) -> str:
    """Sentences for the page, from the entries of a record."""
    count = len(found)
    apart = [one["apart"] for one in found if one["apart"] is not None]
    drafted = sum(one["drafted"] is None for one in found)
    told = (
        f"{count - len(apart)} of {count} texts are transformers' own; {drafted} of {count} are the same with drafts.\n"
    )
    told += f"The nearest two logits of any position are {min(one['closest'] for one in found):.6f} apart.\n"
    for one in apart:
        told += f"From token {one['index']} on another text: its logits differ by {one['margin']:.6f}.\n"
    return told


def main(words: Seq[str] | None = None) -> int:
    """Compare what is not in the record, and show it; 2 for what cannot be had."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m lab.bench.same_ids", description=summary)
    parser.add_argument("--model", default="smollm2", help="a GGUF file")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--cache", metavar="DIR", help="where made files are kept (default: ~/.cache/outdraft)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="the record")
    asked = parser.parse_args(words)
    try:
        target = resolve(asked.model)
        prompts = read_prompts(target, asked.prompts)
        found = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        missing = [name for name in prompts if name not in found]
        if missing:
            engines = [LLM(target, dtype="float32", drafter=PLAIN), LLM(target, dtype="float32")]
            theirs = load_theirs(whole(target, "float32", Shelf(asked.cache)))
        for first in range(0, len(missing), _BATCH):
            names = missing[first : first + _BATCH]
            some = [prompts[name] for name in names]
            plain, drafted = (write(llm, some, asked.tokens) for llm in engines)
            for name, ids, own, other in zip(names, some, plain, drafted, strict=True):
                logits = score(theirs, ids, own)
                apart = {"apart": compare(logits, own), "drafted": first_difference(other, own)}
                found[name] = {"tokens": own, **apart, "closest": closest(logits)}
            asked.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(says(list(found.values())))
    return 0


def write(llm: LLM, prompts: Seq[Seq[int]], tokens: int) -> list[list[int]]:
    """Greedy texts of one length."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    return [list(one.token_ids) for one in llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)]


def load_theirs(directory: Path) -> Any:
    """transformers' own network."""
    import transformers

    network: Any = transformers.AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)
    return network.eval()


@torch.inference_mode()
def score(theirs: Any, ids: Seq[int], tokens: Seq[int]) -> torch.Tensor:
    """Its logits before each of `tokens` [T, V]."""
    whole_text = torch.tensor([[*ids, *tokens]])
    scored: torch.Tensor = theirs(whole_text).logits[0, len(ids) - 1 : -1]
    return scored


if __name__ == "__main__":
    sys.exit(main())
