//! The command `obento`: lists, reads, copies and examines what lies in disk images, without root and without
//! mounting.
//!
//! It is a library so that a driver in a repository of its own has every command too: its program passes [`main`] a registry with
//! that driver in it. No other place of the command chooses drivers.
//!
//! `cli` is the command line, `commands` has a file for each subcommand, and the rest is what they share: `context`
//! (options, opened images, diagnostics), `output` (standard output, and what a closed pipe means), `report` (the words
//! of an error), `escape` (names on a terminal), `json` (the machine-readable form), `own` (programs of
//! a type's own).

mod change;
mod cli;
mod commands;
mod context;
mod escape;
mod find;
mod format;
mod helper;
mod json;
mod open;
mod output;
mod own;
mod private;
mod progress;
mod report;
mod shown;
mod terminal;

pub use cli::main;
