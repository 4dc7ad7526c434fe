//! Listings of directories.

use std::ops::ControlFlow;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};
use obento_fuse_abi::{Dirent, EntryOut, opcode};

use crate::contract::{Mounted, lock};
use crate::error::NONSENSE;
use crate::open_files::OpenFile;
use crate::wire::{open, take};

/// An entry of a part of a listing. `.` and `..` have no name.
struct Listed<'a> {
    name: Option<&'a [u8]>,
    found: Option<Ino>,
    next: u64,
}

impl Mounted {
    /// Lists a directory that is open as `file`.
    pub(crate) fn list(
        &self,
        dir: Ino,
        file: &OpenFile,
        from: Cookie,
        sink: &mut EntrySink<'_>,
    ) -> Result<ControlFlow<()>> {
        let request = if self.has_readdirplus { opcode::READDIRPLUS } else { opcode::READDIR };
        let mut at = from.0;
        loop {
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
                let Some(name) = entry.name else { continue };
                let Ok(name) = Name::new(name) else { return Err(NONSENSE) };
                let found = match entry.found {
                    Some(found) => Ok(found),
                    None => self.look_up(dir.0, name.as_bytes()),
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
            let first = self.list(dir, &file, Cookie::START, &mut |_| ControlFlow::Break(()));
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
                Some(entry) if !is_dots => self.found(dir.0, &entry)?,
                _ => None,
            };
            entries.push(Listed { name: (!is_dots).then_some(name), found, next: dirent.off });
        }
        Ok(entries)
    }
}
