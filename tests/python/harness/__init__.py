"""Runs scenarios in processes of their own, with either allocator."""
