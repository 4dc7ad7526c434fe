//! Giving up rights once an image is open.

use std::os::fd::BorrowedFd;

/// What the process still needs to do.
#[derive(Clone, Copy, Debug)]
pub enum Rights<'a> {
    /// Read what is open, write to what is open.
    Read,
    /// Also create, change and remove files beneath these directories.
    WriteBeneath(&'a [BorrowedFd<'a>]),
}

/// What became of one measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Measure {
    /// In force.
    Applied,
    /// In force as far as this kernel can.
    Partly,
    /// This kernel cannot, or something forbids it: why.
    Missing(String),
}

/// What is in force after [`enter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// No program that is started gains rights.
    pub no_new_privs: Measure,
    /// Landlock: no other files.
    pub landlock: Measure,
    /// seccomp: no other system calls.
    pub seccomp: Measure,
}

/// Gives up all rights but `rights`, for all threads, for good.
pub fn enter(_rights: Rights<'_>) -> Applied {
    todo!()
}
