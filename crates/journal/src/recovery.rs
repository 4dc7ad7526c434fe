//! Recovery: the state of the volume after the log has been replayed.
//!
//! Recovery consists of four passes (jbd2 has three):
//!
//! 1. *Scan* finds the end of the log. A transaction counts if its commit block is present and valid.
//! 2. *Collect* records the blocks that have copies in the log. Memory is therefore bounded by the size of the log.
//! 3. *Revoke* records, for each of those blocks, the last transaction that revoked the block.
//! 4. *Replay* selects, for each block, the last valid copy from the transactions after the last transaction
//!    that revoked the block.
//!
//! The end of the log and errors:
//! - A block that is not a control block of the expected transaction ends the log. If this block follows control
//!   blocks without a commit block, the last transaction is incomplete, and its blocks are dropped. Both are normal
//!   ends.
//! - If a descriptor or revoke block has a wrong checksum and the commit block of its transaction is present, the
//!   whole replay fails. Exception: if this commit has an earlier time than the previous commit, the transaction is a
//!   remnant of an earlier use of the journal. The log then ends before the transaction.
//! - A commit block with a wrong checksum ends the log before its transaction. If its time is earlier than the time of
//!   the previous commit, the block is a remnant, and no damage is reported. Otherwise, the report depends on the
//!   feature `ASYNC_COMMIT`:
//!   - Without this feature, the block is reported as damage.
//!   - With this feature, an interrupted commit can leave such a block. The block is therefore reported as damage only
//!     with v1 checksums, and only if another commit block follows.
//! - A data block is lost if its checksum is wrong, or if its tag contains a block number outside of the volume. The
//!   rest is replayed, and the damage is reported.
//!
//! Differences from jbd2: each pass visits each block of the log at most once. A block number outside of the volume
//! does not stop the replay.
//! Source: Linux `fs/jbd2/recovery.c`, `fs/jbd2/revoke.c`.

use alloc::collections::BTreeMap;

use obento_base::crc::crc32_be;
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_block::Source;

use crate::log::{Control, Walk, data_mismatch};
use crate::raw::{CRC32_CHKSUM, CRC32_CHKSUM_SIZE, MAGIC};
use crate::super_block::{Checksums, Incompat};
use crate::tag::TagFlags;
use crate::{Journal, Tag, Tid};

/// Maximum number of different blocks. It exceeds the number of blocks of any default journal (262,144), and limits
/// memory to about 64 MiB.
const MAX_BLOCKS: usize = 1 << 20;

/// The result of [`Journal::replay_index`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// The blocks of the volume that have a newer copy in the log, with the location of each copy. The location is on
    /// the device of the journal.
    pub index: BTreeMap<u64, Source>,
    /// Summary of the log.
    pub summary: Summary,
    /// The first damage that caused blocks or transactions to be lost. All other blocks were replayed.
    pub damage: Option<Error>,
}

/// A summary of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Number of complete transactions.
    pub transactions: u32,
    /// The first expected transaction.
    pub first: Tid,
    /// The transaction after the last complete one. The fast commits of the journal belong to this transaction.
    pub next: Tid,
    /// The block of the journal at which the log continues.
    pub head: u32,
    /// Number of valid copies that no revocation excludes. If several transactions wrote a block, each of its copies
    /// is counted, although only the last copy is used.
    pub blocks: u64,
    /// Number of copies that were not replayed because the same or a later transaction revoked their block.
    pub revoked: u64,
    /// Number of copies that were not replayed because of a wrong checksum or a block number outside of the
    /// volume.
    pub lost: u64,
}

/// The end of the log.
struct End {
    tid: Tid,
    head: u32,
    damage: Option<Error>,
}

/// The copies and the revocation of one block of the volume.
#[derive(Default)]
struct Slot {
    revoked: Option<Tid>,
    source: Option<Source>,
}

impl Slot {
    /// Returns whether a copy of transaction `tid` must not be replayed.
    fn is_revoked(&self, tid: Tid) -> bool {
        self.revoked.is_some_and(|revoked| !tid.is_after(revoked))
    }
}

