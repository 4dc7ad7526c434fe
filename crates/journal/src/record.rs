//! The log record by record, for people: nothing is judged, everything is shown.

use alloc::vec::Vec;

use obento_base::{Error, Result};

use crate::log::{Control, Walk};
use crate::{Journal, Tag, Tid};

/// One control block of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Its block of the journal.
    pub at: u32,
    /// Where that lies on the journal's device, in blocks.
    pub block: u64,
    /// The transaction.
    pub tid: Tid,
    /// What it says.
    pub kind: LogRecordKind,
    /// What is wrong with its checksum, if anything.
    pub damage: Option<Error>,
}

/// What a control block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecordKind {
    /// The blocks that follow are copies of blocks of the volume: each tag with the block of the journal that holds
    /// the copy.
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
    /// The control blocks from the start of the log to the first that is not part of it; none if the journal is
    /// clean. What a torn last transaction holds is among them.
    pub fn records(&self) -> Result<LogRecords<'_>> {
        Ok(LogRecords { walk: Some(Walk::new(self)?), seed: self.super_block().seed() })
    }
}

/// The control blocks of a log, in order.
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

/// Collects what one block holds: a few thousand records at most.
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
