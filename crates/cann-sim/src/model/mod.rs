//! The device as a pure state machine. Depends on nothing but the raw
//! declarations (for codes) and the [`Backing`](crate::backing::Backing) it is
//! given; holds no `unsafe`, no global state, does no I/O.

pub mod address_space;
pub mod capture;
pub mod clock;
pub mod condition;
pub mod config;
pub mod cost;
pub mod device;
pub mod error;
pub mod event;
pub mod fault;
pub mod ledger;
pub mod memory;
pub mod sim;
pub mod stream;
pub mod table;
pub mod vmm;
pub mod work;
