"""A `TextCodec` from the metadata of a GGUF file, for byte-level BPE vocabularies (`tokenizer.ggml.model` "gpt2").

How text is cut before merging is named there (`tokenizer.ggml.pre`), not written down; the cuts of the families that we
load are known here. Any other vocabulary is refused: the model's tokenizer.json must stand beside the file.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft.codecs.gguf_ends import end_ids
from outdraft.codecs.text import TextCodec
from outdraft.codecs.token_settings import note_further
from outdraft.codecs.tokenizer_file import described_part, note
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

_NONE = (None, "none", "no_vocab")  # of tokenizer.ggml.model: a model of ids alone
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # of tokenizer.ggml.token_type
_TEMPLATES = "tokenizer.chat_templates"
_CURE = "put the model's tokenizer.json beside it, or download it again"
ROLES = {
    f"{role}_token": f"tokenizer.ggml.{name}_token_id"
    for role, name in {
        "bos": "bos",
        "eos": "eos",
        "unk": "unknown",
        "sep": "seperator",
        "pad": "padding",
        "cls": "cls",
        "mask": "mask",
    }.items()
}
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


def codec_from_gguf(get: Callable[[str], Any], of: str = "the GGUF file") -> TextCodec | None:
    """The codec that the metadata describe; None if they describe none. `get`: the value of a metadata key, None if it
    is absent.

    Raises:
        ModelLoadError: a vocabulary that is damaged, or of a kind that is not read; the message names `of`.
    """
    kind, pre = get("tokenizer.ggml.model"), get("tokenizer.ggml.pre")
    if kind in _NONE:
        return None
    if kind != "gpt2" or not isinstance(pre, str) or pre not in _CUTS:
        raise ModelLoadError(
            f"{of}: its vocabulary (tokenizer.ggml.model={shown(kind)}, tokenizer.ggml.pre={shown(pre)}) is not read, "
            f"only gpt2 with {', '.join(_CUTS)}: put the model's tokenizer.json and tokenizer_config.json beside it"
        )
    names: list[str] = _listed(get, "tokens", str, of)
    merges = [(left, right) for left, _, right in (pair.partition(" ") for pair in _listed(get, "merges", str, of))]
    kinds = _listed(get, "token_type", int, of) if get("tokenizer.ggml.token_type") is not None else [1] * len(names)
    if len(kinds) < len(names):
        raise ModelLoadError(
            f"{of}: tokenizer.ggml.token_type has {len(kinds)} entries for {len(names)} tokens: {_CURE}"
        )
    vocab = {name: i for i, name in enumerate(names)}
    if len(vocab) < len(names):
        twice = next(name for i, name in enumerate(names) if vocab[name] != i)
        raise ModelLoadError(f"{of}: tokenizer.ggml.tokens has {twice!r} twice: {_CURE}")
    ends = [one for one in end_ids(get, of) if 0 <= one < len(names)]
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"{of}: tokenizer.ggml.tokens and .merges do not belong together: {error}") from error
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _CUTS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    special = [name for i, name in enumerate(names) if kinds[i] in (_CONTROL, _UNKNOWN) or i in ends]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    own = {name for name, one in zip(names, kinds, strict=False) if one == _USER_DEFINED}.difference(special)
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in sorted(own)])
    return TextCodec(tokenizer, config=_config(get, pre, of), eos_token_ids=ends)


def pre_of(tokenizer: Tokenizer) -> str | None:
    """The value of tokenizer.ggml.pre by which the same vocabulary cuts texts alike; None: there is none here."""
    for pre, cut in _CUTS.items():
        normalizer = {"type": "NFC"} if pre == "qwen2" else None
        same = described_part(tokenizer.pre_tokenizer) == described_part(cut())
        if same and described_part(tokenizer.normalizer) == normalizer:
            return pre
    return None


def _listed(get: Callable[[str], Any], name: str, kind: type, of: str) -> list[Any]:
    key = f"tokenizer.ggml.{name}"
    if get(key) is None:
        raise ModelLoadError(f"{of} has no {key}, without which its vocabulary is not whole: {_CURE}")
    return list(check_value(key, get(key), Seq[kind], of=of, error=ModelLoadError))  # type: ignore[valid-type]


def read_roles(get: Callable[[str], Any], of: str = "the GGUF file") -> dict[str, Any]:
    """The chat templates and the tokens that have a role, as a tokenizer_config.json would say."""
    names = _listed(get, "tokens", str, of) if get("tokenizer.ggml.tokens") is not None else []
    config: dict[str, Any] = {"chat_template": get("tokenizer.chat_template")}
    further = check_value(_TEMPLATES, get(_TEMPLATES), Seq[str] | None, of=of, error=ModelLoadError) or ()
    if further and config["chat_template"] is not None:
        named = {"default": config["chat_template"]} | {
            name: get(f"tokenizer.chat_template.{name}") for name in further
        }
        config["chat_template"] = [{"name": name, "template": text} for name, text in named.items() if text is not None]
        note_further(of, config["chat_template"])
    beyond = {}
    for role, key in ROLES.items():
        token = check_value(key, get(key), int | None, of=of, error=ModelLoadError)
        if token is None:
            continue
        if 0 <= token < len(names):
            config[role] = names[token]
        else:
            beyond[key] = token
    note(of, beyond, f"left out: there are {len(names)} tokens")
    return config


def _config(get: Callable[[str], Any], pre: str, of: str) -> dict[str, Any]:
    config, key = read_roles(get, of), "tokenizer.ggml.add_bos_token"
    add_bos = check_value(key, get(key), bool | None, of=of, error=ModelLoadError)
    config["add_bos_token"] = "bos_token" in config and (pre == "llama-bpe" if add_bos is None else add_bos)
    return config
