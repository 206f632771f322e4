"""What stands beside a tokenizer about its tokens, its chat templates and the ends of a text.

    tokenizer_config.json       roles (bos_token, ...), added tokens, whether a start token is put first
    special_tokens_map.json     roles, in older directories: read where tokenizer_config.json lists no added tokens,
    added_tokens.json           and so are these, name to id
    generation_config.json      which tokens end a text; its defaults of sampling are for each request to give, and what
                                would keep tokens out of a text, or put them in, is not applied; both are noted

A chat template is taken from the first of these, as in transformers 5; others that differ from it are noted:

    chat_template.jinja, additional_chat_templates/NAME.jinja       together: the default, and others by name
    tokenizer_config.json
    chat_template.json, processor_config.json                       of processors for pictures; where nothing else is

All as AutoTokenizer of transformers 5 reads it, except `add_bos_token`, which it passes over beside a tokenizer.json.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from outdraft.codecs.tokenizer_file import OFF, described_part, note, read_json, read_text, steps_of
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

WRITTEN = ("bos_token", "eos_token", "unk_token", "sep_token", "cls_token")  # a tokenizer or a model may write these
ROLES = (*WRITTEN, "pad_token", "mask_token")
_FILE = "tokenizer_config.json"
_READ = frozenset(ROLES) | set(
    """
    added_tokens_decoder additional_special_tokens extra_special_tokens chat_template model_specific_special_tokens
    add_bos_token split_special_tokens tokenizer_class
    """.split()
)
# What they say is about batches, about files that we find by ourselves, or about classes of transformers, whose work a
# tokenizer.json describes completely.
WITHOUT_EFFECT = frozenset(
    """
    model_max_length max_length max_len padding padding_side pad_to_multiple_of pad_token_type_id truncation
    truncation_side truncation_strategy stride model_input_names name_or_path backend tokenizer_file vocab_file
    merges_file special_tokens_map_file processor_class is_local local_files_only init_inputs use_fast from_slow
    verbose legacy response_schema response_template tokenizer_type trim_offsets spaces_between_special_tokens
    files_loaded unk_id
    """.split()
)
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


FOLDER = "additional_chat_templates"
_OF_PROCESSORS = ("chat_template.json", "processor_config.json")
_TAKEN = ("default", "tool_use")


def read_templates(directory: Path, said: Any) -> Mapping[str, Any]:
    """{"chat_template": a text, or a list of named ones}; {} if there is none. `said`: what tokenizer_config.json says.

    Raises `ModelLoadError` for a damaged file.
    """
    found: dict[str, Any] = {}
    own = {path.stem: read_text(path) for path in sorted((directory / FOLDER).glob("*.jinja"))}
    if os.path.lexists(main := directory / "chat_template.jinja"):
        own["default"] = read_text(main)
    if own and "default" not in own and isinstance(said, str):
        own["default"], said = said, None
    if own:
        found["chat_template.jinja"] = _listed(own) if set(own) != {"default"} else own["default"]
    if said is not None:
        found["tokenizer_config.json"] = said
    for name in _OF_PROCESSORS:
        template = read_json(directory / name).get("chat_template")
        if template is not None:
            found[name] = _listed(template) if isinstance(template, Mapping) else template
    if not found:
        return {}
    taken, template = next(iter(found.items()))
    for name, other in found.items():
        if other != template:
            where, why = f"{directory.name}/{name}", f"left out: the template of {taken} is taken"
            note(where, {"chat_template": other}, why, level=logging.WARNING)
    note_further(f"{directory.name}/{taken}", template)
    return {"chat_template": template}


def note_further(where: str, template: Any) -> None:
    """Note which of several named templates no conversation is written by."""
    entries = [one for one in template if isinstance(one, Mapping)] if isinstance(template, list) else []
    named = {str(one["name"]): one["template"] for one in entries if {"name", "template"} <= set(one)}
    unused = {name: text for name, text in named.items() if name not in _TAKEN}
    note(where, unused, "left out: a conversation is written by default or tool_use alone")


def _listed(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "template": template} for name, template in named.items()]


_GENERATION = "generation_config.json"


def _neutral(*rows: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Key -> the values that change nothing: None, and those behind the keys of its row."""
    return {key: (None, *off) for keys, *off in rows for key in keys.split()}