impl Journal {
    /// Returns the blocks of a volume of `volume_blocks` blocks that have newer copies in the log.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: damage makes the whole log unusable.
    /// - `Unsupported`: the log contains more than 2^20 different blocks.
    /// - `Device`: the device failed.
    pub fn replay_index(&self, volume_blocks: u64) -> Result<Replayed> {
        let first = self.super_block().sequence;
        if !self.super_block().needs_replay() {
            let summary = Summary { first, next: first, head: self.super_block().head, ..Summary::default() };
            return Ok(Replayed { summary, ..Replayed::default() });
        }
        let end = self.scan()?;
        let mut slots = BTreeMap::new();
        self.collect(&end, volume_blocks, &mut slots)?;
        self.revoke(&end, &mut slots)?;
        let transactions = end.tid.since(first);
        let summary = Summary { transactions, first, next: end.tid, head: end.head, ..Summary::default() };
        let mut replayed = Replayed { index: BTreeMap::new(), summary, damage: end.damage };
        self.replay(end.tid, volume_blocks, &mut slots, &mut replayed)?;
        replayed.index.extend(slots.into_iter().filter_map(|(block, slot)| Some((block, slot.source?))));
        Ok(replayed)
    }

    fn scan(&self) -> Result<End> {
        let mut scan = Scan::new(self)?;
        while let Some(control) = scan.walk.step()? {
            let done = match control {
                Control::Descriptor => scan.descriptor()?,
                Control::Revoke => scan.revoke()?,
                Control::Commit => scan.commit()?,
            };
            if done {
                break;
            }
        }
        Ok(scan.end())
    }

