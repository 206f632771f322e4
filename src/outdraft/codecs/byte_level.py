"""A tokenizer from vocab.json and merges.txt, as GPT-2 and the first Qwen directories hold it, without tokenizer.json.

The two files do not say how text is split before merging: that stands in the code of the class that
tokenizer_config.json names (`tokenizer_class`), so classes that are not known here are refused, not guessed.
Sources: GPT-2 (Radford et al., 2019, https://github.com/openai/gpt-2), Qwen2 (https://github.com/QwenLM/Qwen2.5).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft.core.errors import ModelLoadError
from outdraft.core.shown import shown

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2, _QWEN2 = "GPT2Tokenizer", "Qwen2Tokenizer"
_END = "<|endoftext|>"


def byte_level(names: Mapping[str, int], merges: str, config: Mapping[str, Any], added: Mapping[str, Any]) -> Tokenizer:
    """names: vocab.json; merges: merges.txt; config: tokenizer_config.json; added: added_tokens.json, name to id.

    Raises `ModelLoadError` for files that do not fit together, or for a class that splits text otherwise.
    """
    kind = str(config.get("tokenizer_class") or _GPT2).removesuffix("Fast")
    if kind not in (_GPT2, _QWEN2):
        raise ModelLoadError(
            f"tokenizer_class={shown(kind)} is not read from vocab.json and merges.txt, only from a tokenizer.json; "
            + cure()
        )
    lines = (line.partition(" ") for line in merges.splitlines() if not line.startswith("#version:"))
    try:
        tokenizer = Tokenizer(models.BPE(vocab=dict(names), merges=[(one, two) for one, _, two in lines if two]))
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"vocab.json and merges.txt do not belong together: {error}") from error
    if kind == _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN_SPLIT), "isolated")
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    tokenizer.decoder = decoders.ByteLevel()
    _add(tokenizer, config, added)
    return tokenizer


def _add(tokenizer: Tokenizer, config: Mapping[str, Any], added: Mapping[str, Any]) -> None:
    """Tokens that text is searched for before it is split, each under the id that its file gives it."""
    wanted = {
        str(name): (number, AddedToken(str(name), special=True, normalized=False)) for name, number in added.items()
    }
    told = config.get("added_tokens_decoder")
    for number, token in (told if isinstance(told, Mapping) else {}).items():
        if isinstance(token, Mapping) and isinstance(token.get("content"), str) and str(number).isdecimal():
            flags = {key: bool(token.get(key)) for key in ("special", "normalized", "lstrip", "rstrip", "single_word")}
            wanted[token["content"]] = (int(number), AddedToken(token["content"], **flags))
    if _END not in wanted and (there := tokenizer.token_to_id(_END)) is not None:
        wanted[_END] = (there, AddedToken(_END, special=True, normalized=False))
    for name, (number, token) in sorted(wanted.items(), key=lambda item: item[1][0]):
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(name) != number:
            raise ModelLoadError(
                f"the added token {name!r} has the id {number}, and ids before it are not there; {cure()}"
            )


def cure(directory: Path | None = None) -> str:
    """How somebody gets a tokenizer.json."""
    place = repr(str(directory or "DIR"))
    return (
        "write it once with transformers: "
        f'python -c "from transformers import AutoTokenizer as T; T.from_pretrained({place}).save_pretrained({place})"'
    )


def find_unread(directory: Path) -> str | None:
    """The file of a tokenizer in a form that is not read here; None: there is none."""
    forms = ("tokenizer.model", "tekken.json", "spiece.model", "vocab.txt", "vocab.json")
    return next((name for name in forms if (directory / name).is_file()), None)
