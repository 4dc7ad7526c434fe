//! The copies of the first records, and the bitmap of clusters.

use alloc::vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};

use super::{Issue, Run};
use crate::data::content::Content;
use crate::layout::raw::{kind, record};
use crate::mft::{MIRRORED, Record};

/// Bytes of the bitmap that are compared at once.
const COMPARED: usize = 64 << 10;

/// Returns the bytes of a record without its update sequence, which changes with each write.
fn comparable(record: &Record) -> impl Iterator<Item = u8> + '_ {
    let header = record.header();
    let start = usize::from(header.usa_offset.get());
    let end = start.saturating_add(usize::from(header.usa_count.get()).saturating_mul(2));
    let outside = move |(at, _): &(usize, &u8)| !(start..end).contains(at);
    record.bytes().iter().enumerate().filter(outside).map(|(_, &byte)| byte)
}

impl Run<'_> {
    /// Compares the first records of the table with their copies.
    pub(super) fn mirror(&mut self) {
        for ino in 0..MIRRORED {
            let (main, copy) = self.volume.mft().both(ino);
            let is_same = match (&main, &copy) {
                (Ok(main), Ok(copy)) => comparable(main).eq(comparable(copy)),
                _ => false,
            };
            match main {
                Err(why) => self.found(&Issue::Record { ino, why }),
                Ok(_) if !is_same => self.found(&Issue::Mirror { ino }),
                Ok(_) => {}
            }
        }
    }

    /// Compares `$Bitmap` with the clusters of files.
    pub(super) fn cluster_bitmap(&mut self) -> Result<()> {
        let ino = Ino(record::BITMAP);
        let value = self.volume.mft().file(ino).and_then(|file| {
            let value = file.value(self.volume.mft(), kind::DATA, &[])?;
            value.ok_or_else(|| file.base.field("Bitmap", 0, 0))
        });
        let content = match value {
            Ok(value) => Content::from(value),
            // The record is reported by itself.
            Err(_) => return Ok(()),
        };
        let clusters = self.volume.geometry().clusters;
        let mut buf = vec![0; COMPARED];
        let mut open = Difference::default();
        let mut at = 0_u64;
        while at << 3 < clusters {
            self.progress("clusters", (at << 3).min(clusters), clusters);
            let len = match self.volume.read_content(ino, &content, at, &mut buf) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error @ Error::Device(_)) => return Err(error),
                Err(why) => {
                    self.found(&Issue::Tables { why });
                    break;
                }
            };
            for (index, word) in (to_usize(at >> 3)..).zip(buf.get(..len).unwrap_or_default().chunks(8)) {
                let mut bytes = [0; 8];
                bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
                let (marked, owned) = (u64::from_le_bytes(bytes), self.claims.word(index));
                self.compare(&mut open, to_u64(index) << 6, marked, owned, clusters);
            }
            at = at.saturating_add(to_u64(len));
        }
        self.close(&mut open, 0);
        Ok(())
    }

    /// Compares 64 clusters.
    fn compare(&mut self, open: &mut Difference, first: u64, marked: u64, owned: u64, clusters: u64) {
        if marked == owned {
            return self.close(open, 0);
        }
        for bit in 0..64_u32 {
            let lcn = first.saturating_add(bit.into());
            if lcn >= clusters {
                break;
            }
            let is_set = |word: u64| word.checked_shr(bit).unwrap_or(0) & 1;
            // 1: lost; 2: unmarked.
            let kind = match (is_set(marked), is_set(owned)) {
                (1, 0) => 1,
                (0, 1) => 2,
                _ => 0,
            };
            if kind != open.kind || lcn != open.start.saturating_add(open.len) {
                self.close(open, kind);
                open.start = lcn;
            }
            open.len = open.len.saturating_add(u64::from(kind != 0));
        }
    }

    /// Reports the difference that ends, and starts one of another kind.
    fn close(&mut self, open: &mut Difference, kind: u8) {
        let (cluster, clusters) = (open.start, open.len);
        match open.kind {
            1 if clusters > 0 => self.found(&Issue::LostClusters { cluster, clusters }),
            2 if clusters > 0 => self.found(&Issue::UnmarkedClusters { cluster, clusters }),
            _ => {}
        }
        *open = Difference { kind, start: 0, len: 0 };
    }
}

/// Clusters whose bits are wrong in the same way.
#[derive(Default)]
struct Difference {
    kind: u8,
    start: u64,
    len: u64,
}
