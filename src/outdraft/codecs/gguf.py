"""A `TextCodec` from the metadata of a GGUF file, as llama.cpp reads its vocabulary.

    tokenizer.ggml.model   gpt2            byte-level BPE, cut as tokenizer.ggml.pre says    (`gguf_cuts`)
                           llama, gemma4   marked blanks and raw bytes                       (`gguf_spm`)

Any other vocabulary is refused: the model's tokenizer.json must stand beside the file.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer

from outdraft.codecs.gguf_cuts import CUTS, byte_level
from outdraft.codecs.gguf_ends import end_ids
from outdraft.codecs.gguf_spm import marked, merges_of
from outdraft.codecs.text import TextCodec
from outdraft.codecs.token_settings import note_further
from outdraft.codecs.tokenizer_file import note
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

_NONE = (None, "none", "no_vocab")  # of tokenizer.ggml.model: a model of ids alone
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # of tokenizer.ggml.token_type
_OTHERS = {"bert": "WordPiece", "t5": "Unigram", "rwkv": "RWKV", "plamo2": "PLaMo 2"}
_MARKED = ("llama", "gemma4")
_SPM_ROLES = {"unk_token": 0, "bos_token": 1, "eos_token": 2}  # of SentencePiece, where the file names none
_TEMPLATES = "tokenizer.chat_templates"
_CURE = "put the model's tokenizer.json beside it, or download it again"
_CALLED = {"unk": "unknown", "sep": "seperator", "pad": "padding"}  # roles that have another name in keys
ROLES = {
    f"{role}_token": f"tokenizer.ggml.{_CALLED.get(role, role)}_token_id"
    for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
}


def codec_from_gguf(get: Callable[[str], Any], of: str = "the GGUF file") -> TextCodec | None:
    """The codec that the metadata describe; None if they describe none. `get`: the value of a metadata key, None if it
    is absent.

    Raises:
        ModelLoadError: a vocabulary that is damaged, or of a kind that is not read; the message names `of`.
    """
    get = cache(get)  # a file decodes a list whenever it is asked for it
    if get("tokenizer.ggml.model") in _NONE:
        return None
    _require_known(get, of)
    names, config = _names(get, of), read_roles(get, of)
    is_typed = get("tokenizer.ggml.token_type") is not None
    kinds = _per_token(get, "token_type", int, len(names), of) if is_typed else [NORMAL] * len(names)
    vocab = {name: i for i, name in enumerate(names)}
    if len(vocab) < len(names):
        twice = next(name for i, name in enumerate(names) if vocab[name] != i)
        raise ModelLoadError(f"{of}: tokenizer.ggml.tokens has {twice!r} twice: {_CURE}")
    ends = [one for one in end_ids(get, of) if 0 <= one < len(names)]
    tokenizer = _tokenizer(get, of, vocab, kinds, config.get("unk_token"))
    special = [name for i, name in enumerate(names) if kinds[i] in (CONTROL, UNKNOWN) or i in ends]
    own = {name for name, one in zip(names, kinds, strict=False) if one == USER_DEFINED}.difference(special)
    strips = _strips(get)
    tokenizer.add_special_tokens([AddedToken(one, normalized=False, rstrip=strips(one)) for one in special])
    tokenizer.add_tokens([AddedToken(one, normalized=False, rstrip=strips(one)) for one in sorted(own)])
    return TextCodec(tokenizer, config={**config, "add_bos_token": _starts(get, config, of)}, eos_token_ids=ends)


def _require_known(get: Callable[[str], Any], of: str) -> None:
    kind, pre = get("tokenizer.ggml.model"), get("tokenizer.ggml.pre")
    if kind in _MARKED or (kind == "gpt2" and isinstance(pre, str) and pre in CUTS):
        return
    if kind == "gpt2":
        why = (
            f"tokenizer.ggml.pre={shown(pre)}) is not read: it says how a text is cut into words, and that is not known"
        )
    else:
        form = f", which is {_OTHERS[kind]}" if isinstance(kind, str) and kind in _OTHERS else ""
        why = f"tokenizer.ggml.model={shown(kind)}{form}) is not read, only gpt2, {', '.join(_MARKED)}"
    raise ModelLoadError(
        f"{of}: its vocabulary ({why}: put the model's tokenizer.json and tokenizer_config.json beside it"
    )


def _tokenizer(
    get: Callable[[str], Any], of: str, vocab: dict[str, int], kinds: Seq[int], unknown: str | None
) -> Tokenizer:
    """Without added tokens."""
    kind = get("tokenizer.ggml.model")
    if kind == "llama":
        scores = _per_token(get, "scores", float, len(vocab), of)
        merges = merges_of({name: i for name, i in vocab.items() if kinds[i] != BYTE}, scores)
    else:
        pairs = (pair.partition(" ") for pair in _listed(get, "merges", str, of))
        merges = [(left, right) for left, _, right in pairs]
    leading = kind == "llama" and _flag(get, "add_space_prefix", of, True)
    try:
        if kind == "gpt2":
            return byte_level(vocab, merges, CUTS[get("tokenizer.ggml.pre")])
        return marked(vocab, merges, unknown=unknown, leading=leading)
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"{of}: tokenizer.ggml.tokens and .merges do not belong together: {error}") from error


def _starts(get: Callable[[str], Any], config: Mapping[str, Any], of: str) -> bool:
    """Whether a text has a start token: Gemma 4's always, as in llama.cpp, whose first files say otherwise."""
    kind = get("tokenizer.ggml.model")
    usual = kind in _MARKED or CUTS[get("tokenizer.ggml.pre")].starts
    return "bos_token" in config and (_flag(get, "add_bos_token", of, usual) or kind == "gemma4")


