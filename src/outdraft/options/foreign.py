"""What code that others wrote may raise (a constraint, a drafter, a policy, a codec) without ending more than its own
request: everything, `SystemExit` and `GeneratorExit` too."""

from threading import current_thread, main_thread


def anything_but_an_interrupt() -> tuple[type[BaseException], ...]:
    """For `except`: every kind of error, but for the Ctrl-C of a user, which Python raises in the main thread alone.

    >>> try:
    ...     raise SystemExit
    ... except anything_but_an_interrupt():
    ...     print("caught")
    caught
    """
    return (Exception, SystemExit, GeneratorExit) if current_thread() is main_thread() else (BaseException,)
