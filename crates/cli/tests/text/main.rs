//! The commands that read files whole print what the programs of the host print of the same files.

mod contents;
mod digest;
mod disks;
mod doubt;
mod grep;
mod recover;
mod slices;
mod support;
mod undelete;
