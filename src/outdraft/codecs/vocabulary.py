"""What the ids of two text codecs, or of a codec and a model, have to do with each other."""

from outdraft.codecs.text import TextCodec
from outdraft.codecs.token_settings import WRITTEN


def tokens_from(codec: TextCodec, first: int) -> tuple[list[str], list[str]]:
    """Names of the tokens with ids of `first` and above: those that any text may hold, and added ones that no text has
    unless it spells their names: neither start, end or another special role nor the chat template."""
    if first >= codec.num_ids:
        return [], []
    named = {name for role, name in codec.special_tokens.items() if role in WRITTEN}
    chat = codec.chat_template
    templates = [] if chat is None else [chat.source, chat.for_tools(()).source]
    above = {name: i for name, i in codec.vocabulary.items() if i >= first}
    names = sorted(above, key=lambda name: above[name])
    named.update(name for name in names if any(name in template for template in templates))
    unused = {name for name in names if name in codec.added and name not in named}
    return [name for name in names if name not in unused], [name for name in names if name in unused]


def find_difference(codec: TextCodec, other: TextCodec, below: int) -> int | None:
    """The first id below `below` that stands for another token there; None: where both have a token, it is one."""
    ours, theirs = ({i: name for name, i in one.vocabulary.items()} for one in (codec, other))
    both = sorted(i for i in ours.keys() & theirs.keys() if i < below)
    return next((i for i in both if ours[i] != theirs[i]), None)
