//! Data that was written and that the server may lose when it restarts (RFC 1813, sections 3.3.7 and 3.3.21).
//!
//! A server returns a verifier with each write that it did not store yet, and with each commit. If the verifiers
//! differ, the server restarted, and the data is sent again.
//! Invariant: data is removed from the table only when it is on stable storage, or when the call that loses it returns
//! an error.
//! Invariant: if data of a file is sent again, all later writes of the file are sent again after it, so that old data
//! never replaces newer data.
//! Locking: the lock of the table is held while data is committed, so that no other caller takes the data for stable.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use obento_base::{Error, Ino, Result};

use crate::contract::{CALLS, LATER_PAUSE, Mounted, REPEATS, Status};
use crate::error::{LATER, NONSENSE, of_status};
use crate::protocol::{Attributes, Handle, procedure};
use crate::rpc::Deadline;
use crate::xdr::{Reader, Writer};

/// The most bytes of data that are not on stable storage.
const UNSTABLE_MAX: usize = 16 << 20;

/// A number that changes when the server restarts.
pub type Verifier = [u8; 8];

/// How a server stores the data of a write before it replies (`stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    Unstable = 0,
    File = 2,
}

/// The data of a write.
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
    verifier: Verifier,
}

/// The data of a file.
struct UnstableFile {
    handle: Handle,
    pieces: Vec<Piece>,
}

/// The data of all files.
#[derive(Default)]
pub struct Unstable {
    files: BTreeMap<u64, UnstableFile>,
    len: usize,
    /// The first error of a commit. Data may be lost.
    failed: Option<Error>,
}

impl Unstable {
    /// Forgets the data of a file that no longer exists.
    pub fn forget(&mut self, ino: Ino) {
        self.take(ino.0);
    }

    fn take(&mut self, number: u64) -> Option<UnstableFile> {
        let file = self.files.remove(&number)?;
        self.len = self.len.saturating_sub(file.pieces.iter().map(|piece| piece.bytes.len()).sum());
        Some(file)
    }

    fn add(&mut self, ino: Ino, handle: &Handle, piece: Piece) {
        self.len = self.len.saturating_add(piece.bytes.len());
        let new = || UnstableFile { handle: handle.clone(), pieces: Vec::new() };
        self.files.entry(ino.0).or_insert_with(new).pieces.push(piece);
    }
}

/// The result of a write that succeeded.
struct Written {
    attributes: Option<Attributes>,
    /// The number of bytes.
    len: usize,
    is_stable: bool,
    verifier: Verifier,
}

/// Takes the results of a write of `len` bytes.
fn written(mut reply: Reader<'_>, len: usize) -> Option<Status<Written>> {
    let status = reply.u32()?;
    if status != 0 {
        return Some(Err(status));
    }
    let attributes = Attributes::take_after_change(&mut reply)?;
    let count = usize::try_from(reply.u32()?).ok().filter(|&count| count > 0 && count <= len)?;
    let is_stable = match reply.u32()? {
        0 => false,
        1 | 2 => true,
        _ => return None,
    };
    let verifier = reply.fixed(8)?.try_into().ok()?;
    Some(Ok(Written { attributes, len: count, is_stable, verifier }))
}

impl Mounted {
    pub(crate) fn unstable(&self) -> MutexGuard<'_, Unstable> {
        self.unstable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the start of `bytes`, with several calls at once. Returns the number of bytes, which is at least 1, and
    /// the attributes of the file if the server returned them.
    pub(crate) fn write_parts(
        &self,
        ino: Ino,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(usize, Option<Attributes>)> {
        let len = usize::try_from(self.write_len).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(len.saturating_mul(CALLS))];
        // A small file needs one call instead of two.
        let how = if offset == 0 && bytes.len() <= len { Stability::File } else { Stability::Unstable };
        let mut attributes = None;
        let mut done = 0;
        for (at, part, found) in self.exchange_parts(handle, offset, bytes, how)? {
            attributes = found.attributes;
            if !found.is_stable {
                let (bytes, verifier) = (part[..found.len].to_vec(), found.verifier);
                self.unstable().add(ino, handle, Piece { offset: at, bytes, verifier });
            }
            done += found.len;
        }
        if self.unstable().len > UNSTABLE_MAX {
            self.commit_all()?;
        }
        // Replies of several calls do not show which attributes are the newest ones.
        Ok((done, attributes.filter(|_| bytes.len() <= len)))
    }

