"""Tokens that a text is searched for before it is cut, as the files beside a tokenizer list and name them.

A token that has a role (`eos_token`, ...) is special: found in any text, and never shown.
"""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from tokenizers import AddedToken, Tokenizer

from outdraft.codecs.token_settings import named_tokens
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

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
