//! Showing the records of the fast-commit area.

use alloc::string::String;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_driver::record::Builder;
use obento_driver::{FieldValue, Record};
use obento_journal::Journal;

use super::Sink;
use crate::fast_commit::{AreaGeometry, Located, Tlv, each_record};
use crate::volume::Volume;

/// Passes the records of the area to `sink`, whether they are valid or not, up to the first that cannot be decoded.
pub(super) fn inspect(volume: &Volume, journal: &Journal, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    let geometry = AreaGeometry { block_size: sb.block_size.bytes(), inode_size: sb.inode_size };
    let first = journal.super_block().fast_commits().start;
    let mut any = false;
    each_record(journal, geometry, |at, located| {
        // Without a head, the area is empty or contains remnants.
        any |= matches!(located.tlv, Tlv::Head(_));
        if !any {
            return core::ops::ControlFlow::Break(());
        }
        let block = journal.locate(first.saturating_add(at)).unwrap_or(0);
        let start = block.saturating_mul(sb.block_size.into()).saturating_add(to_u64(located.offset));
        sink(Ok(describe(start, &located)));
        core::ops::ControlFlow::Continue(())
    })
}

fn describe(start: u64, located: &Located<'_>) -> Record {
    let depth = if matches!(located.tlv, Tlv::Head(_)) { 0 } else { 1 };
    let mut builder = Builder::new("fast commit record", depth, start);
    builder.text("fc_tag", 0, 2, name(&located.tlv));
    match located.tlv {
        Tlv::Head(head) => {
            builder.hex("fc_features", 4, 4, head.fc_features.get().into());
            builder.number("fc_tid", 8, 4, head.fc_tid.get().into());
        }
        Tlv::Tail(tail) => {
            builder.number("fc_tid", 4, 4, tail.fc_tid.get().into());
            builder.hex("fc_crc", 8, 4, tail.fc_crc.get().into());
        }
        Tlv::AddRange(range) => {
            let extent = &range.fc_ex;
            let block = u64::from(extent.ee_start_lo.get()) | u64::from(extent.ee_start_hi.get()) << 32;
            builder.number("fc_ino", 4, 4, range.fc_ino.get().into());
            builder.number("ee_block", 8, 4, extent.ee_block.get().into());
            builder.number("ee_len", 12, 2, extent.ee_len.get().into());
            builder.number("ee_start", 14, 6, block);
        }
        Tlv::DelRange(range) => {
            builder.number("fc_ino", 4, 4, range.fc_ino.get().into());
            builder.number("fc_lblk", 8, 4, range.fc_lblk.get().into());
            builder.number("fc_len", 12, 4, range.fc_len.get().into());
        }
        Tlv::Creat(info, name) | Tlv::Link(info, name) | Tlv::Unlink(info, name) => {
            builder.number("fc_parent_ino", 4, 4, info.fc_parent_ino.get().into());
            builder.number("fc_ino", 8, 4, info.fc_ino.get().into());
            builder.add("fc_dname", 12, name.len(), FieldValue::Bytes(name.to_vec()));
        }
        Tlv::Inode(inode, record) => {
            builder.number("fc_ino", 4, 4, inode.fc_ino.get().into());
            builder.add("fc_raw_inode", 8, record.len(), FieldValue::Bytes(record.to_vec()));
        }
        Tlv::Pad => {}
    }
    builder.finish()
}

fn name(tlv: &Tlv<'_>) -> String {
    String::from(match tlv {
        Tlv::AddRange(_) => "add_range",
        Tlv::DelRange(_) => "del_range",
        Tlv::Creat(..) => "creat",
        Tlv::Link(..) => "link",
        Tlv::Unlink(..) => "unlink",
        Tlv::Inode(..) => "inode",
        Tlv::Pad => "pad",
        Tlv::Tail(_) => "tail",
        Tlv::Head(_) => "head",
    })
}
