//! The program that the kernel engine brings along, static and small, in two roles.
//!
//! As `init` of the guest it mounts the disk and answers requests ([`guest`]). As the guest's *warden* on the host it starts the
//! kernel with as few rights as can be, and sees to it that nothing of it outlives the process it works for ([`warden`]).
//!
//! This crate may contain `unsafe`: it maps the memory that it shares with the host, and forks.

mod guest;
mod warden;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((role, command)) if role == "warden" => warden::run(command),
        // The kernel passes on what words of its command line it does not know; none of them names a role.
        _ => guest::run(),
    }
}
