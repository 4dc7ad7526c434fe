//! Showing the journal: its super block, the records of its log, and the fast commits after it. Offsets are those on
//! the device of the journal.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, split};
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::fields;
use obento_driver::record::Builder;
use obento_driver::{FieldValue, Record};
use obento_journal::raw::{RawCommit, RawRevokeHeader, RawSuperBlock, RawTag3};
use obento_journal::{Incompat, Journal, LogRecord, LogRecordKind, SuperBlock, Tag};

use super::{Sink, fast_commit};
use crate::unit::FileBlock;
use crate::volume::Volume;

/// `h_magic`, `h_blocktype` and `h_sequence` of every control block.
const HEADER: [(usize, usize); 3] = [(0, 4), (4, 4), (8, 4)];

/// Passes the journal of `volume` to `sink`. Fails with `NotSupported` if the volume has no journal, or if the
/// journal's device was not given.
pub(super) fn inspect(volume: &Volume, sink: Sink<'_>) -> Result<()> {
    let journal = match volume.journal() {
        Ok(journal) => journal.ok_or(Error::NotSupported)?,
        Err(error) => return damaged(volume, error, sink),
    };
    let start = start_of(volume, journal.super_block_place()?);
    sink(super_block(&**journal.device(), start));
    for record in journal.records()? {
        match record {
            Ok(record) => log_record(&journal, &record, sink),
            Err(error) => sink(Err(error)),
        }
    }
    fast_commit::inspect(volume, &journal, sink)
}

fn start_of(volume: &Volume, block: u64) -> u64 {
    block.saturating_mul(volume.block_size().into())
}

/// Shows the super block of an internal journal that cannot be opened, if it can be found.
fn damaged(volume: &Volume, error: Error, sink: Sink<'_>) -> Result<()> {
    let inum = volume.super_block().raw.s_journal_inum.get();
    let inode = volume.stored_inode(Ino(inum.into())).map_err(|_| error)?;
    let block = volume.map_block(&inode, FileBlock(0)).ok().flatten().ok_or(error)?;
    sink(super_block(&**volume.device(), start_of(volume, block.0)));
    sink(Err(error));
    Ok(())
}

fn super_block(device: &dyn BlockDevice, start: u64) -> Result<Record> {
    let mut bytes = [0; SuperBlock::LEN];
    device.read_at(start, &mut bytes)?;
    let mut builder = Builder::new("journal super block", 0, start);
    if let Ok(raw) = RawSuperBlock::ref_from_bytes(&bytes) {
        fields!(
            builder,
            raw.s_header,
            obento_journal::raw::RawHeader { h_magic: Hex, h_blocktype: Number, h_sequence: Number }
        );
        fields!(
            builder,
            raw,
            RawSuperBlock {
                s_blocksize: Number,
                s_maxlen: Number,
                s_first: Number,
                s_sequence: Number,
                s_start: Number,
                s_errno: Number,
                s_feature_compat: Hex,
                s_feature_incompat: Hex,
                s_feature_ro_compat: Hex,
                s_uuid: Bytes,
                s_nr_users: Number,
                s_dynsuper: Number,
                s_max_transaction: Number,
                s_max_trans_data: Number,
                s_checksum_type: Number,
                s_num_fc_blks: Number,
                s_head: Number,
                s_checksum: Hex,
            }
        );
    }
    Ok(builder.finish())
}

fn log_record(journal: &Journal, record: &LogRecord, sink: Sink<'_>) {
    let size = journal.super_block().block_size;
    let start = record.block.saturating_mul(size.into());
    let (kind, number) = match record.kind {
        LogRecordKind::Descriptor(_) => ("journal descriptor", 1),
        LogRecordKind::Commit { .. } => ("journal commit", 2),
        LogRecordKind::Revoke(_) => ("journal revoke", 5),
    };
    let mut builder = Builder::new(kind, 0, start);
    let values = [FieldValue::Hex(obento_journal::raw::MAGIC.into()), FieldValue::Number(number)];
    let values = values.into_iter().chain([FieldValue::Number(record.tid.0.into())]);
    for (((offset, len), name), value) in
        HEADER.into_iter().zip(["h_magic", "h_blocktype", "h_sequence"]).zip(values)
    {
        builder.add(name, offset, len, value);
    }
    match &record.kind {
        LogRecordKind::Descriptor(tags) => {
            sink(Ok(builder.finish()));
            tags.iter().for_each(|(tag, at)| sink(Ok(block_tag(journal, start, tag, *at))));
        }
        LogRecordKind::Revoke(blocks) => {
            sink(Ok(builder.finish()));
            revoked(journal, start, blocks, sink);
        }
        LogRecordKind::Commit { seconds, nanoseconds } => {
            let second = core::mem::offset_of!(RawCommit, h_commit_sec);
            builder.number("h_commit_sec", second, 8, *seconds);
            builder.number("h_commit_nsec", second.saturating_add(8), 4, (*nanoseconds).into());
            sink(Ok(builder.finish()));
        }
    }
    if let Some(damage) = record.damage {
        sink(Err(damage));
    }
}

/// Returns the record of a tag, and the place of its copy.
fn block_tag(journal: &Journal, start: u64, tag: &Tag, at: u32) -> Record {
    let layout = journal.super_block().tag_layout();
    let v3 = layout.tag_len() == size_of::<RawTag3>();
    let mut builder = Builder::new("block tag", 1, start.saturating_add(tag.offset.into()));
    let (low, high) = split(tag.block);
    builder.number("t_blocknr", 0, 4, low.into());
    if v3 {
        builder.text("t_flags", 4, 4, flag_names(tag));
    } else {
        builder.hex("t_checksum", 4, 2, tag.checksum.into()).text("t_flags", 6, 2, flag_names(tag));
    }
    if journal.super_block().incompat.contains(Incompat::BITS_64) {
        builder.number("t_blocknr_high", 8, 4, high.into());
    }
    if v3 {
        builder.hex("t_checksum", 12, 4, tag.checksum.into());
    }
    if let Ok(block) = journal.locate(at) {
        let size = journal.super_block().block_size;
        let mut copy = Builder::new("", 1, block.saturating_mul(size.into()));
        copy.number("copy", 0, usize::try_from(size).unwrap_or(0), at.into());
        let mut record = builder.finish();
        record.fields.extend(copy.finish().fields);
        return record;
    }
    builder.finish()
}

fn flag_names(tag: &Tag) -> String {
    let names: Vec<_> = tag.flags.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() { String::from("none") } else { names.join(" ").to_ascii_lowercase() }
}

fn revoked(journal: &Journal, start: u64, blocks: &[u64], sink: Sink<'_>) {
    let width = if journal.super_block().incompat.contains(Incompat::BITS_64) { 8 } else { 4 };
    let first = size_of::<RawRevokeHeader>();
    for (n, &block) in (0_usize..).zip(blocks) {
        let offset = first.saturating_add(n.saturating_mul(width));
        let mut builder = Builder::new("revoked block", 1, start);
        sink(Ok(builder.number("blocknr", offset, width, block).finish()));
    }
}
