//! Applying the edits that repair issues.
//!
//! Order: directories and boot sectors come first, each at once, together with the copy of the FAT that is read. All
//! copies of a changed sector of the FAT, and FSInfo, come at the end. After an interruption, the next run finds and
//! repairs the rest.
//! Invariant: memory contains one changed sector, and one bit for each entry of the FAT in use.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashSet;
use obento_base::wire::{FromBytes as _, FromZeros as _, IntoBytes as _, le, to_u64, to_usize};
use obento_base::{Error, Result};
use obento_clusters::{Bits, Entry, FileEntry as _, clusters_of, sectors};
use obento_driver::CheckOptions;

use super::choices::UndecidedEntries;
use super::copies;
use super::edit::Edit;
use super::tree::{Slots, root_slots};
use super::view::View;
use crate::inode::{Attributes, Kind};
use crate::name::ShortName;
use crate::raw::{RawEntry, RawFsInfo};
use crate::super_block::{Root, Width};
use crate::table::{last, pieces, place};
use crate::time::Zone;
use crate::unit::Cluster;

/// Applies the edits. Fails with `NoMemory`, or if the device fails.
pub fn apply<'e>(view: &View, edits: impl Iterator<Item = &'e Edit>, options: &CheckOptions) -> Result<()> {
    let mut editor = Editor { view, held: None, changed: Bits::default(), root: None };
    let (settling, edits): (Vec<_>, Vec<_>) = edits.partition(|edit| matches!(edit, Edit::Settle(_)));
    let (mirrors, edits): (Vec<_>, Vec<_>) =
        edits.into_iter().partition(|edit| matches!(edit, Edit::Mirror { .. }));
    // The other edits are based on the chosen FAT entries.
    for edit in settling.into_iter().chain(edits).chain(mirrors) {
        match edit {
            Edit::Write { offset, bytes } => editor.put(*offset, bytes)?,
            Edit::Link { cluster, value } => editor.link(*cluster, *value)?,
            Edit::Free { first, clusters } => editor.free(*first, *clusters)?,
            Edit::Save { first, clusters } => editor.save(*first, *clusters, options)?,
            Edit::Settle(doubt) => editor.settle(*doubt)?,
            Edit::Mirror { copy } => editor.make_equal(*copy, |_| true)?,
            Edit::FreeCount => {}
        }
    }
    editor.finish()
}

/// The state of applying edits.
struct Editor<'v> {
    view: &'v View,
    /// A changed sector.
    held: Option<(u64, Vec<u8>)>,
    /// Entries of the FAT that changed.
    changed: Bits,
    root: Option<Saved>,
}

/// The root directory, in which lost chains become files.
struct Saved {
    slots: Slots,
    next: usize,
    names: HashSet<ShortName>,
    given: u32,
    /// The clusters in use, once the directory has grown: those that it took since are counted, and those that the repair
    /// freed are not.
    used: Option<Bits>,
}

