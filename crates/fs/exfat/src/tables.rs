//! The properties of the volume in the root directory: its bitmap, its up-case table, its label and its GUID.
//!
//! Layout: entries of special types anywhere in the root directory. The bitmap and the table are in clusters that the
//! FAT chains.
//! Source: specification, 7.1, 7.2, 7.3 and 7.5.

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes as _, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_clusters::{Bits, Chain, Cluster, Portions, Run, Volume as _};
use obento_driver::Notice;

use crate::dir::{Directory, Scan};
use crate::name::to_bytes;
use crate::raw::{RawBitmap, RawEntry, RawGuid, RawLabel, RawUpCase, kind};
use crate::up_case::{self, UpCase};
use crate::volume::{SYSTEM, Volume};

/// Maximum number of units of a label.
pub const LABEL_MAX: usize = 11;

/// The properties of the volume in the root directory.
#[derive(Default)]
pub struct Tables {
    /// The clusters of the bitmap.
    pub bitmap: Vec<Run>,
    /// The up-case table.
    pub up_case: UpCase,
    /// The clusters of the up-case table.
    pub up_case_runs: Vec<Run>,
    /// The label in UTF-8, or empty.
    pub label: Vec<u8>,
    /// The GUID, in the byte order of its text form.
    pub guid: Option<[u8; 16]>,
}

fn as_kind<T: obento_base::wire::FromBytes>(entry: &RawEntry) -> Option<T> {
    T::read_from_bytes(entry.as_bytes()).ok()
}

/// Returns the label from its entry.
pub fn label_of(entry: &RawEntry) -> Vec<u8> {
    let raw: Option<RawLabel> = as_kind(entry);
    raw.map_or_else(Vec::new, |raw| {
        let count = usize::from(raw.CharacterCount).min(LABEL_MAX);
        to_bytes(raw.VolumeLabel.map(|unit| unit.get()).into_iter().take(count))
    })
}

/// Converts a GUID between its stored and its text form, which differ in the byte order of the first three fields.
pub fn swap_guid(guid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid;
    let mut swapped = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    swapped.iter_mut().skip(8).zip(rest).for_each(|(to, from)| *to = from);
    swapped
}

impl Volume {
    /// Reads the root directory. Fails with `Corrupt` if there is no bitmap, or if the device fails.
    pub fn read_tables(&self, root: &Directory) -> Result<(Tables, Vec<Notice>)> {
        let mut tables = Tables::default();
        let mut notices = Vec::new();
        let (mut bitmap, mut table, mut unread) = (None, None, None);
        let mut scan = Scan::new(root, self.super_block(), self.cache(), 0);
        while let Some(found) = scan.next_entry() {
            let raw = match found {
                Ok((_, raw)) => raw,
                Err(error) => {
                    unread = unread.or(Some(error));
                    continue;
                }
            };
            match raw.EntryType {
                kind::END => break,
                kind::BITMAP => {
                    let raw: Option<RawBitmap> = as_kind(&raw);
                    let active = |raw: &RawBitmap| raw.BitmapFlags & 1 == self.super_block().active;
                    bitmap = bitmap.or(raw.filter(active));
                }
                kind::UP_CASE => table = table.or(as_kind::<RawUpCase>(&raw)),
                kind::LABEL => tables.label = label_of(&raw),
                kind::GUID => {
                    tables.guid = as_kind::<RawGuid>(&raw).map(|raw| swap_guid(raw.VolumeGuid));
                }
                _ => {}
            }
        }
        let missing = |field, found: u64| {
            Error::from(Corrupt::Field {
                structure: Structure::Directory(root.ino),
                field,
                block: 0,
                offset: 0,
                found,
            })
        };
        // An entry in an unreadable part is not reported as missing.
        let absent = |field| unread.unwrap_or_else(|| missing(field, 0));
        let bitmap = bitmap.ok_or_else(|| absent("Allocation Bitmap"))?;
        let needed = self.super_block().bitmap_len();
        if bitmap.DataLength.get() < needed {
            return Err(missing("DataLength", bitmap.DataLength.get()));
        }
        tables.bitmap = self.runs_of(bitmap.FirstCluster.get(), needed)?;
        let read = table.ok_or_else(|| absent("Up-case Table")).and_then(|raw| self.read_up_case(&raw));
        match read {
            Ok((table, runs)) => (tables.up_case, tables.up_case_runs) = (table, runs),
            Err(error) => {
                tables.up_case = UpCase::standard()?;
                notices.push(Notice::Damaged(error));
            }
        }
        Ok((tables, notices))
    }

