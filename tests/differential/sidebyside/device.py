"""What a script did to the simulated device that a real one would punish."""

import ctypes

#: Statistics of a device; `cannSimStats` of crates/cann-sim/include/cann_sim.h.
STATS = ("capacity", "used", "peakUsed", "externalUsed", "tasks", "driverCalls", "driverNs",
         "hostWaitNs", "hazards", "unfreedPlain", "unfreedPhysical", "takenBackByReset")


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in STATS]


class Hazard(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char * 48), ("name", ctypes.c_char * 64),
                ("addr", ctypes.c_uint64), ("len", ctypes.c_uint64), ("time", ctypes.c_uint64)]


class CallStat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("count", "failed", "ns", "waitNs")]


class Device:
    """Device 0, from when this is made or from its last `findings`."""

    def __init__(self, sim):
        self._sim = sim
        self._kept = self._unfreed(self._stats())
        self._sim.cannSimResetStats(0)

    def findings(self):
        """Hazards since the last call, and memory that is not given back."""
        stats = self._stats()
        found = []
        for index in range(min(stats.hazards, 10)):
            hazard = Hazard()
            if self._sim.cannSimGetHazard(0, ctypes.c_uint64(index), ctypes.byref(hazard)):
                break
            found.append(f"{hazard.kind.decode()}, {hazard.len} bytes, by {hazard.name.decode()}")
        if stats.hazards > len(found):
            found.append(f"{stats.hazards} hazards in all")
        left = self._unfreed(stats) - self._kept
        if left:
            found.append(f"{left} bytes were not given back")
        self._sim.cannSimResetStats(0)
        return found

    def waits(self):
        """How often the host waited for an event."""
        return self._calls(b"aclrtSynchronizeEvent")

    def stream_waits(self):
        """How often a stream was made to."""
        return self._calls(b"aclrtStreamWaitEvent")

    def _calls(self, name):
        stat = CallStat()
        # No such call yet is none.
        self._sim.cannSimGetCallStat(0, name, ctypes.byref(stat))
        return stat.count

    def _stats(self):
        stats = Stats()
        if self._sim.cannSimGetStats(0, ctypes.byref(stats)):
            raise RuntimeError("no statistics of device 0")
        return stats

    @staticmethod
    def _unfreed(stats):
        return stats.unfreedPlain + stats.unfreedPhysical
