//! npualloc: the device-memory caching allocator core.
//!
//! Layers, each depending only on those above it in this list, but for [`error`], which names the errors of [`config`]
//! and [`driver`] and writes sizes as [`device`] does:
//!
//! | module | what lives there |
//! |---|---|
//! | [`ids`], [`size`], [`error`] | newtypes, rounding rules, the error type |
//! | `mix` | how ids and handles are hashed |
//! | `primitives` | atomics and locks: real ones, or loom's |
//! | `owners` | which device owns an address, without a lock |
//! | `signals` | what is looked at before the lock of a device is taken |
//! | [`sync`] | the lock of a device |
//! | [`config`] | the allocator settings, their parser, the environment |
//! | [`driver`] | the contract with the device runtime and its backends |
//! | [`block`] | blocks, their arena, the free index, the address map: pure |
//! | [`page`] | physical memory apart from addresses: pure |
//! | [`segment`] | driver allocations that blocks tile: pure |
//! | [`stream`] | stream uses of a block, events not yet complete |
//! | [`stats`] | counters |
//! | `plan` | where blocks are to lie, of programs that repeat themselves: pure |
//! | [`pool`] | which free index serves a (pool, stream) |
//! | [`lease`] | what a thread does without the lock of a device |
//! | [`history`] | trace entries, the client's contexts |
//! | [`record`] | what a program asks for, written to a file |
//! | [`device`] | one device's state machine: allocate, free, reclaim, report |
//! | [`debug`] | opt-in checks of contents, histories of blocks |
//! | [`registry`] | all devices; address → owner |
//! | [`bridge`] | the C++ boundary |
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo))]

pub mod block;
// Models link no C++.
#[cfg(not(loom))]
#[allow(unsafe_code, missing_docs)]
pub mod bridge;
pub mod config;
pub mod debug;
pub mod device;
pub mod driver;
pub mod error;
pub mod history;
pub mod ids;
// Models use it by itself.
pub mod lease;
mod mix;
#[cfg(loom)]
pub mod owners;
#[cfg(not(loom))]
mod owners;
pub mod page;
mod plan;
pub mod pool;
mod primitives;
pub mod record;
pub mod registry;
pub mod segment;
mod signals;
pub mod size;
pub mod stats;
pub mod stream;
pub mod sync;
