//! The commands that change an image, as a user runs them.

mod border;
mod causes;
mod coreutils;
mod foreign;
mod full_host;
mod host_programs;
mod kill;
mod locks;
mod messages;
mod shell;
mod signals;
mod support;
mod terminal;
mod trim;
