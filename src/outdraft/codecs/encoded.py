"""A text read by the `tokenizers` library in such a way that other threads go on meanwhile.

Its `encode` keeps Python's lock for half a second a megabyte; that of batches gives it back, and takes half as long
where the caller does not ask at which characters the tokens stand.
"""

from tokenizers import Encoding, Tokenizer

_LONG = 4096  # characters, which take 2 ms; shorter texts are read as they come


def encoded(tokenizer: Tokenizer, text: str, *, add_special: bool, with_offsets: bool = False) -> Encoding:
    """What the tokenizer makes of a text. `with_offsets`: where its tokens stand is known for long texts, too."""
    if len(text) < _LONG:
        return tokenizer.encode(text, add_special_tokens=add_special)
    read = tokenizer.encode_batch if with_offsets else tokenizer.encode_batch_fast
    return read([text], add_special_tokens=add_special)[0]
