"""What the simulated runtime has to say about a scenario's processes.

Each process that uses the simulator writes a report when it ends
(`CANN_SIM_REPORT`, see docs/run-without-npu.md): hazards, which a real device
would answer with a fault or with wrong data, and memory nobody gave back. On a
real device there are no reports and nothing is checked.
"""

import json
import pathlib


class DeviceMisuse(AssertionError):
    """A scenario left hazards or leaks on the simulated device."""


class DeviceReports:
    """The reports of processes started with `environment`, each read once."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._directory.mkdir()

    @property
    def environment(self):
        return {"CANN_SIM_REPORT": str(self._directory / "%p.json")}

    def take(self):
        """Findings, as text, in the reports that have come since the last call.

        None when there is no report at all.
        """
        files = sorted(self._directory.glob("*.json"))
        if not files:
            return None
        found = []
        for file in files:
            report = json.loads(file.read_text(encoding="utf-8"))
            file.unlink()
            for device in report["devices"]:
                found += self._findings(device)
        return found

    @staticmethod
    def _findings(device):
        where = f"device {device['device']}"
        for hazard in device["hazards"]:
            yield (f"{where}: {hazard['kind']} at {hazard['addr']:#x}, {hazard['len']} bytes, "
                   f"by {hazard['name']}, at {hazard['time_ns']} ns")
        if device["hazard_count"] > len(device["hazards"]):
            yield f"{where}: {device['hazard_count']} hazards in all"
        if device["leaked"]:
            yield f"{where}: {device['leaked']} bytes were never given back"
