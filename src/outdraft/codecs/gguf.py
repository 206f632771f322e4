"""A `TextCodec` from the metadata of a GGUF file, for byte-level BPE vocabularies (`tokenizer.ggml.model` "gpt2").

How text is cut before merging is named there (`tokenizer.ggml.pre`), not written down; the cuts of the families that we
load are known here. For any other vocabulary there is no codec: the model's tokenizer.json must stand beside the file.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft.codecs.gguf_ends import CONTROL, end_ids
from outdraft.codecs.text import TextCodec
from outdraft.core.checked import check_value
from outdraft.core.errors import ModelLoadError

_USER_DEFINED = 4  # of tokenizer.ggml.token_type
# Words with their contraction, digits (Qwen: one by one, Llama 3: up to three), marks, line ends, blanks.
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _split(digits: str) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(_CUT.replace("DIGITS", digits)), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _digits_apart() -> pre_tokenizers.PreTokenizer:
    single = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([single, pre_tokenizers.ByteLevel(add_prefix_space=False)])


_CUTS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "qwen2": lambda: _split(""),
    "llama-bpe": lambda: _split("{1,3}"),
    "smollm": _digits_apart,
}


def codec_from_gguf(get: Callable[[str], Any]) -> TextCodec | None:
    """The codec that the metadata describe, or None. `get`: the value of a metadata key, None if it is absent.

    Raises:
        ModelLoadError: the vocabulary is damaged.
    """
    pre = get("tokenizer.ggml.pre")
    if get("tokenizer.ggml.model") != "gpt2" or not isinstance(pre, str) or pre not in _CUTS:
        return None
    names: list[str] = _listed(get, "tokens", str)
    merges = [(left, right) for left, _, right in (pair.partition(" ") for pair in _listed(get, "merges", str))]
    ends = [one for one in end_ids(get, "the GGUF file") if 0 <= one < len(names)]
    try:
        vocab = {name: i for i, name in enumerate(names)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"the GGUF file's tokens and merges do not belong together: {error}") from error
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _CUTS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    for name, kind in zip(names, _listed(get, "token_type", int), strict=False):
        if kind == CONTROL:
            tokenizer.add_special_tokens([AddedToken(name, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(name, normalized=False)])
    return TextCodec(tokenizer, config=_config(get, pre), eos_token_ids=ends)


def _listed(get: Callable[[str], Any], name: str, kind: type) -> list[Any]:
    key = f"tokenizer.ggml.{name}"
    return list(check_value(key, get(key) or (), Seq[kind], of="the GGUF file", error=ModelLoadError))  # type: ignore[valid-type]


def read_roles(get: Callable[[str], Any]) -> dict[str, Any]:
    """The chat template and the start and end token, as a tokenizer_config.json would say."""
    names = _listed(get, "tokens", str)
    config: dict[str, Any] = {"chat_template": get("tokenizer.chat_template")}
    for role in ("bos", "eos"):
        token = get(f"tokenizer.ggml.{role}_token_id")
        if isinstance(token, int) and 0 <= token < len(names):
            config[f"{role}_token"] = names[token]
    return config


def _config(get: Callable[[str], Any], pre: str) -> dict[str, Any]:
    config = read_roles(get)
    add_bos = get("tokenizer.ggml.add_bos_token")
    config["add_bos_token"] = pre == "llama-bpe" if add_bos is None else add_bos
    if "bos_token" not in config:
        config["add_bos_token"] = False
    return config
