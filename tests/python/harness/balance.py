"""Whether the device holds just what the allocator says it has reserved.

Asked in the scenario's process when the scenario has ended. At exit the program
resets its devices, which takes back what is cached, so a leak of the allocator
does not show in the exit report.
"""

import ctypes

#: Statistics of a device; `cannSimStats` of crates/cann-sim/include/cann_sim.h.
STATS = ("capacity", "used", "peakUsed", "externalUsed", "tasks", "driverCalls", "driverNs",
         "hostWaitNs", "hazards", "unfreedPlain", "unfreedPhysical", "takenBackByReset")


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in STATS]


def simulator():
    """The runtime of this process if it is the simulator, else None."""
    try:
        runtime = ctypes.CDLL("libascendcl.so")
    except OSError:
        return None
    return runtime if hasattr(runtime, "cannSimGetStats") else None


def imbalances(torch):
    """What is not in balance, as text; nothing on a real device."""
    sim = simulator()
    if sim is None or not torch.npu.is_initialized():
        return []
    if torch.npu.get_allocator_backend() == "pluggable":
        # Its statistics are the user's functions; asking one that has none ends the process.
        return []
    found = []
    torch.npu.synchronize()
    for device in range(torch.npu.device_count()):
        stats = Stats()
        sim.cannSimGetStats(device, ctypes.byref(stats))
        held = stats.unfreedPlain + stats.unfreedPhysical
        reserved = torch.npu.memory_stats(device).get("reserved_bytes.all.current", 0)
        if held != reserved:
            found.append(f"device {device}: holds {held} bytes, of which the allocator knows "
                         f"{reserved}")
    return found
