//! The commands that change an image, run as a person would.

mod coreutils;
mod kill;
mod messages;
mod shell;
mod support;
