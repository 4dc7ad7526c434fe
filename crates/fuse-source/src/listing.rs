//! Listings of directories.

use std::ops::ControlFlow;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};
use obento_fuse_abi::{Dirent, EntryOut, opcode};
use obento_remote_nodes::{FoundBy, ListedCount};

use crate::contract::{Mounted, lock};
use crate::error::{NONSENSE, TOO_MANY_ENTRIES};
use crate::open_files::OpenFile;
use crate::wire::{open, take};

/// An entry of a part of a listing. `.` and `..` have no name.
struct Listed<'a> {
    name: Option<&'a [u8]>,
    found: Option<Ino>,
    next: u64,
}

impl Mounted {
    /// Lists a directory that is open as `file`. Adds the entries to `count`.
    pub(crate) fn list(
        &self,
        dir: Ino,
        file: &OpenFile,
        from: Cookie,
        count: &mut ListedCount,
        sink: &mut EntrySink<'_>,
    ) -> Result<ControlFlow<()>> {
        let request = if self.has_readdirplus { opcode::READDIRPLUS } else { opcode::READDIR };
        let mut at = from.0;
        loop {
            self.evict_idle_files();
            let part = self.read_part(request, file, at, 32 << 10)?;
            if part.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            // All entries are recorded before one is passed, since a sink may end the listing.
            let entries = self.entries(dir, &part)?;
            let last = entries.last().map_or(at, |entry| entry.next);
            if last == at {
                return Err(NONSENSE);
            }
            for entry in entries {
                // An entry that is not passed counts too, so that every listing ends.
                if count.add(entry.name.is_none()) > self.entries_max {
                    return Err(TOO_MANY_ENTRIES);
                }
                let Some(name) = entry.name else { continue };
                let Ok(name) = Name::new(name) else { return Err(NONSENSE) };
                let found = match entry.found {
                    Some(found) => Ok(found),
                    None => self.look_up(dir.0, name.as_bytes(), FoundBy::Listing),
                };
                let flow = match found {
                    // Removed since the listing was made.
                    Err(Error::NotFound) => ControlFlow::Continue(()),
                    Err(error @ Error::Device(_)) => return Err(error),
                    Err(error) => sink(Err(error)),
                    Ok(ino) => {
                        let kind = lock(&self.nodes).get(ino).ok().map(|node| node.kind);
                        sink(Ok(DirEntry { name, ino, kind, next: Cookie(entry.next) }))
                    }
                };
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            at = last;
        }
    }

    /// Opens a directory for a listing from `from`. A position belongs to an open directory: libfuse stores the whole
    /// listing with it, and sshfs ends if the first part of a listing does not start at 0.
    pub(crate) fn directory_at(&self, dir: Ino, from: Cookie) -> Result<OpenFile> {
        let known = lock(&self.listed).take(dir);
        match known {
            Some(file) if from != Cookie::START => return Ok(file),
            Some(file) => self.release(opcode::RELEASEDIR, &file),
            None => {}
        }
        let file = self.open(opcode::OPENDIR, dir.0, open::READ)?;
        if from != Cookie::START {
            let mut count = ListedCount::default();
            let first = self.list(dir, &file, Cookie::START, &mut count, &mut |_| ControlFlow::Break(()));
            let _is_broken = first.inspect_err(|_| self.release(opcode::RELEASEDIR, &file))?;
        }
        Ok(file)
    }

    /// Keeps a directory open whose listing was interrupted.
    pub(crate) fn keep_directory(&self, file: OpenFile) {
        let old = lock(&self.listed).keep(file);
        old.into_iter().for_each(|file| self.release(opcode::RELEASEDIR, &file));
    }

    /// Decodes a part of a listing.
    fn entries<'a>(&self, dir: Ino, mut part: &'a [u8]) -> Result<Vec<Listed<'a>>> {
        let mut entries = Vec::new();
        while !part.is_empty() {
            // Some servers cut a listing within an entry, and send this entry again in the next part.
            let (mut found, mut rest) = (None, part);
            if self.has_readdirplus {
                let Some((entry, after)) = take::<EntryOut>(part) else { break };
                (found, rest) = (Some(entry), after);
            }
            let Some((dirent, rest)) = take::<Dirent>(rest) else { break };
            let len = usize::try_from(dirent.namelen).map_err(|_| NONSENSE)?;
            let Some(name) = rest.get(..len) else { break };
            // Entries start at multiples of 8 bytes.
            part = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
            if dirent.off == 0 || dirent.off >= 1 << 63 {
                return Err(NONSENSE);
            }
            let is_dots = name == b"." || name == b"..";
            let found = match found {
                Some(entry) if !is_dots => self.found(dir.0, &entry, FoundBy::Listing)?,
                _ => None,
            };
            entries.push(Listed { name: (!is_dots).then_some(name), found, next: dirent.off });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use obento_driver::{Access, FileSystem as _};
    use obento_fuse_abi::{InHeader, OpenOut, OutHeader};
    use rustix::io::{read, write};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::Arc;
    use zerocopy::{FromBytes as _, IntoBytes as _};

    use super::*;
    use crate::connection::Connection;
    use crate::wire::flag;

    /// Serves a root whose listing has no end. With `are_dots`, all of its entries are `.`.
    fn endless(are_dots: bool) -> Mounted {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            let mut next = 1_u64;
            while let Ok(len @ 1..) = read(&theirs, &mut request) {
                let (header, _) = InHeader::read_from_prefix(&request[..len]).unwrap();
                let mut body = Vec::new();
                match header.opcode {
                    opcode::INIT => {
                        body = [7_u32, 31, 0, flag::DO_READDIRPLUS].map(u32::to_ne_bytes).concat();
                        body.resize(64, 0);
                    }
                    opcode::OPENDIR => body.extend(OpenOut::default().as_bytes()),
                    opcode::READDIRPLUS => {
                        for _ in 0..100 {
                            next += 1;
                            let name = if are_dots { ".".into() } else { format!("{next:08}") };
                            let mut entry = EntryOut { nodeid: next, ..EntryOut::default() };
                            (entry.attr.mode, entry.attr.nlink, entry.attr.blksize) = (0o100_644, 1, 4096);
                            let namelen = name.len() as u32;
                            let dirent = Dirent { ino: next, off: next, namelen, kind: 8 };
                            body.extend(entry.as_bytes());
                            body.extend(dirent.as_bytes());
                            body.extend(name.as_bytes());
                            body.resize(body.len().next_multiple_of(8), 0);
                        }
                    }
                    _ => {}
                }
                let len = (size_of::<OutHeader>() + body.len()) as u32;
                let reply = OutHeader { len, error: 0, unique: header.unique };
                write(&theirs, &[reply.as_bytes(), &body].concat()).unwrap();
            }
        });
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let connection = Arc::new(Connection::new(ours, Duration::from_secs(600)));
        let mut mounted = Mounted::new(connection, None, Access::ReadOnly).unwrap();
        mounted.entries_max = 1000;
        mounted
    }

    #[test]
    fn a_listing_without_an_end_fails_at_the_limit_also_in_portions() {
        for (are_dots, portion) in [(true, 50), (false, 5000), (false, 50)] {
            let mounted = endless(are_dots);
            let (mut from, mut count) = (Cookie::START, 0_u64);
            let error = loop {
                let mut in_portion = 0;
                let listed = mounted.read_dir(mounted.root(), from, &mut |entry| {
                    (from, count, in_portion) = (entry.unwrap().next, count + 1, in_portion + 1);
                    if in_portion < portion { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                assert!(count <= 1000);
                if let Err(error) = listed {
                    break error;
                }
            };
            assert_eq!((error, count), (TOO_MANY_ENTRIES, if are_dots { 0 } else { 1000 }));
            // A new listing starts from the first entry.
            let first = mounted.read_dir(mounted.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
            assert_eq!(first, if are_dots { Err(TOO_MANY_ENTRIES) } else { Ok(()) });
        }
    }
}
