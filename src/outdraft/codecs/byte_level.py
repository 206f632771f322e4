"""A tokenizer from vocab.json and merges.txt, as GPT-2 and the first Qwen directories hold it, without tokenizer.json.

The two files do not say how text is split before merging: that stands in the code of the class that
tokenizer_config.json names (`tokenizer_class`), so classes that are not known here are refused, not guessed.
Sources: GPT-2 (Radford et al., 2019, https://github.com/openai/gpt-2), Qwen2 (https://github.com/QwenLM/Qwen2.5).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from outdraft.codecs.gguf_cuts import CUTS
from outdraft.codecs.gguf_cuts import byte_level as cut_bytes
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

_GPT2 = "GPT2Tokenizer"
_CUTS = {_GPT2: "gpt-2", "Qwen2Tokenizer": "qwen2"}  # class -> how `gguf_cuts` calls its way
_END = "<|endoftext|>"


def byte_level(names: Mapping[str, int], merges: str, config: Mapping[str, Any]) -> Tokenizer:
    """names: vocab.json; merges: merges.txt; config: tokenizer_config.json.

    Raises `ModelLoadError` for files that do not fit together, or for a class that splits text otherwise.
    """
    kind = str(config.get("tokenizer_class") or _GPT2).removesuffix("Fast")
    if kind not in _CUTS:
        raise ModelLoadError(
            f"tokenizer_class={shown(kind)} is not read from vocab.json and merges.txt, only from a tokenizer.json; "
            + cure()
        )
    lines = (line.partition(" ") for line in merges.splitlines() if not line.startswith("#version:"))
    try:
        tokenizer = cut_bytes(names, [(one, two) for one, _, two in lines if two], CUTS[_CUTS[kind]])
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"vocab.json and merges.txt do not belong together: {error}") from error
    if kind == _GPT2 and config.get("add_prefix_space"):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if _END in names:
        tokenizer.add_special_tokens([AddedToken(_END, normalized=False)])
    return tokenizer


def cure(directory: Path | None = None) -> str:
    """How the user gets a tokenizer.json."""
    place = repr(str(directory or "DIR"))
    return (
        "write it once with transformers: "
        f'python -c "from transformers import AutoTokenizer as T; T.from_pretrained({place}).save_pretrained({place})"'
    )


def find_unread(directory: Path) -> str | None:
    """The file of a tokenizer in a form that is not read here; None: there is none."""
    forms = ("tokenizer.model", "tekken.json", "spiece.model", "vocab.txt", "vocab.json")
    return next((name for name in forms if (directory / name).is_file()), None)
