"""Options that stand in order, checked once for every look-up that has them."""

from outdraft.core.errors import ConfigError


def check_ngrams(min_ngram: int, max_ngram: int, width: int) -> None:
    """Raise `ConfigError` unless 1 <= min_ngram <= max_ngram and 1 <= width."""
    if not 1 <= min_ngram <= max_ngram:
        raise ConfigError(f"min_ngram={min_ngram}, max_ngram={max_ngram}: need 1 <= min_ngram <= max_ngram")
    if width < 1:
        raise ConfigError(f"width={width}: must be at least 1 (1 is a chain)")
