"""One check for options that are numbers, and one wording of what is wrong: the option, its value, what it must be."""

from math import inf

from outdraft.core.errors import ConfigError


def check_range(options: object, *names: str, least: float = -inf, most: float = inf, note: str = "") -> None:
    """Raise `ConfigError` unless least <= value <= most for each named field. `note`: what a limit means.

    Of a tuple each number is checked. A field that is None was left to somebody else; NaN is in no range.
    """
    for name in names:
        field = getattr(options, name)
        for value in field if isinstance(field, tuple) else (field,):
            if value is not None and not least <= value <= most:
                limit = f"at least {least:g}" if most == inf else f"between {least:g} and {most:g}"
                raise ConfigError(f"{name}={value}: must be {limit}{note and f' ({note})'}")
