"""Sizes in bytes, and torch_npu's rounding of them."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

#: Kernels may read past the end of a tensor on this part, so torch_npu adds
#: 32 bytes to every request before it rounds up to a multiple of 512.
PAD = 32
GRAIN = 512


def rounded(size):
    """Bytes that a tensor of `size` bytes takes."""
    return -(-(size + PAD) // GRAIN) * GRAIN
