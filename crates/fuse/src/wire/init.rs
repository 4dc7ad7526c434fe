//! INIT, the first request, which negotiates the version and the flags.
//!
//! Source: Linux fs/fuse/inode.c `process_init_reply`.

use std::io;

use super::MAX_IO;
use super::abi::{InitIn, InitOut, MAJOR};
use super::request::RequestBody;

/// The newest supported minor version.
const MINOR: u32 = 45;
/// The oldest supported minor version. It added the second word of flags to `struct fuse_init_in`. Linux 5.17.
const OLDEST_MINOR: u32 = 36;

const ASYNC_READ: u64 = 1 << 0;
/// LOOKUP of `.` and `..` is supported, for file handles whose inode the kernel has forgotten.
const EXPORT_SUPPORT: u64 = 1 << 4;
const BIG_WRITES: u64 = 1 << 5;
const DONT_MASK: u64 = 1 << 6;
const DO_READDIRPLUS: u64 = 1 << 13;
const WRITEBACK_CACHE: u64 = 1 << 16;
const NO_OPEN_SUPPORT: u64 = 1 << 17;
const PARALLEL_DIROPS: u64 = 1 << 18;
const POSIX_ACL: u64 = 1 << 20;
const MAX_PAGES: u64 = 1 << 22;
const CACHE_SYMLINKS: u64 = 1 << 23;
const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
/// SETXATTR requests contain [`SetxattrExtra`](super::abi::SetxattrExtra).
const SETXATTR_EXT: u64 = 1 << 29;
/// The second word of flags is in use.
const INIT_EXT: u64 = 1 << 30;
/// The kernel sends unanswered requests again when it is asked to.
const HAS_RESEND: u64 = 1 << 39;
/// Requests are fetched through `io_uring`. The kernel then sends none before the rings are registered.
pub(super) const OVER_IO_URING: u64 = 1 << 41;

/// The flags to request, if the kernel supports them.
///
/// `FUSE_ASYNC_DIO` is not among them. Linux 6.18 does not invalidate cached pages when an asynchronous direct write
/// ends (`fuse_aio_complete` in fs/fuse/file.c). Later reads would return data from before the write.
const WANTED: u64 = ASYNC_READ
    | EXPORT_SUPPORT
    | BIG_WRITES
    | DONT_MASK
    | DO_READDIRPLUS
    | NO_OPEN_SUPPORT
    | PARALLEL_DIROPS
    | POSIX_ACL
    | MAX_PAGES
    | CACHE_SYMLINKS
    | NO_OPENDIR_SUPPORT
    | HANDLE_KILLPRIV_V2
    | SETXATTR_EXT
    | INIT_EXT;

/// The number of requests without a waiting process that may be outstanding: read-ahead and write-back.
const BACKGROUND: u16 = 64;
/// The coarsest resolution of times that the kernel supports: one second.
const LONGEST_STEP: u32 = 1_000_000_000;
const PAGE: u32 = 4096;
/// The oldest minor version whose kernels clear the rest of a page that is stored in part. Source: Linux 6.11, "fuse:
/// Initialize beyond-EOF page contents before setting uptodate".
const SAFE_STORE_MINOR: u32 = 41;

/// The result of the negotiation.
pub(super) struct NegotiatedOptions {
    pub reply: InitOut,
    /// Whether the kernel caches writes.
    pub writeback: bool,
    /// Whether SETXATTR requests contain [`SetxattrExtra`](super::abi::SetxattrExtra).
    pub setxattr_flags: bool,
    /// Whether the kernel safely caches data that the server sends.
    pub stores_data: bool,
}

/// Returns the flags that the INIT request `body` offers; none if it is too short.
pub(super) fn offered(mut body: RequestBody<'_>) -> u64 {
    body.take().map_or(0, |said: InitIn| flags(&said))
}

fn flags(said: &InitIn) -> u64 {
    u64::from(said.flags) | u64::from(said.flags2) << 32
}

/// The properties to request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Wanted {
    /// The kernel caches writes.
    pub writeback: bool,
    /// The kernel sends requests through rings.
    pub rings: bool,
    /// The kernel can send requests again. Required if requested.
    pub resend: bool,
    /// The kernel checks no permissions. The flag of access control lists would enable these checks
    /// (`process_init_reply`, `fc->default_permissions`).
    pub fakeroot: bool,
}

