"""How large a form is once its repetitions are multiplied out, counted before anything is compiled."""

MOST = 10**18  # more than any limit; nothing is counted further


class TooDeep(Exception):
    """Parts of a form stand in each other, or refer to each other, so deep that the library's stack could break."""