    /// Returns the place of `len` bytes from cluster `first` on. Fails with `Corrupt` for a chain that is shorter.
    pub fn runs_of(&self, first: u32, len: u64) -> Result<Vec<Run>> {
        let count = self.super_block().clusters_for(len);
        let mut chain = Chain::new((first != 0).then_some(Cluster(first)));
        chain.reach(&mut self.table(), SYSTEM, count)?;
        let mut runs = chain.runs().to_vec();
        runs.retain_mut(|run| {
            run.len = run.len.min(count.saturating_sub(run.at));
            run.len > 0
        });
        match runs.last().map_or(0, |run| run.at.saturating_add(run.len)) {
            found if found < count => {
                let what = "ends before the end of its table";
                Err(Corrupt::Chain { ino: SYSTEM, at: found, what }.into())
            }
            _ => Ok(runs),
        }
    }

    /// Returns the byte offset on the device of byte `at` of `runs`, and the number of contiguous bytes there.
    pub fn place_in(&self, runs: &[Run], at: u64) -> Option<(u64, u64)> {
        let size = u64::from(self.super_block().cluster_size);
        let cluster = u32::try_from(at.checked_div(size)?).ok()?;
        let run = runs.get(runs.partition_point(|run| run.at <= cluster).checked_sub(1)?)?;
        let skipped = cluster.checked_sub(run.at).filter(|&skipped| skipped < run.len)?;
        let start = self.super_block().offset_of(Cluster(run.start.0.checked_add(skipped)?))?;
        let within = at.checked_rem(size)?;
        let left = u64::from(run.len.saturating_sub(skipped)).saturating_mul(size).saturating_sub(within);
        Some((start.checked_add(within)?, left))
    }

    /// Returns the bytes of `runs`. Fails if the device fails.
    pub fn read_runs(&self, runs: &[Run], len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(to_usize(len))?;
        bytes.resize(to_usize(len), 0);
        let mut at = 0;
        while at < len {
            let (place, left) = self.place_in(runs, at).ok_or(Error::Invalid)?;
            let step = left.min(len.saturating_sub(at)).max(1);
            let part = bytes.get_mut(to_usize(at)..to_usize(at.saturating_add(step)));
            self.cache().device().read_at(place, part.ok_or(Error::Invalid)?)?;
            at = at.saturating_add(step);
        }
        Ok(bytes)
    }

    fn read_up_case(&self, raw: &RawUpCase) -> Result<(UpCase, Vec<Run>)> {
        let len = raw.DataLength.get();
        let structure = Structure::UpCaseTable;
        let bad = |field, offset, found| Corrupt::Field { structure, field, block: 0, offset, found };
        if !up_case::is_len(len) {
            return Err(bad("DataLength", 24, len).into());
        }
        let runs = self.runs_of(raw.FirstCluster.get(), len)?;
        let bytes = self.read_runs(&runs, len)?;
        let (found, expected) = (raw.TableChecksum.get(), up_case::checksum(&bytes));
        if found != expected {
            return Err(Corrupt::Checksum { structure, block: 0, found, expected }.into());
        }
        let table = UpCase::decode(&bytes)?.ok_or_else(|| bad("TableChecksum", 4, found.into()))?;
        Ok((table, runs))
    }

    /// Returns the clusters that the bitmap marks as used. Fails with `NoMemory`, or if the device fails.
    pub fn used(&self) -> Result<Bits> {
        let (sb, device) = (self.super_block(), self.cache().device());
        let (mut used, len) = (Bits::default(), sb.bitmap_len());
        for run in &self.tables().bitmap {
            let at = u64::from(run.at).saturating_mul(sb.cluster_size.into());
            let (start, left) = self.place_in(&self.tables().bitmap, at).ok_or(Error::Invalid)?;
            let end = start.saturating_add(left.min(len.saturating_sub(at)));
            let mut portions = Portions::new(&**device, start..end);
            while let Some((range, bytes)) = portions.next_portion() {
                let byte = at.saturating_add(range.start.saturating_sub(start));
                let first = byte.saturating_mul(8).saturating_add(2);
                used.load(Cluster(u32::try_from(first).map_err(|_| Error::Invalid)?), bytes?)?;
            }
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_swapped_to_and_fro() {
        let guid: [u8; 16] = core::array::from_fn(|at| at as u8);
        assert_eq!(swap_guid(guid), [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(swap_guid(swap_guid(guid)), guid);
    }
}
