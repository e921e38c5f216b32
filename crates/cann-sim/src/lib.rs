//! Simulated CANN runtime.
