"""Every error that outdraft raises on purpose.

A message names the thing, the value it has, and the cure. The command line prints it on one line and exits with 2;
anything that is not an `OutdraftError` is a defect of ours and keeps its traceback.
"""


class OutdraftError(Exception):
    """Base of all deliberate errors."""


class ConfigError(OutdraftError):
    """An option, a recipe or a `speculative_config` does not make sense."""


class ModelLoadError(OutdraftError):
    """A model directory is missing, incomplete, damaged or of an unknown kind."""


class CapabilityError(OutdraftError):
    """Two parts do not fit each other (vocabulary, cache, what a drafter needs of the target)."""


class CacheFullError(CapabilityError):
    """The pool of the key/value cache has no page left for what is asked; later it may have."""


class RequestError(OutdraftError):
    """One request is invalid: empty prompt, prompt too long, a sampling parameter out of range."""


class ContextLengthError(RequestError):
    """A prompt leaves no room for an answer in what the context holds."""


class BusyError(RequestError):
    """Too much is waiting already: the same request may be taken later."""


class NumericsError(OutdraftError):
    """The target or the drafter produced numbers that are no distribution (NaN or infinite logits)."""


class DecodingError(OutdraftError):
    """Something broke while a request was decoded. The request ended there; what broke is attached as the cause."""
