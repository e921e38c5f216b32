"""The streams that cases use, and what keeps them busy."""

import ctypes

import torch


class Simulator:
    """Controls of the simulated runtime; absent on a real device."""

    def __init__(self):
        try:
            self._set_kernel_time = ctypes.CDLL("libascendcl.so").cannSimSetKernelTime
            self._set_kernel_time.argtypes = [ctypes.c_uint64]
        except (AttributeError, OSError):
            self._set_kernel_time = None

    def __bool__(self):
        return self._set_kernel_time is not None

    def keep_busy(self, stream):
        """Puts a kernel on the stream that ends only when someone waits for it. False when the stream is idle all the
        same."""
        self._set_kernel_time(10**15)
        with torch.npu.stream(stream):
            torch.zeros(1, device=stream.device)
            # The host's task queue must have handed it on before the time changes.
            stream.query()
        self._set_kernel_time(1000)
        return not stream.query()


class Streams:
    """Streams by device and number; 0 is the default one."""

    def __init__(self):
        self._made = {}

    def get(self, device, index):
        """The stream."""
        if index == 0:
            # torch_npu sets up a device's default stream when it makes another one.
            self.get(device, 1)
            return torch.npu.default_stream(device)
        if (device, index) not in self._made:
            self._made[device, index] = torch.npu.Stream(device=device)
        return self._made[device, index]

    def id(self, device, index):
        """Its id."""
        return self.get(device, index).stream_id
