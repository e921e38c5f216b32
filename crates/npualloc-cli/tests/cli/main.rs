//! The program from outside: what it prints, its exit status, and that bad input leaves nothing behind.

mod bad_input;
mod browser;
mod commands;
mod driver;
mod failed;
mod pipes;
mod report;
mod snapshots;
mod terminals;
mod traces;