    /// Passes every control block of the complete transactions to `visit`, which must skip the blocks of a
    /// descriptor.
    fn each_control(
        &self,
        end: Tid,
        mut visit: impl FnMut(&mut Walk<'_>, Control) -> Result<()>,
    ) -> Result<()> {
        let mut walk = Walk::new(self)?;
        while end.is_after(walk.tid()) {
            let Some(control) = walk.step()? else { break };
            visit(&mut walk, control)?;
            if control == Control::Commit {
                walk.next_transaction();
            }
        }
        Ok(())
    }

    fn collect(&self, end: &End, volume_blocks: u64, slots: &mut BTreeMap<u64, Slot>) -> Result<()> {
        self.each_control(end.tid, |walk, control| {
            if control != Control::Descriptor {
                return Ok(());
            }
            for tag in walk.tags().filter(|tag| tag.block < volume_blocks) {
                if slots.len() >= MAX_BLOCKS && !slots.contains_key(&tag.block) {
                    let feature = Feature::Named("a journal with more than 2^20 blocks to replay");
                    return Err(Error::Unsupported(feature));
                }
                slots.entry(tag.block).or_default();
            }
            walk.skip_tagged();
            Ok(())
        })
    }

    fn revoke(&self, end: &End, slots: &mut BTreeMap<u64, Slot>) -> Result<()> {
        self.each_control(end.tid, |walk, control| {
            match control {
                Control::Descriptor => walk.skip_tagged(),
                Control::Commit => {}
                Control::Revoke => {
                    let tid = walk.tid();
                    for block in walk.revokes()? {
                        if let Some(slot) = slots.get_mut(&block) {
                            // Transactions are visited in order, so the last one is the latest.
                            slot.revoked = Some(tid);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn replay(
        &self,
        end: Tid,
        volume_blocks: u64,
        slots: &mut BTreeMap<u64, Slot>,
        replayed: &mut Replayed,
    ) -> Result<()> {
        let mut copy =
            Copies { journal: self, seed: self.super_block().seed(), buffer: self.block_buffer()? };
        let tag_layout = self.super_block().tag_layout();
        let mut descriptor = self.block_buffer()?;
        self.each_control(end, |walk, control| {
            if control != Control::Descriptor {
                return Ok(());
            }
            descriptor.copy_from_slice(walk.block());
            for tag in tag_layout.tags(&descriptor) {
                let Some(at) = walk.take() else { break };
                let Some(slot) = slots.get_mut(&tag.block).filter(|_| tag.block < volume_blocks) else {
                    let (at, start) = (at.into(), tag.block);
                    replayed.lose(Corrupt::BlockRange { structure: Structure::Journal, at, start, len: 1 });
                    continue;
                };
                if slot.is_revoked(walk.tid()) {
                    replayed.summary.revoked = replayed.summary.revoked.saturating_add(1);
                    continue;
                }
                match copy.verify(walk.tid(), &tag, at)? {
                    Ok(source) => {
                        slot.source = Some(source);
                        replayed.summary.blocks = replayed.summary.blocks.saturating_add(1);
                    }
                    Err(damage) => replayed.lose(damage),
                }
            }
            Ok(())
        })
    }
}

impl Replayed {
    fn lose(&mut self, damage: Corrupt) {
        self.summary.lost = self.summary.lost.saturating_add(1);
        self.damage.get_or_insert(damage.into());
    }
}

/// Verification of the copies in the log.
struct Copies<'j> {
    journal: &'j Journal,
    seed: u32,
    buffer: alloc::vec::Vec<u8>,
}

impl Copies<'_> {
    /// Returns the location of the copy at journal block `at`, or the reason why it is invalid.
    fn verify(&mut self, tid: Tid, tag: &Tag, at: u32) -> Result<Result<Source, Corrupt>> {
        let block = self.journal.locate(at)?;
        let checksums = self.journal.super_block().checksums();
        if checksums.in_blocks() {
            self.journal.read(at, &mut self.buffer)?;
            if let Some((found, expected)) = data_mismatch(checksums, self.seed, tid, tag, &self.buffer) {
                let structure = Structure::Journal;
                return Ok(Err(Corrupt::Checksum { structure, block, found, expected }));
            }
        }
        let first = tag.flags.contains(TagFlags::ESCAPE).then(|| MAGIC.to_be_bytes());
        Ok(Ok(Source { block, first }))
    }
}

/// The first pass, which finds the end of the log.
struct Scan<'j> {
    journal: &'j Journal,
    walk: Walk<'j>,
    seed: u32,
    checksums: Checksums,
    asynchronous: bool,
    /// A wrong checksum in the current transaction. The commit block of the transaction determines the consequence.
    suspect: Option<Error>,
    /// With v1: the running checksum of the transaction.
    running: u32,
    last_commit_time: u64,
    head: u32,
    /// A wrong checksum in a commit block, which ends the log.
    failed: Option<(Tid, u32, Error)>,
    damage: Option<Error>,
}

impl<'j> Scan<'j> {
    fn new(journal: &'j Journal) -> Result<Self> {
        let sb = journal.super_block();
        let walk = Walk::new(journal)?;
        Ok(Self {
            journal,
            head: walk.position(),
            walk,
            seed: sb.seed(),
            checksums: sb.checksums(),
            asynchronous: sb.incompat.contains(Incompat::ASYNC_COMMIT),
            suspect: None,
            running: !0,
            last_commit_time: 0,
            failed: None,
            damage: None,
        })
    }

    /// Processes a descriptor and its blocks. Returns whether the log ends here, as the methods for the
    /// other types do.
    fn descriptor(&mut self) -> Result<bool> {
        self.suspect_block(Control::Descriptor)?;
        if self.checksums != Checksums::V1 || self.failed.is_some() {
            self.walk.skip_tagged();
            return Ok(false);
        }
        self.running = crc32_be(self.running, self.walk.block());
        let mut buffer = self.journal.block_buffer()?;
        for _ in 0..self.walk.tags().count() {
            let Some(at) = self.walk.take() else { break };
            self.journal.read(at, &mut buffer)?;
            self.running = crc32_be(self.running, &buffer);
        }
        Ok(false)
    }

    fn revoke(&mut self) -> Result<bool> {
        self.suspect_block(Control::Revoke)?;
        Ok(false)
    }

    fn suspect_block(&mut self, control: Control) -> Result<()> {
        if let Some(error) = self.walk.damage(control, self.seed)? {
            self.suspect.get_or_insert(error);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        let time = self.walk.commit()?.h_commit_sec.get();
        let stale = time < self.last_commit_time;
        if let Some(error) = self.suspect.take() {
            return if stale { Ok(true) } else { Err(error) };
        }
        if self.checksums == Checksums::V1
            && let Some((_, _, error)) = self.failed
        {
            // The previous commit was invalid and this one exists: the previous one is damaged, not
            // interrupted.
            self.damage = Some(error);
            return Ok(true);
        }
        if let Some(error) = self.commit_damage()? {
            if stale {
                return Ok(true);
            }
            self.failed.get_or_insert((self.walk.tid(), self.head, error));
            if !self.asynchronous {
                self.damage = Some(error);
                return Ok(true);
            }
        }
        self.running = !0;
        self.last_commit_time = time;
        self.head = self.walk.position();
        self.walk.next_transaction();
        Ok(false)
    }

    fn commit_damage(&self) -> Result<Option<Error>> {
        if self.checksums != Checksums::V1 {
            return self.walk.damage(Control::Commit, self.seed);
        }
        let commit = self.walk.commit()?;
        let found = commit.h_chksum.first().map_or(0, |sum| sum.get());
        let stored = (commit.h_chksum_type, commit.h_chksum_size, found);
        if stored == (CRC32_CHKSUM, CRC32_CHKSUM_SIZE, self.running) || stored == (0, 0, 0) {
            return Ok(None);
        }
        self.walk.checksum_error(found, self.running).map(Some)
    }

    fn end(self) -> End {
        match self.failed {
            Some((tid, head, _)) => End { tid, head, damage: self.damage },
            None => End { tid: self.walk.tid(), head: self.head, damage: None },
        }
    }
}
