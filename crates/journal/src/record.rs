//! The records of the log for display. A record with a wrong checksum is returned, together with the error.

use alloc::vec::Vec;

use obento_base::{Error, Result};

use crate::log::{Control, Walk};
use crate::{Journal, Tag, Tid};

/// A control block of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Block number in the journal.
    pub at: u32,
    /// Block number on the device of the journal.
    pub block: u64,
    /// Transaction number.
    pub tid: Tid,
    /// Contents.
    pub kind: LogRecordKind,
    /// The error, if the checksum of the block is wrong.
    pub damage: Option<Error>,
}

/// The contents of a control block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecordKind {
    /// The following blocks are copies of blocks of the volume. Each tag is paired with the block of the
    /// journal that contains the copy.
    Descriptor(Vec<(Tag, u32)>),
    /// Older copies of these blocks must not be replayed.
    Revoke(Vec<u64>),
    /// The transaction is complete.
    Commit {
        /// Seconds since 1970.
        seconds: u64,
        /// Nanoseconds.
        nanoseconds: u32,
    },
}

impl Journal {
    /// Returns an iterator over the control blocks of the log, including those of an incomplete last
    /// transaction. The iterator ends before the first block that does not belong to the log, and after an error. It
    /// returns no block if the journal is clean. Fails with `NoMemory`.
    pub fn records(&self) -> Result<LogRecords<'_>> {
        Ok(LogRecords { walk: Some(Walk::new(self)?), seed: self.super_block().seed() })
    }
}

/// An iterator over the control blocks of a log. It returns an error if a control block cannot be read, or if the list
/// in a revoke block is damaged.
pub struct LogRecords<'j> {
    walk: Option<Walk<'j>>,
    seed: u32,
}

fn record(walk: &mut Walk<'_>, seed: u32) -> Result<Option<LogRecord>> {
    let Some(control) = walk.step()? else { return Ok(None) };
    let (at, block, tid) = (walk.at(), walk.located()?, walk.tid());
    let damage = walk.damage(control, seed)?;
    let kind = match control {
        Control::Descriptor => {
            let tags: Vec<Tag> = collect(walk.tags())?;
            let copies = tags.into_iter().map_while(|tag| Some((tag, walk.take()?)));
            LogRecordKind::Descriptor(collect(copies)?)
        }
        Control::Revoke => LogRecordKind::Revoke(collect(walk.revokes()?)?),
        Control::Commit => {
            let commit = walk.commit()?;
            let (seconds, nanoseconds) = (commit.h_commit_sec.get(), commit.h_commit_nsec.get());
            walk.next_transaction();
            LogRecordKind::Commit { seconds, nanoseconds }
        }
    };
    Ok(Some(LogRecord { at, block, tid, kind, damage }))
}

/// Collects the items of one block: a few thousand at most.
fn collect<T>(items: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for item in items {
        all.try_reserve(1)?;
        all.push(item);
    }
    Ok(all)
}

impl Iterator for LogRecords<'_> {
    type Item = Result<LogRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = record(self.walk.as_mut()?, self.seed).transpose();
        if !matches!(record, Some(Ok(_))) {
            self.walk = None;
        }
        record
    }
}
