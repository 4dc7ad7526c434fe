//! The program that the kernel engine contains, static and small, with three roles.
//!
//! As `init` of the guest, it mounts the disk and serves requests ([`guest`]). As the *warden* of the guest on the
//! host, it starts the kernel with as few rights as possible. It ensures that no part of the kernel outlives the
//! process that uses it ([`warden`]). Before that, it can create the socket of the disk ([`listener`]).
//!
//! This crate may contain `unsafe`: it maps the memory that it shares with the host, and forks.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod guest;
mod listener;
mod warden;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((role, command)) if role == "warden" => warden::run(command),
        Some((role, [])) if role == "listener" => listener::run(),
        // The kernel passes on unknown words of its command line; none of them names a role.
        _ => guest::run(),
    }
}
