"""What stands beside a tokenizer about its tokens, in one record of the form of tokenizer_config.json.

    tokenizer_config.json       roles (bos_token, ...), added tokens, whether a start token is put first
    special_tokens_map.json     roles, in older directories: read where tokenizer_config.json lists no added tokens,
    added_tokens.json           and so are these, name to id
    chat templates              `template_files`

As AutoTokenizer of transformers 5 reads them, except `add_bos_token`, which it passes over beside a tokenizer.json.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from outdraft.codecs.documents import read_json
from outdraft.codecs.noted import note
from outdraft.codecs.template_files import read_templates
from outdraft.codecs.tokenizer_file import OFF, described_part, steps_of

WRITTEN = ("bos_token", "eos_token", "unk_token", "sep_token", "cls_token")  # a tokenizer or a model may write these
ROLES = (*WRITTEN, "pad_token", "mask_token")
_FILE = "tokenizer_config.json"
_READ = frozenset((
    *ROLES, "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "chat_template",
    "model_specific_special_tokens", "add_bos_token", "split_special_tokens", "tokenizer_class",
))  # fmt: skip
# What they say is about batches, about files that we find by ourselves, or about classes of transformers, whose work a
# tokenizer.json describes completely.
WITHOUT_EFFECT = frozenset((
    "model_max_length", "max_length", "max_len", "padding", "padding_side", "pad_to_multiple_of", "pad_token_type_id",
    "truncation", "truncation_side", "truncation_strategy", "stride", "model_input_names", "name_or_path", "backend",
    "tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file", "processor_class", "is_local",
    "local_files_only", "init_inputs", "use_fast", "from_slow", "verbose", "legacy", "response_schema",
    "response_template", "tokenizer_type", "trim_offsets", "spaces_between_special_tokens", "files_loaded", "unk_id",
))  # fmt: skip
NEVER_ADDED = "the end token is never put behind a prompt, which it would end"
_AS_BYTES = "a text is the bytes of its tokens, and nothing is changed in it"
_PREFIX = "tokenizer.json decides, and says otherwise"
_UNKNOWN = "not read here"
_FORCED = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


def read_settings(directory: Path) -> dict[str, Any]:
    """Raises `ModelLoadError` for a damaged file."""
    said = dict(read_json(directory / _FILE))
    older, added = (read_json(directory / name) for name in ("special_tokens_map.json", "added_tokens.json"))
    if "added_tokens_decoder" in said:
        other = {
            role: token for role, token in older.items() if role in ROLES and _name(token) != _name(said.get(role))
        }
        note(f"{directory.name}/special_tokens_map.json", other, f"left out: {_FILE} lists the tokens")
    else:
        said |= older
        named = {name for name, *_ in named_tokens(said)}
        said["added_tokens_decoder"] = {
            str(number): {"content": name, "special": name in named, "normalized": name not in named}
            for name, number in added.items()
        }
    return {**said, **read_templates(directory, said.get("chat_template"))}


def special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Role to name: bos_token, eos_token, ..., and what else a model calls so, as image_token."""
    named = {role: _name(settings.get(role)) for role in ROLES}
    for table in ("model_specific_special_tokens", "extra_special_tokens"):
        if isinstance(own := settings.get(table), Mapping):
            named |= {str(role): _name(token) for role, token in own.items()}
    named |= {key: _name(value) for key, value in settings.items() if key.endswith("_token") and key not in named}
    return {role: name for role, name in named.items() if name is not None}


def named_tokens(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Each special token: its name, its record or its name as the settings give it, whether it has a role."""
    for role, name in special_tokens(settings).items():
        yield name, settings.get(role, name), True
    listed = settings.get("extra_special_tokens") or settings.get("additional_special_tokens")
    for token in listed if isinstance(listed, list) else ():
        if (own := _name(token)) is not None:
            yield own, token, False


def note_unused(directory: Path, settings: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Note what tokenizer_config.json says and a text does not get."""
    said = {key: value for key, value in settings.items() if value not in OFF and key not in _READ | WITHOUT_EFFECT}
    is_bpe = isinstance(tokenizer.model, models.BPE)
    groups: dict[str, dict[str, Any]] = {NEVER_ADDED: {}, _AS_BYTES: {}, _UNKNOWN: {}}
    for key, value in said.items():
        if key == "add_eos_token":
            groups[NEVER_ADDED][key] = value
        elif key in ("clean_up_tokenization_spaces", "errors", _FORCED):
            if value != "replace" and not (is_bpe and key == "clean_up_tokenization_spaces"):
                groups[_AS_BYTES][key] = value
        elif key != "add_prefix_space" and not (key.endswith("_token") and _name(value) is not None):
            groups[_UNKNOWN][key] = value
    where = f"{directory.name}/{_FILE}"
    for why, values in groups.items():
        note(where, values, why)
    prefix = settings.get("add_prefix_space")
    if isinstance(prefix, bool) and prefix != _puts_space_first(tokenizer):
        note(where, {"add_prefix_space": prefix}, _PREFIX, level=logging.WARNING)


def _puts_space_first(tokenizer: Tokenizer) -> bool:
    """Whether a text gets a space before its first word."""
    normalizer, splitter = described_part(tokenizer.normalizer), described_part(tokenizer.pre_tokenizer)
    for part in [*steps_of(normalizer, "normalizers"), *steps_of(splitter, "pretokenizers")]:
        match part:
            case {"type": "ByteLevel", "add_prefix_space": True} | {"type": "Prepend"}:
                return True
            case {"type": "Metaspace"} if part.get("prepend_scheme", "always") != "never":
                return True
    return False


def _name(token: Any) -> str | None:
    """A token's text; the file gives it as a string or as a record with `content`."""
    name = token.get("content") if isinstance(token, Mapping) else token
    return name if isinstance(name, str) else None