def _strips(get: Callable[[str], Any]) -> Callable[[str], bool]:
    """Whether blanks behind an added token are its own, as Phi-3's tokenizer says and its GGUF files do not."""
    named = (str(get(key)).lower() for key in ("general.architecture", "general.name"))
    is_phi3 = get("tokenizer.ggml.model") == "llama" and any("phi3" in re.sub("[ -]", "", one) for one in named)
    return lambda name: is_phi3 and name not in ("<s>", "<unk>", "<|endoftext|>")


def _flag(get: Callable[[str], Any], name: str, of: str, usual: bool) -> bool:
    key = f"tokenizer.ggml.{name}"
    said: bool | None = check_value(key, get(key), bool | None, of=of, error=ModelLoadError)
    return usual if said is None else said


def _per_token(get: Callable[[str], Any], name: str, kind: type, tokens: int, of: str) -> list[Any]:
    values = _listed(get, name, kind, of)
    if len(values) < tokens:
        raise ModelLoadError(f"{of}: tokenizer.ggml.{name} has {len(values)} entries for {tokens} tokens: {_CURE}")
    return values


def _names(get: Callable[[str], Any], of: str) -> list[str]:
    return [name or f"[EMPTY_{i}]" for i, name in enumerate(_listed(get, "tokens", str, of))]


def _listed(get: Callable[[str], Any], name: str, kind: type, of: str) -> list[Any]:
    key = f"tokenizer.ggml.{name}"
    if get(key) is None:
        raise ModelLoadError(f"{of} has no {key}, without which its vocabulary is not whole: {_CURE}")
    return list(check_value(key, get(key), Seq[kind], of=of, error=ModelLoadError))  # type: ignore[valid-type]


def read_roles(get: Callable[[str], Any], of: str = "the GGUF file") -> dict[str, Any]:
    """The chat templates and the tokens that have a role, as a tokenizer_config.json would say."""
    names = _names(get, of) if get("tokenizer.ggml.tokens") is not None else []
    usual = _SPM_ROLES if get("tokenizer.ggml.model") == "llama" else {}
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
        if (token := usual.get(role) if token is None else token) is None:
            continue
        if 0 <= token < len(names):
            config[role] = names[token]
        else:
            beyond[key] = token
    note(of, beyond, f"left out: there are {len(names)} tokens")
    return config
