"""Vocabularies of a GGUF file whose tokens are text with U+2581 for a blank, and raw bytes (<0x0A>) for what they lack.

    model "llama"     SentencePiece's BPE: each token has a score, and the pair of the best score is joined first
    model "gemma4"    the same with a list of merges in place of scores

Scores become a list of merges: all ways to put a token together from two others, those of the best scores first.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from tokenizers import Tokenizer, decoders, models, normalizers

_BLANK = "\u2581"


def marked(vocab: Mapping[str, int], merges: Seq[tuple[str, str]], *, unknown: str | None, leading: bool) -> Tokenizer:
    """Without its added tokens. `leading`: a text, and what follows an added token, is read with a blank before it.

    Raises what the library does for tokens and merges that do not belong together.
    """
    model = models.BPE(vocab=dict(vocab), merges=list(merges), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    blanks = normalizers.Replace(" ", _BLANK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_BLANK), blanks]) if leading else blanks
    steps: list[decoders.Decoder] = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * leading)
    return tokenizer


def merges_of(vocab: Mapping[str, int], scores: Seq[float]) -> list[tuple[str, str]]:
    """Of those tokens that others are joined to, which raw bytes are not. `scores`: by id."""
    return [
        (first, second)
        for name in sorted(vocab, key=lambda name: -scores[vocab[name]])
        for at in range(len(name) - 1, 0, -1)
        if (first := name[:at]) in vocab and (second := name[at:]) in vocab
    ]
