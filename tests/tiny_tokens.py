"""A codec of a few tokens that overlap, for grammars whose languages can be listed."""

from outdraft.codecs.stream import TextStream


class TinyTokens:
    """Ids are places in the list; `end` stands for no text."""

    strips_space = False

    def __init__(self, tokens, end=None):
        self.tokens = [token.encode() for token in tokens]
        self.end = end
        self.vocab_size = len(tokens)
        self.eos_token_ids = frozenset(() if end is None else (end,))

    def token_bytes(self, token):
        return self.tokens[token] if 0 <= token < len(self.tokens) and token != self.end else b""

    def encode(self, text, *, add_special=True):
        """The longest token at every place."""
        rest, ids = text.encode(), []
        while rest:
            fits = [i for i, token in enumerate(self.tokens) if i != self.end and token and rest.startswith(token)]
            ids.append(max(fits, key=lambda i: len(self.tokens[i])))
            rest = rest[len(self.tokens[ids[-1]]) :]
        return ids

    def decode(self, ids, *, continues=False):
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def stream(self, *, continues=True):
        return TextStream(self, continues=continues)