/// Answers the INIT request `body`. Requests the properties `wanted`, and that the kernel rounds times to `time_step`
/// nanoseconds, the resolution of the volume. Fails with `Unsupported` if the kernel is too old, and with `InvalidData`
/// if the request is too short.
pub(super) fn agree(
    mut body: RequestBody<'_>,
    properties: Wanted,
    time_step: u32,
) -> io::Result<NegotiatedOptions> {
    let said: InitIn = body.take().map_err(|_| io::ErrorKind::InvalidData)?;
    if said.major != MAJOR || said.minor < OLDEST_MINOR {
        let versions =
            format!("the kernel has FUSE {}.{}, but 7.{OLDEST_MINOR} is required", said.major, said.minor);
        return Err(io::Error::new(io::ErrorKind::Unsupported, versions));
    }
    let offered = flags(&said);
    let mut wanted = WANTED;
    let Wanted { writeback, rings, resend, fakeroot } = properties;
    for (is_wanted, flag) in [(writeback, WRITEBACK_CACHE), (rings, OVER_IO_URING), (resend, HAS_RESEND)] {
        wanted |= if is_wanted { flag } else { 0 };
    }
    if fakeroot {
        wanted &= !POSIX_ACL;
    }
    let flags = offered & wanted;
    if resend && flags & HAS_RESEND == 0 {
        let cause = "-o failover requires a kernel that sends requests again (Linux 6.9)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, cause));
    }
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
    Ok(NegotiatedOptions {
        reply,
        writeback: flags & WRITEBACK_CACHE != 0,
        setxattr_flags: flags & SETXATTR_EXT != 0,
        stores_data: said.minor >= SAFE_STORE_MINOR,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHING: Wanted = Wanted { writeback: true, rings: false, resend: false, fakeroot: false };

    fn said(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = [major, minor, 128 << 10, flags as u32, (flags >> 32) as u32]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        bytes.resize(64, 0);
        bytes
    }

    #[test]
    fn properties_that_the_kernel_lacks_are_not_requested() {
        let agreed = agree(RequestBody::new(&said(7, 45, u64::MAX)), CACHING, 2_000_000_000).unwrap();
        assert!(agreed.writeback && agreed.setxattr_flags && agreed.stores_data);
        assert_eq!(u64::from(agreed.reply.flags), WANTED | WRITEBACK_CACHE);
        assert_eq!((agreed.reply.max_readahead, agreed.reply.max_pages), (128 << 10, 256));
        assert_eq!(agreed.reply.time_gran, 1_000_000_000);
        let agreed = agree(RequestBody::new(&said(7, 40, INIT_EXT | POSIX_ACL)), CACHING, 1).unwrap();
        assert!(!agreed.writeback && !agreed.setxattr_flags && !agreed.stores_data);
        assert_eq!((u64::from(agreed.reply.flags), agreed.reply.minor), (INIT_EXT | POSIX_ACL, 40));
    }

    #[test]
    fn an_old_kernel_and_a_short_greeting_are_refused() {
        assert!(agree(RequestBody::new(&said(7, 35, u64::MAX)), CACHING, 1).is_err());
        assert!(agree(RequestBody::new(&said(8, 45, u64::MAX)), CACHING, 1).is_err());
        assert!(agree(RequestBody::new(&said(7, 45, u64::MAX)[..60]), CACHING, 1).is_err());
    }

    #[test]
    fn failover_requires_a_kernel_that_sends_requests_again() {
        let wanted = Wanted { resend: true, ..Wanted::default() };
        let reply =
            |flags| agree(RequestBody::new(&said(7, 45, flags)), wanted, 1).map(|agreed| agreed.reply);
        assert_eq!(u64::from(reply(u64::MAX).unwrap().flags2) << 32 & HAS_RESEND, HAS_RESEND);
        let refused = reply(!HAS_RESEND).err().unwrap();
        assert!(refused.to_string().contains("Linux 6.9"), "{refused}");
    }

    #[test]
    fn requests_arrive_through_rings_only_if_both_sides_have_them() {
        let reply = |flags, has_rings| {
            let said = said(7, 45, flags);
            assert_eq!(offered(RequestBody::new(&said)), flags);
            let wanted = Wanted { rings: has_rings, ..Wanted::default() };
            let reply = agree(RequestBody::new(&said), wanted, 1).unwrap().reply;
            u64::from(reply.flags2) << 32 & OVER_IO_URING != 0
        };
        assert!(reply(u64::MAX, true));
        assert!(!reply(u64::MAX, false));
        assert!(!reply(!OVER_IO_URING, true));
        assert_eq!(offered(RequestBody::new(&[1, 2, 3])), 0);
    }
}
