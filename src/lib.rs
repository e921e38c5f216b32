//! Device-memory caching allocator for PyTorch on Ascend NPUs.
