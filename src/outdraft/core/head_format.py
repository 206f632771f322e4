"""File formats of heads that other projects use: recognise such a directory, read it, write it, and name its servers.

    directory of any project -- read --> the method's own network -- write --> directory of another project

A method with such directories has a module `formats`, and names them in its `LearnMethod`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from torch import dtype

Net = TypeVar("Net")
Target = TypeVar("Target")  # as a network, or as an engine shows it
Whole = TypeVar("Whole")  # as a network


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFormat(Generic[Net, Target, Whole]):
    """One layout of files for one kind of network.

    read: the directory, the target, in an engine or not, and the type wanted (None: as stored) -> the network.
    write: the network, its target, the name under which others find that target, and where to; None: it is only read.
    """

    name: str  # what `outdraft convert --to` calls it
    summary: str
    matches: Callable[[Path], bool]  # by names and keys: reads no weights, raises nothing
    read: Callable[[Path, Target, dtype | None], Net]
    write: Callable[[Net, Whole, str, Path], None] | None
    # Whether `convert` only renames what lies there, because it is inside a whole model or of layers that outdraft does
    # not run: `read` and `write` then get None for the target, which may be one that does not load
    by_name: Callable[[Path], bool] = field(default=lambda directory: False)
    served: Mapping[str, str] = field(default_factory=dict)  # server -> the line that serves {target} with {out}


def served_here(drafter: str) -> str:
    """The line that drafts with it here."""
    return f"outdraft generate PROMPT --model {{target}} --drafter {drafter} --drafter-options model={{out}}"


def served_by_vllm(method: str, num_tokens: int) -> str:
    """The line of vLLM for a draft that does not name its target."""
    told = f'{{"method": "{method}", "model": "{{out}}", "num_speculative_tokens": {num_tokens}}}'
    return f"vllm serve {{target}} --speculative-config '{told}'"


def served_by_sglang(algorithm: str, num_steps: int = 0) -> str:
    """The line of SGLang, in chains. 0: the draft's own length."""
    line = (
        f"python -m sglang.launch_server --model-path {{target}} --speculative-algorithm {algorithm} "
        "--speculative-draft-model-path {out}"
    )
    chain = f" --speculative-num-steps {num_steps} --speculative-eagle-topk 1"
    return f"{line}{chain} --speculative-num-draft-tokens {num_steps + 1}" if num_steps else line
