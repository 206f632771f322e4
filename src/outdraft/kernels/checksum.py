"""A checksum as quick as memory is read: every change of a word changes it (`native/image.cpp`)."""

from outdraft.kernels.library import require_library


def checksum(address: int, size: int) -> int:
    """The checksum of `size` bytes. Other threads run while it counts. Raises `CapabilityError` without kernels."""
    return int(require_library().od_checksum(address, size))