_SAMPLING = _neutral(  # settings that a request has by the same or another name
    ("do_sample", False),
    ("temperature top_p typical_p repetition_penalty num_return_sequences guidance_scale", 1),
    ("top_k min_p min_length min_new_tokens", 0),
    ("max_length max_new_tokens",),
    ("stop_strings bad_words_ids", []),
    ("sequence_bias", [], {}),
)
_CHANGES = _neutral(  # other tokens than those of the distribution that a request asks for
    ("suppress_tokens begin_suppress_tokens forced_decoder_ids constraints force_words_ids", []),
    ("forced_bos_token_id forced_eos_token_id decoder_start_token_id watermarking_config",),
    ("penalty_alpha dola_layers exponential_decay_length_penalty top_h",),
    ("no_repeat_ngram_size encoder_no_repeat_ngram_size diversity_penalty epsilon_cutoff eta_cutoff", 0),
    ("encoder_repetition_penalty num_beams num_beam_groups length_penalty", 1),
    ("token_healing", False),
)


def read_ends(directory: Path, otherwise: Iterable[int]) -> list[int]:
    """Ids of the tokens that end a text; `otherwise`: where the file is not there, or names none.

    Raises `ModelLoadError` for a damaged file, or for ids that are none.
    """
    said = read_json(directory / _GENERATION)
    where = f"{directory.name}/{_GENERATION}"
    asked, changes = (
        {key: value for key, value in said.items() if key in table and value not in table[key]}
        for table in (_SAMPLING, _CHANGES)
    )
    note(where, asked, "not the defaults here: give them with each request")
    note(where, changes, "not applied: the text follows the model's own distribution", level=logging.WARNING)
    eos = said.get("eos_token_id")
    ids = list(otherwise) if eos is None else eos if isinstance(eos, list) else [eos]
    return list(check_value("eos_token_id", ids, Seq[int], of=where, error=ModelLoadError))


_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")


def add_tokens(tokenizer: Tokenizer, settings: Mapping[str, Any], cure: str) -> None:
    """Raises `ModelLoadError`, which ends with `cure`, for a token whose id is not the one that the settings give."""
    there = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    ids: dict[str, int] = {}
    wanted: dict[str, AddedToken] = {}
    for number, record in sorted(_numbered(settings.get("added_tokens_decoder") or {}), key=itemgetter(0)):
        name = record["content"]
        stays = name in there and there[name].special
        ids[name], wanted[name] = number, _token(name, {**record, "special": stays or record.get("special")})
    for name, given, has_role in named_tokens(settings):
        known = wanted.get(name, there.get(name))
        if known is None:
            wanted[name] = _token(name, {**given, "special": True} if isinstance(given, Mapping) else {"special": True})
        elif has_role and not known.special:
            wanted[name] = _token(name, {flag: getattr(known, flag) for flag in _FLAGS} | {"special": True})
    tokenizer.add_tokens([token for name, token in wanted.items() if repr(token) != repr(there.get(name))])
    for name, number in ids.items():
        if (got := tokenizer.token_to_id(name)) != number:
            raise ModelLoadError(f"the added token {name!r} has the id {number}, and would get the id {got}: {cure}")


def _numbered(listed: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Ids and records. Raises `ModelLoadError` for an entry that is neither."""
    for number, record in listed.items() if isinstance(listed, Mapping) else [(listed, None)]:
        if not (str(number).isdecimal() and isinstance(record, Mapping) and isinstance(record.get("content"), str)):
            raise ModelLoadError(
                f"added_tokens_decoder: {shown(number)}: {shown(record)} must be an id and a record with the token's "
                "content: take the file from the model again"
            )
        yield int(number), record


def _token(name: str, record: Mapping[str, Any]) -> AddedToken:
    try:
        return AddedToken(name, **{flag: bool(record[flag]) for flag in _FLAGS if flag in record})
    except UnicodeEncodeError as error:
        raise ModelLoadError(f"the added token {name!r} holds half a character") from error