    /// Sends writes, and returns the parts up to the first one that was not written in full.
    fn exchange_parts<'b>(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &'b [u8],
        how: Stability,
    ) -> Result<Vec<(u64, &'b [u8], Written)>> {
        let len = usize::try_from(self.write_len).unwrap_or(usize::MAX);
        let parts: Vec<(u64, &[u8])> = (offset..).step_by(len).zip(bytes.chunks(len)).collect();
        let calls: Vec<Writer> = parts
            .iter()
            .map(|(at, part)| {
                let count = u32::try_from(part.len()).unwrap_or(0);
                handle.arguments().u64(*at).u32(count).u32(how as u32).bytes(part)
            })
            .collect();
        let mut deadline = Deadline::default();
        for _ in 0..=REPEATS {
            let replies = self.connection.calls(procedure::WRITE, &calls, &mut deadline)?;
            let mut done = Vec::new();
            for ((at, part), reply) in parts.iter().zip(&replies) {
                match written(Reader(reply.results()), part.len()).ok_or(NONSENSE)? {
                    Ok(found) => {
                        let is_short = found.len < part.len();
                        done.push((*at, *part, found));
                        if is_short {
                            break;
                        }
                    }
                    Err(LATER) if done.is_empty() => break,
                    Err(status) if done.is_empty() => return Err(of_status(status)),
                    // The caller writes the rest again, and gets the error then.
                    Err(_) => break,
                }
            }
            if !done.is_empty() {
                return Ok(done);
            }
            self.connection.pause(LATER_PAUSE, &deadline)?;
        }
        Err(of_status(LATER))
    }

    /// Returns once the data of a file is on stable storage.
    pub(crate) fn commit(&self, ino: Ino) -> Result<()> {
        let mut unstable = self.unstable();
        self.commit_in(&mut unstable, ino.0)
    }

    /// Returns once the data of all files is on stable storage.
    ///
    /// # Errors
    ///
    /// The error of a commit, now or earlier.
    pub(crate) fn commit_all(&self) -> Result<()> {
        let mut unstable = self.unstable();
        let numbers: Vec<u64> = unstable.files.keys().copied().collect();
        for number in numbers {
            // The error is stored, and the other files are committed.
            let _ = self.commit_in(&mut unstable, number);
        }
        unstable.failed.map_or(Ok(()), Err)
    }

    fn commit_in(&self, unstable: &mut Unstable, number: u64) -> Result<()> {
        let done = unstable.take(number).map_or(Ok(()), |file| self.commit_file(&file));
        if let Err(error) = done {
            unstable.failed.get_or_insert(error);
        }
        unstable.failed.map_or(Ok(()), Err)
    }

    fn commit_file(&self, file: &UnstableFile) -> Result<()> {
        // Offset 0 and length 0 select the whole file.
        let arguments = file.handle.arguments().u64(0).u32(0);
        let verifier: Verifier = self.ask(procedure::COMMIT, &arguments, |reply| {
            Attributes::take_after_change(reply)?;
            reply.fixed(8)?.try_into().ok()
        })?;
        if file.pieces.iter().all(|piece| piece.verifier == verifier) {
            return Ok(());
        }
        tracing::debug!("an NFS server restarted: written data is sent again");
        file.pieces.iter().try_for_each(|piece| self.write_stable(&file.handle, piece.offset, &piece.bytes))
    }

    /// Writes bytes to stable storage.
    fn write_stable(&self, handle: &Handle, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.checked_add(done as u64).ok_or(Error::Invalid)?;
            for (.., found) in self.exchange_parts(handle, at, &bytes[done..], Stability::File)? {
                // A server that does not store the data as requested could lose it.
                if !found.is_stable {
                    return Err(NONSENSE);
                }
                done += found.len;
            }
        }
        Ok(())
    }
}
