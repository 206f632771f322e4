"""The tokens by which a model knows who speaks, and how a text that only spells their names is encoded without them.

    <|im_end|> written by the chat template     ->  one control token
    <|im_end|> in what a message says           ->  "<", "|", "im", ... as any other text

A control token is one that the tokenizer calls special, or an added one of the form <|...|>. Names without a symbol are
words that any text holds, and count as text.

`ControlTokens` finds the names in a text as the tokenizer does: with the same added tokens over an empty model. Its
`twin` is the tokenizer again with other names for the control tokens, which no text can guess; there the usual names
are plain text, and nothing else differs.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from functools import cached_property
from secrets import token_hex
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from outdraft.codecs.encoded import encoded
from outdraft.options.errors import RequestError

Span = tuple[int, int]  # begin and end in characters
_BRACKETED = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)
_USUAL = "|｜"  # preferred among symbols that as many names have: other marks of templates, as <think>, lack them


class ControlTokens:
    """Those of one tokenizer. `added`: its added tokens, as tokenizer.json describes them."""

    def __init__(self, tokenizer: Tokenizer, added: Seq[Mapping[str, Any]]) -> None:
        self._tokenizer = tokenizer
        self.ids: dict[str, int] = {
            one["content"]: one["id"]
            for one in added
            if _symbols(one["content"]) and (one["special"] or _BRACKETED.fullmatch(one["content"]))
        }
        unknown = self.ids.get(getattr(tokenizer.model, "unk_token", None) or "")
        self.written = frozenset(self.ids.values()) - {unknown}  # by their names alone, and not for unknown characters
        self.few = _few(self.ids)  # symbols of which every name has one
        self.symbols = "".join(sorted({symbol for name in self.ids for symbol in _symbols(name)}))
        apart = dict.fromkeys(map(ord, self.symbols), " ")
        self.words = frozenset(word for name in self.ids for word in name.translate(apart).split())
        self._finder = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
        self._finder.add_tokens(
            [AddedToken(one["content"], single_word=one["single_word"], normalized=False) for one in added]
        )

    def spans(self, text: str) -> tuple[Span, ...]:
        """Where the names of control tokens stand in a text, from left to right; none in one that is not UTF-8."""
        try:
            read = encoded(self._finder, text, add_special=True, with_offsets=True)
        except (UnicodeEncodeError, TypeError):  # of a long one
            return ()
        return tuple(span for span, name in zip(read.offsets, read.tokens, strict=True) if name in self.ids)

    def renamed(self, text: str, own: Seq[Span]) -> str:
        """The text as the twin reads it: only what stands at `own` is a control token."""
        pieces, at = [], 0
        for begin, end in own:
            pieces += [text[at:begin], self._names[text[begin:end]]]
            at = end
        return "".join([*pieces, text[at:]])

    @cached_property
    def twin(self) -> Tokenizer:
        """Raises `RequestError` for a tokenizer that numbers its tokens in a way of its own."""
        names, described = self._names, json.loads(self._tokenizer.to_str())
        for token in described["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        model = described["model"]
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            model["vocab"] = {names.get(piece, piece): i for piece, i in vocab.items()}
        else:
            model["vocab"] = [[names.get(piece, piece), *score] for piece, *score in vocab]
        model["unk_token"] = names.get(model.get("unk_token"), model.get("unk_token"))
        if "merges" in model:
            model["merges"] = [one for one in model["merges"] if not self._makes_a_name(one)]
        if model["unk_token"] is None:
            del model["unk_token"]
        made = Tokenizer.from_str(json.dumps(described))
        if any(made.token_to_id(name) != self.ids[usual] for usual, name in names.items()):
            raise RequestError(
                "a message holds the name of a control token, which this tokenizer cannot read as text: leave it out"
            )
        return made

    @cached_property
    def _names(self) -> dict[str, str]:
        """What the twin calls them."""
        secret = token_hex(16)
        return {name: f"\ue000{secret}{i}\ue001" for i, name in enumerate(self.ids)}

    def _makes_a_name(self, merge: Any) -> bool:
        pair = merge.split(" ", 1) if isinstance(merge, str) else merge
        return "".join(pair) in self.ids or any(piece in self.ids for piece in pair)


def _symbols(name: str) -> set[str]:
    return {one for one in name if not (one.isalnum() or one.isspace() or one == "_")}


def _few(names: Mapping[str, int]) -> str:
    """Few symbols of which every name has at least one."""
    left, chosen = [_symbols(name) for name in names], ""
    while left:
        counts = Counter(symbol for one in left for symbol in one)
        chosen += max(counts, key=lambda symbol: (counts[symbol], symbol in _USUAL, symbol))
        left = [one for one in left if chosen[-1] not in one]
    return chosen
