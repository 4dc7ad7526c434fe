//! The first request, by which both sides agree on how to talk.
//!
//! Source: Linux fs/fuse/inode.c `process_init_reply`.

use std::io;

use super::MAX_IO;
use super::abi::{InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR};
use super::request::Body;

const ASYNC_READ: u64 = 1 << 0;
/// LOOKUP of `.` and `..` by number, for file handles that outlive what the kernel remembers.
const EXPORT_SUPPORT: u64 = 1 << 4;
const BIG_WRITES: u64 = 1 << 5;
const DONT_MASK: u64 = 1 << 6;
const DO_READDIRPLUS: u64 = 1 << 13;
const ASYNC_DIO: u64 = 1 << 15;
const WRITEBACK_CACHE: u64 = 1 << 16;
const NO_OPEN_SUPPORT: u64 = 1 << 17;
const PARALLEL_DIROPS: u64 = 1 << 18;
const POSIX_ACL: u64 = 1 << 20;
const MAX_PAGES: u64 = 1 << 22;
const CACHE_SYMLINKS: u64 = 1 << 23;
const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
/// SETXATTR has further flags.
const SETXATTR_EXT: u64 = 1 << 29;
/// There are flags beyond the 32nd.
const INIT_EXT: u64 = 1 << 30;

/// What is asked of the kernel, where it has it.
const WANTED: u64 = ASYNC_READ
    | EXPORT_SUPPORT
    | BIG_WRITES
    | DONT_MASK
    | DO_READDIRPLUS
    | ASYNC_DIO
    | NO_OPEN_SUPPORT
    | PARALLEL_DIROPS
    | POSIX_ACL
    | MAX_PAGES
    | CACHE_SYMLINKS
    | NO_OPENDIR_SUPPORT
    | HANDLE_KILLPRIV_V2
    | SETXATTR_EXT
    | INIT_EXT;

/// Requests that the kernel sends without waiting for the answers: read-ahead, and writing back.
const BACKGROUND: u16 = 64;
/// The longest step of times that the kernel takes: a second.
const LONGEST_STEP: u32 = 1_000_000_000;
const PAGE: u32 = 4096;

/// What was agreed on.
pub(super) struct Agreed {
    pub reply: InitOut,
    /// The kernel gathers writes.
    pub writeback: bool,
    /// SETXATTR has further flags.
    pub setxattr_flags: bool,
}

/// Agrees with a kernel that says `body`; the kernel is to gather writes if `writeback`, and to keep times in steps of
/// `time_step` nanoseconds, as the volume does. Errors: it is too old, or this is no INIT.
pub(super) fn agree(mut body: Body<'_>, writeback: bool, time_step: u32) -> io::Result<Agreed> {
    let said: InitIn = body.take().map_err(|_| io::ErrorKind::InvalidData)?;
    if said.major != MAJOR || said.minor < OLDEST_MINOR {
        let versions =
            format!("the kernel speaks FUSE {}.{}, older than 7.{OLDEST_MINOR}", said.major, said.minor);
        return Err(io::Error::new(io::ErrorKind::Unsupported, versions));
    }
    let offered = u64::from(said.flags) | u64::from(said.flags2) << 32;
    let wanted = if writeback { WANTED | WRITEBACK_CACHE } else { WANTED };
    let flags = offered & wanted;
    tracing::debug!(missing = format_args!("{:#x}", wanted & !offered), minor = said.minor, "agreed");
    let reply = InitOut {
        major: MAJOR,
        minor: said.minor.min(MINOR),
        max_readahead: said.max_readahead.min(MAX_IO),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: BACKGROUND,
        congestion_threshold: BACKGROUND / 4 * 3,
        max_write: MAX_IO,
        time_gran: time_step.clamp(1, LONGEST_STEP),
        max_pages: (MAX_IO / PAGE) as u16,
        ..InitOut::default()
    };
    Ok(Agreed { reply, writeback: flags & WRITEBACK_CACHE != 0, setxattr_flags: flags & SETXATTR_EXT != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = [major, minor, 128 << 10, flags as u32, (flags >> 32) as u32]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        bytes.resize(64, 0);
        bytes
    }

    #[test]
    fn what_the_kernel_lacks_is_not_asked_for() {
        let agreed = agree(Body(&said(7, 45, u64::MAX)), true, 2_000_000_000).unwrap();
        assert!(agreed.writeback && agreed.setxattr_flags);
        assert_eq!(u64::from(agreed.reply.flags), WANTED | WRITEBACK_CACHE);
        assert_eq!((agreed.reply.max_readahead, agreed.reply.max_pages), (128 << 10, 256));
        assert_eq!(agreed.reply.time_gran, 1_000_000_000);
        let agreed = agree(Body(&said(7, 40, INIT_EXT | POSIX_ACL)), true, 1).unwrap();
        assert!(!agreed.writeback && !agreed.setxattr_flags);
        assert_eq!((u64::from(agreed.reply.flags), agreed.reply.minor), (INIT_EXT | POSIX_ACL, 40));
    }

    #[test]
    fn an_old_kernel_and_a_short_greeting_are_refused() {
        assert!(agree(Body(&said(7, 35, u64::MAX)), true, 1).is_err());
        assert!(agree(Body(&said(8, 45, u64::MAX)), true, 1).is_err());
        assert!(agree(Body(&said(7, 45, u64::MAX)[..60]), true, 1).is_err());
    }
}
