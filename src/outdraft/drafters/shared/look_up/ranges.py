"""Options that stand in order, checked once for every look-up that has them."""

from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NGRAM, MOST_NODES


def check_ngrams(min_ngram: int, max_ngram: int, width: int) -> None:
    """Raise `ConfigError` unless 1 <= min_ngram <= max_ngram <= `MOST_NGRAM` and 1 <= width <= `MOST_NODES`."""
    if not 1 <= min_ngram <= max_ngram <= MOST_NGRAM:
        raise ConfigError(
            f"min_ngram={min_ngram}, max_ngram={max_ngram}: need 1 <= min_ngram <= max_ngram <= {MOST_NGRAM}"
        )
    if not 1 <= width <= MOST_NODES:
        raise ConfigError(f"width={width}: must be between 1 (a chain) and {MOST_NODES}")
