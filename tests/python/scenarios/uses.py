"""Uses of a block that its owner took back, and ones that collectives give back."""

import torch

from scenarios.common import MIB
from scenarios.probe import Probe, refused
from scenarios.virtuals import pending


def used_again():
    """A block that a collective gave back is used again without one, and the first one's end is told once more."""
    probe = Probe()
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address, handle = probe.data(block), probe.block_ptr(block)
    probe.record_work(handle, 1111)
    for _ in range(2):
        pending(side, address)
        probe.record_stream(block, 0, side.stream_id)
        probe.erase_work(handle, 0, side.stream_id, 1111)
    probe.free(block)
    return probe.data(probe.allocate(30 * MIB)) == address


def many_works():
    """More collectives than are remembered at once without a look at which blocks are gone; the first gives its block
    back."""
    probe = Probe()
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address, handle = probe.data(block), probe.block_ptr(block)
    pending(side, address)
    probe.record_stream(block, 0, side.stream_id)
    probe.record_work(handle, 1111)
    for number in range(1100):
        probe.record_work(probe.block_ptr(probe.allocate(512)), 2000 + number)
    probe.erase_work(handle, 0, side.stream_id, 1111)
    probe.free(block)
    return probe.data(probe.allocate(30 * MIB)) == address


def gone_uses():
    """A block is used whose memory was given back by its address."""
    probe = Probe()
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    probe.raw_delete(probe.data(block))
    return [refused(probe.record_stream, block, 0, side.stream_id), refused(probe.block_is_safe, block),
            refused(probe.update_to_safe, block)]


def erased_elsewhere():
    """A use is taken back while another stream than the block's is the current one."""
    probe = Probe()
    side, other = torch.npu.Stream(), torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address = probe.data(block)
    pending(side, address)
    probe.record_stream(block, 0, side.stream_id)
    with torch.npu.stream(other):
        probe.erase_stream(block, 0, side.stream_id)
    probe.free(block)
    return probe.data(probe.allocate(30 * MIB)) == address
