//! Pass 2, a directory in its inode: the parent, records in `i_block`, more in the attribute `system.data`.
//!
//! Source: e2fsprogs `e2fsck/pass2.c` `check_dir_block2`; Linux `Documentation/filesystems/ext4/inlinedata.rst`.

use obento_base::Ino;
use obento_base::wire::to_u64;

use super::Issue;
use super::directories::{Look, bad_record};
use crate::xattr::{Area, MAGIC};

impl Look<'_> {
    /// A directory in its inode.
    pub(super) fn inline(&mut self) {
        let dir = self.dir.ino;
        let Some((record, place)) = self.view.record(dir) else { return };
        let Some(head) = record.get(40..100) else { return };
        let parent = head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if parent == 0 || parent > self.view.sb.inodes_count {
            self.tell(Issue::InlineDirectory { dir, offset: 40, why: "the parent cannot be" });
        } else {
            self.dir.set_dot_dot(parent);
            self.count(parent);
        }
        self.count(dir);
        let rest = inline_rest(&record, dir);
        if rest.is_none() {
            self.tell(Issue::InlineData { ino: dir, why: "the attribute system.data is missing" });
        }
        let rest = rest.unwrap_or_default();
        let found = self.dir.size;
        let expected = to_u64(rest.1.len()).saturating_add(60);
        if found != expected {
            self.tell(Issue::Size { ino: dir, found, expected });
        }
        let first = head.get(4..).unwrap_or_default();
        for (base, bytes) in [(44_u32, first), rest] {
            let records = self.run_of(bytes, place.0, base, false);
            self.hashes.clear();
            for record in records.walk() {
                match record {
                    Ok(record) => self.entry(&record, place.0),
                    Err(error) => {
                        let (offset, _) = bad_record(&error);
                        self.tell(Issue::InlineDirectory { dir, offset, why: "damaged record" });
                    }
                }
            }
            self.duplicates(&records, place.0);
        }
    }
}

/// The value of `system.data` in an inode's record, and where it stands there.
pub(super) fn inline_rest(record: &[u8], ino: u32) -> Option<(u32, &[u8])> {
    let extra =
        record.get(128..130).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_le_bytes(*bytes))?;
    let start = usize::from(extra).saturating_add(128);
    let (magic, bytes) = record.get(start..)?.split_first_chunk()?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return None;
    }
    let base = u32::try_from(start).ok()?.saturating_add(4);
    let area = Area { ino: Ino(ino.into()), block: 0, base, bytes, table: 0 };
    let mut entries = area.entries().map_while(Result::ok);
    let entry = entries.find(|entry| entry.raw.e_name_index == 7 && entry.name == b"data")?;
    let value = area.value(&entry).ok()?;
    Some((base.saturating_add(entry.raw.e_value_offs.get().into()), value))
}
