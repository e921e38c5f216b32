"""What the tests do with the device: functions that return plain data.

A scenario imports torch and torch_npu only; it runs in a process of its own.
"""
