//! The command `obento`: lists, reads, copies, changes and checks files in disk images, without root and without
//! mounting.
//!
//! It is a library so that a driver in another repository gets every command: its program passes [`main`] a registry
//! that contains the driver. No other part of the command chooses drivers.
//!
//! `cli` is the command line, `help` its help, and `commands` has one file for each subcommand. A subcommand imports
//! neither `cli` nor the table of subcommands: its `context` has the parser and the help of the program. Subcommands
//! share `context` (what a subcommand runs in), `options` (the options of every subcommand), `open` (images, volumes
//! and files that arguments name), `messages` (what is printed beside the output), `parse` (values of options),
//! `output` (standard output and closed pipes), `report` (error messages), `cause` (causes of failures, with hints),
//! `usage` (errors of arguments), `escape` (names on a terminal), `json` (machine-readable output), `files` (files
//! that are read whole, many at once) and `own` (the programs that create and check a type).

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod cause;
mod change;
mod cli;
mod commands;
mod context;
mod escape;
mod files;
mod find;
mod format;
mod help;
mod helper;
mod input;
mod json;
mod limit;
mod meant;
mod messages;
mod open;
mod options;
mod output;
mod own;
mod pager;
mod parse;
mod private;
mod progress;
mod replaced;
mod report;
mod servers;
mod shown;
mod terminal;
mod typed;
mod usage;
mod words;

pub use cli::main;
