//! The control API declared in `include/cann_sim.h`.
