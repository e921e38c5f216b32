"""Environments that several tests run scenarios in; equal ones share a process to fork from."""

from sizes import GIB

#: A kernel takes a second on the device's clock: longer than all calls of a scenario together.
SLOW = {"CANN_SIM_KERNEL_NS": "1000000000"}
#: A device of 1 GiB.
SMALL = {"CANN_SIM_CAPACITY": str(GIB)}
#: Memory with real pages: copies keep data.
BACKED = {"CANN_SIM_MODE": "backed"}
#: Virtual segments.
VIRTUAL = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
#: Fixed segments.
FIXED = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:False"}