impl Editor<'_> {
    fn sector(&self, offset: u64) -> (u64, usize) {
        let size = u64::from(self.view.sb.sector_size);
        (offset.checked_div(size).unwrap_or(0), to_usize(offset.checked_rem(size).unwrap_or(0)))
    }

    /// Writes the current sector.
    fn release(&mut self) -> Result<()> {
        let Some((number, bytes)) = self.held.take() else { return Ok(()) };
        let offset = number.saturating_mul(self.view.sb.sector_size.into());
        self.view.device().write_at(offset, &bytes)?;
        self.view.cache.forget(number);
        Ok(())
    }

    /// Returns the bytes from `offset` to the end of its sector for a change.
    fn hold(&mut self, offset: u64) -> Result<&mut [u8]> {
        let (number, within) = self.sector(offset);
        if self.held.as_ref().is_none_or(|(held, _)| *held != number) {
            self.release()?;
            let mut bytes = vec![0; to_usize(self.view.sb.sector_size.into())];
            let start = number.saturating_mul(self.view.sb.sector_size.into());
            self.view.device().read_at(start, &mut bytes)?;
            self.held = Some((number, bytes));
        }
        self.held.as_mut().and_then(|(_, bytes)| bytes.get_mut(within..)).ok_or(Error::Invalid)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hold(offset)?.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    fn link(&mut self, cluster: Cluster, value: u32) -> Result<()> {
        self.changed.set(cluster)?;
        self.link_in(self.view.sb.read_fat(), cluster, value)
    }

    /// Writes an entry of one copy of the FAT.
    fn link_in(&mut self, copy: u8, cluster: Cluster, value: u32) -> Result<()> {
        let sb = &self.view.sb;
        let base = sb.fat_offset(copy);
        for (at, keep, bits) in pieces(sb.width, cluster, value) {
            if let Some(byte) = self.hold(base.saturating_add(at))?.first_mut() {
                *byte = *byte & keep | bits;
            }
        }
        Ok(())
    }

    /// Writes all bits of an entry in one copy of the FAT.
    fn copy_in(&mut self, copy: u8, cluster: Cluster, raw: u32) -> Result<()> {
        let sb = &self.view.sb;
        match sb.width {
            Width::Fat32 => {
                let (at, _) = place(sb.width, cluster);
                self.put(sb.fat_offset(copy).saturating_add(at), &raw.to_le_bytes())
            }
            _ => self.link_in(copy, cluster, raw),
        }
    }

    fn free(&mut self, first: Cluster, clusters: u32) -> Result<()> {
        let mut cluster = first;
        for _ in 0..clusters {
            self.release()?;
            let next = self.view.entry(&mut self.view.table(), cluster)?;
            self.link(cluster, 0)?;
            // The root directory can grow into it.
            if let Some(used) = self.root.as_mut().and_then(|root| root.used.as_mut()) {
                used.unset(cluster)?;
            }
            let Entry::Next(next) = next else { break };
            cluster = next;
        }
        Ok(())
    }

    fn save(&mut self, first: Cluster, clusters: u32, options: &CheckOptions) -> Result<()> {
        let Some((offset, name)) = self.room()? else { return self.free(first, clusters) };
        let size = u64::from(clusters).saturating_mul(self.view.sb.cluster_size.into());
        let mut raw = RawEntry::new_zeroed();
        raw.DIR_Name = name.0;
        raw.DIR_Attr = Attributes::ARCHIVE.bits();
        raw.stamp(options.clock.now(), Zone::default());
        raw.set_first(Some(first));
        raw.DIR_FileSize = le::U32::new(u32::try_from(size).unwrap_or(u32::MAX));
        self.put(offset, raw.as_bytes())
    }

    /// Returns a free entry of the root directory, and a name for it.
    fn room(&mut self) -> Result<Option<(u64, ShortName)>> {
        self.release()?;
        let mut root = match self.root.take() {
            Some(root) => root,
            None => {
                let slots = root_slots(self.view)?;
                let names = slots.iter().map(|(_, raw)| raw.name()).collect();
                Saved { slots, next: 0, names, given: 0, used: None }
            }
        };
        let is_free = |(_, raw): &(u64, RawEntry)| matches!(raw.kind(), Kind::Free | Kind::End);
        let mut free = root.slots.iter().skip(root.next).position(is_free);
        if free.is_none() && self.grow(&mut root)? {
            free = root.slots.iter().skip(root.next).position(is_free);
        }
        let at = free.map(|free| root.next.saturating_add(free));
        let found = at.and_then(|at| root.slots.get(at)).map(|&(offset, _)| offset);
        let name = loop {
            let text = match root.given {
                0..10_000 => alloc::format!("FSCK{:04}REC", root.given),
                given => alloc::format!("FSCK{given:07}"),
            };
            root.given = root.given.saturating_add(1);
            let name = <[u8; 11]>::try_from(text.as_bytes()).ok().map(ShortName);
            // At most ten million names of this kind exist, and fewer entries.
            match name {
                Some(name) if root.names.insert(name) => break Some(name),
                Some(_) => {}
                None => break None,
            }
        };
        root.next = at.map_or(root.slots.len(), |at| at.saturating_add(1));
        self.root = Some(root);
        Ok(found.zip(name))
    }

    /// Returns a free cluster, and counts it as used. The FAT is read only once for all clusters.
    fn free_cluster(&mut self, root: &mut Saved) -> Result<Option<Cluster>> {
        // What was changed before is on the device.
        self.release()?;
        let end = self.view.sb.clusters.saturating_add(2);
        let used = match &mut root.used {
            Some(used) => used,
            unread => unread.insert(self.view.used()?),
        };
        let mut table = self.view.table();
        while let Some((free, _)) = used.gaps(2..end).next() {
            used.set(free)?;
            // Another repair may have used the cluster since.
            if matches!(self.view.entry(&mut table, free)?, Entry::Free) {
                return Ok(Some(free));
            }
        }
        Ok(None)
    }

    /// Extends the root directory of FAT32 by one cluster. Returns whether that was possible.
    fn grow(&mut self, root: &mut Saved) -> Result<bool> {
        let sb = &self.view.sb;
        let Root::Chain(_) = sb.root else { return Ok(false) };
        let Some((end, _)) = root.slots.last().and_then(|&(offset, _)| sb.cluster_at(offset)) else {
            return Ok(false);
        };
        if root.slots.len() >= to_usize(crate::dir::MAX_SLOTS.into()) {
            return Ok(false);
        }
        let free = self.free_cluster(root)?;
        let Some((cluster, start)) = free.and_then(|free| Some((free, sb.offset_of(free)?))) else {
            return Ok(false);
        };
        let len = u64::from(sb.cluster_size);
        sectors::zero(&**self.view.device(), start..start.saturating_add(len))?;
        for offset in (start..start.saturating_add(len)).step_by(32) {
            self.view.cache.forget(self.sector(offset).0);
            root.slots.push((offset, RawEntry::new_zeroed()));
        }
        self.link(cluster, last(sb.width))?;
        self.link(end, cluster.0)?;
        self.release()?;
        Ok(true)
    }

    /// Writes the choices to the copy that is read, and then copies its entries to the others.
    fn settle(&mut self, doubt: UndecidedEntries) -> Result<()> {
        let view = self.view;
        let choices = view.choices.borrow();
        for (cluster, value) in choices.values(doubt) {
            self.copy_in(view.sb.read_fat(), cluster, value)?;
        }
        for &(copy, _) in &choices.copies {
            self.make_equal(copy, |cluster| choices.may_write(cluster, doubt))?;
        }
        drop(choices);
        view.choices.borrow_mut().written(doubt);
        Ok(())
    }

    /// Copies the entries for which `may_write` returns true from the copy that is read to another one.
    fn make_equal(&mut self, copy: u8, may_write: impl Fn(Cluster) -> bool) -> Result<()> {
        self.release()?;
        let (view, base) = (self.view, self.view.sb.read_fat());
        let (mut table, mut failed) = (view.copy(base), Ok(()));
        copies::each_difference(view, base, copy, Cluster(0), |cluster, _| {
            if may_write(cluster) {
                failed = table.raw(cluster).and_then(|raw| self.copy_in(copy, cluster, raw));
            }
            failed.is_ok()
        })?;
        failed?;
        self.release()
    }

    /// Writes all copies of the changed parts of the FAT, also those that are not in use, since `fsck.fat` compares them;
    /// and FSInfo.
    fn finish(mut self) -> Result<()> {
        self.release()?;
        let view = self.view;
        let sb = &view.sb;
        let mut table = view.table();
        for copy in (0..sb.fats).filter(|&copy| copy != sb.read_fat()) {
            let changed = core::mem::take(&mut self.changed);
            for cluster in changed.runs(0..sb.clusters.saturating_add(2)).flat_map(clusters_of) {
                self.copy_in(copy, cluster, table.raw(cluster)?)?;
            }
            self.changed = changed;
        }
        self.release()?;
        view.device().flush()?;
        self.count()?;
        view.device().flush()
    }

    fn count(&mut self) -> Result<()> {
        let sb = &self.view.sb;
        let Some(offset) = sb.fs_info else { return Ok(()) };
        let mut bytes = [0; 512];
        self.view.device().read_at(offset, &mut bytes)?;
        let Ok(raw) = RawFsInfo::mut_from_bytes(&mut bytes) else { return Ok(()) };
        if !raw.is_valid() {
            return Ok(());
        }
        let used = self.view.used()?.count(2..sb.clusters.saturating_add(2));
        let free = sb.clusters.saturating_sub(used);
        if raw.FSI_Free_Count.get() == free {
            return Ok(());
        }
        raw.FSI_Free_Count = le::U32::new(free);
        self.view.device().write_at(offset, raw.as_bytes())?;
        self.view.cache.forget(self.sector(offset).0);
        debug_assert_eq!(to_u64(bytes.len()), 512);
        Ok(())
    }
}
