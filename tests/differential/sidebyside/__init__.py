"""Runs one script of allocator operations with both allocators and compares."""
