//! The journal of ext3 and ext4 (jbd2): its format, replay, and transactions.
//!
//! A journal is stored in the blocks of an inode or on a separate device. The caller provides the locations
//! of the blocks ([`Runs`]), so this crate is independent of file systems. A *control block* of the log is a
//! descriptor, revoke or commit block. The *home location* of a block is its location on the volume. A
//! *checkpoint* writes blocks to their home locations, and frees the space of the log that the blocks used. A
//! transaction is *durable* when its commit block and all blocks before it are on stable storage.
//!
//! If a volume must not be written, the log is *indexed* instead of replayed. [`Journal::replay_index`] returns the
//! blocks of the volume that have a newer copy in the log. [`Remap`](obento_block::Remap) presents the volume with
//! these copies.
//!
//! Recovery follows Linux `fs/jbd2/recovery.c`; the header of `recovery.rs` lists the differences.
//!
//! In addition to the errors in its list, a method that returns a `Result` can fail with `NoMemory`.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod checksum;
mod copies;
mod external;
mod gather;
mod journal;
mod log;
mod map;
pub mod raw;
mod record;
mod recovery;
mod revoke;
mod super_block;
mod tag;
mod tid;
pub mod txn;
mod write;

pub use copies::OldCopy;
pub use external::ExternalJournal;
pub use journal::Journal;
pub use map::{Run, Runs};
pub use record::{LogRecord, LogRecordKind, LogRecords};
pub use recovery::{Replayed, Summary};
pub use revoke::Revokes;
pub use super_block::{Checksums, Compat, Incompat, SuperBlock, Version};
pub use tag::{Tag, TagFlags, TagLayout, Tags};
pub use tid::Tid;
pub use txn::{
    BlockMut, CommitHooks, CommitOptions, CommitStats, Credits, Extended, Log, NoHooks, Taken, TakenUnread,
    Transactions, Txn,
};
pub use write::{JournalFeatures, JournalWriter};
