//! Files for clusters without an owner, as with `fsck.exfat -s`: one for each run of them, in the root directory.
//!
//! Invariant: entries are added after the last one of the directory, over unused space. Nothing is rescued unless the
//! directory is intact.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use obento_base::wire::le;
use obento_base::{FileKind, Result, Timestamp};
use obento_clusters::{Cluster, FileEntry as _, Zone};

use super::View;
use super::edit::{Edit, put};
use crate::dir::{Directory, Scan};
use crate::name::Folded;
use crate::raw::kind;
use crate::set::{ALLOCATION, EntrySet, NO_FAT_CHAIN};

/// The root directory while it is filled.
pub struct Rescue {
    root: Directory,
    /// The index of its end marker.
    end: u32,
    taken: BTreeSet<Folded>,
    number: u32,
    now: Timestamp,
}

impl Rescue {
    /// Reads the entries of `root`. Fails if the device fails.
    pub fn new(view: &View, root: Directory, now: Timestamp) -> Result<Self> {
        let mut taken = BTreeSet::new();
        let mut scan = Scan::new(&root, &view.sb, &view.cache, 0);
        while let Some(found) = scan.next() {
            if let Ok(found) = found {
                let units: Vec<u16> = found.set.units().collect();
                taken.insert(Folded::new(&units, &view.up_case));
            }
        }
        let mut end = root.slots;
        let mut scan = Scan::new(&root, &view.sb, &view.cache, 0);
        while let Some(found) = scan.next_entry() {
            if let (index, raw) = found?
                && raw.EntryType == kind::END
            {
                end = index;
                break;
            }
        }
        Ok(Self { root, end, taken, number: 0, now })
    }

    /// Returns edits that create a file of these clusters, or no edits if the directory is full.
    pub fn file(&mut self, view: &View, first: Cluster, clusters: u32) -> Vec<Edit> {
        let name = loop {
            let name: Vec<u16> = format!("FILE{:07}.CHK", self.number).encode_utf16().collect();
            self.number = self.number.saturating_add(1);
            if self.taken.insert(Folded::new(&name, &view.up_case)) {
                break name;
            }
        };
        let mut set = EntrySet::new(FileKind::Regular);
        set.rename(&name, Folded::new(&name, &view.up_case).hash());
        set.stamp(self.now, Zone::default());
        set.stream.GeneralSecondaryFlags = ALLOCATION | NO_FAT_CHAIN;
        set.stream.FirstCluster = le::U32::new(first.0);
        let len = u64::from(clusters).saturating_mul(view.sb.cluster_size.into());
        (set.stream.DataLength, set.stream.ValidDataLength) = (le::U64::new(len), le::U64::new(len));
        let end = self.end.saturating_add(set.count());
        if end > self.root.slots {
            return Vec::new();
        }
        let edits = put(&self.root, self.end, &set.entries());
        self.end = end;
        edits
    }
}
