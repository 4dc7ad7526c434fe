//! The clusters of deleted directories.
//!
//! The chain of a deleted directory is gone. Its first cluster names itself in the entry `.`. A later cluster contains only
//! entries of files and directories, without `.` and `..`, and its number is usually above that of the cluster before. A
//! cluster without an end of the directory has a successor, unless its entries fill it exactly.
//!
//! A long name whose parts are in two clusters connects these clusters. If several directories may have a cluster, its
//! names are doubtful.
//!
//! Invariant: the search reads each free cluster once, and stores at most [`MOST`] clusters.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_block::BlockDevice;
use obento_clusters::skip_zeros;

use super::{FREE, KNOWN, LONG, Search, is_plausible};
use crate::name::{ShortName, checksum};
use crate::raw::{RawEntry, RawLongEntry};
use crate::super_block::SuperBlock;
use crate::unit::{Cluster, ENTRY_LEN};

/// The most clusters that the search stores. They use about 16 MiB.
const MOST: usize = 1 << 18;
/// The bits of `DIR_NTRes` that systems set.
const CASE: u8 = 0x18;

/// The clusters of a deleted directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trail {
    /// The clusters in the order of the directory, and whether each one may belong to another directory.
    pub clusters: Vec<(Cluster, bool)>,
    /// Whether the last cluster contains the end of the directory.
    pub has_end: bool,
}

/// The clusters of all deleted directories, by first cluster.
pub(super) type Trails = BTreeMap<Cluster, Trail>;

/// The role of a cluster in a deleted directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// The first cluster.
    First,
    /// A later cluster.
    Later(Start),
}

/// The start of a later cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    /// The last part of a long name, which comes first on disk.
    Name,
    /// A part of a long name with this checksum, perhaps not the first one on disk.
    Part(u8),
    /// A short entry.
    Short(ShortName),
}

/// The parts of a long name at the end of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rest {
    /// The checksum of the short name.
    sum: u8,
    /// The first byte that the short name probably has, if the short entry follows.
    initial: Option<u8>,
}

impl Rest {
    fn new(part: &RawLongEntry) -> Self {
        let initial = part.units().next().and_then(|unit| u8::try_from(unit).ok());
        let initial = initial.filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_uppercase());
        Self { sum: part.LDIR_Chksum, initial }
    }
}

/// A cluster of a deleted directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DirectoryCluster {
    role: Role,
    /// The parts at the end that belong to a short entry in the next cluster.
    rest: Option<Rest>,
    /// Whether the cluster contains the end of the directory.
    pub has_end: bool,
}

impl DirectoryCluster {
    /// Recognises the cluster `number` by its bytes.
    fn read(bytes: &[u8], number: Cluster, sb: &SuperBlock) -> Option<Self> {
        let mut entries = bytes.chunks_exact(to_usize(ENTRY_LEN));
        let raw = |entry: &[u8]| RawEntry::read_from_bytes(entry).ok();
        let own = raw(entries.clone().next()?)?;
        let role = if own.name() == ShortName::DOT {
            let above = raw(entries.clone().nth(1)?)?;
            if own.first(sb.width) != Some(number) || above.name() != ShortName::DOT_DOT {
                return None;
            }
            entries.nth(1)?;
            Role::First
        } else {
            Role::Later(Start::read(bytes, sb)?)
        };
        let mut rest = None;
        while let Some(entry) = entries.next() {
            if entry.first() == Some(&0) {
                let is_clear = |entry: &[u8]| entry.iter().all(|&byte| byte == 0);
                let is_end = role == Role::First || is_clear(entry) && entries.all(is_clear);
                return is_end.then_some(Self { role, rest: None, has_end: true });
            }
            rest = match part(entry) {
                Some(part) => Some(Rest::new(&part)),
                None if role == Role::First || raw(entry).is_some_and(|raw| is_entry(&raw, sb)) => None,
                None => return None,
            };
        }
        Some(Self { role, rest, has_end: false })
    }
}

impl Start {
    fn read(bytes: &[u8], sb: &SuperBlock) -> Option<Self> {
        let entry = bytes.get(..to_usize(ENTRY_LEN))?;
        if let Some(part) = part(entry) {
            let is_last = part.units().any(|unit| unit == 0);
            return Some(if is_last { Self::Name } else { Self::Part(part.LDIR_Chksum) });
        }
        let raw = RawEntry::read_from_bytes(entry).ok()?;
        is_entry(&raw, sb).then(|| Self::Short(raw.name()))
    }
}

/// Returns the first byte of a short name, which is lost if the entry is deleted, by the checksum of the name.
fn first_bytes(mut name: ShortName) -> [Option<u8>; 256] {
    let mut found = [None; 256];
    let stored = name.0.first().copied().unwrap_or(FREE);
    for byte in (0..=u8::MAX).filter(|&byte| stored == FREE || byte == stored) {
        name.0.first_mut().into_iter().for_each(|first| *first = byte);
        found.iter_mut().skip(checksum(name).into()).take(1).for_each(|found| *found = Some(byte));
    }
    found
}

/// Returns the part of a long name that these bytes are.
fn part(entry: &[u8]) -> Option<RawLongEntry> {
    let part = RawLongEntry::read_from_bytes(entry).ok()?;
    let is_part = part.LDIR_Attr == LONG && part.LDIR_Type == 0 && part.LDIR_FstClusLO.get() == 0;
    is_part.then_some(part)
}

/// Returns whether the bytes are an entry of a file or a directory. The bytes of a file rarely are.
fn is_entry(raw: &RawEntry, sb: &SuperBlock) -> bool {
    let is_first = |first: &u8| *first == FREE || *first == 5 || *first != b' ' && super::is_short(*first);
    let time = raw.DIR_WrtTime.get();
    let is_time = time >> 11 < 24 && time >> 5 & 63 < 60 && time & 31 < 30;
    is_plausible(raw)
        && raw.DIR_Name.first().is_some_and(is_first)
        && raw.DIR_Attr & KNOWN & crate::inode::Attributes::VOLUME_ID.bits() == 0
        && raw.DIR_NTRes & !CASE == 0
        && is_time
        && raw.first(sb.width).is_none_or(|first| sb.has(first))
}

/// A directory whose end was not found yet.
#[derive(Clone, Copy)]
struct OpenEnd {
    first: Cluster,
    /// Whether the last cluster may belong to another directory.
    is_doubtful: bool,
}

/// The directories whose last clusters end in the same way, by last cluster.
#[derive(Default)]
struct Ends {
    open: BTreeMap<Cluster, OpenEnd>,
    /// Whether a cluster was added to one of several such directories, so that all further clusters are doubtful.
    is_contested: bool,
}

/// The directories whose end was not found yet, by the parts at their end.
#[derive(Default)]
struct OpenEnds(BTreeMap<Option<Rest>, Ends>);

impl OpenEnds {
    fn add(&mut self, rest: Option<Rest>, last: Cluster, end: OpenEnd) {
        self.0.entry(rest).or_default().open.insert(last, end);
    }

    /// Removes the directory that the cluster with this start continues: of several ones, that with the nearest last cluster.
    /// The result is doubtful if the cluster may continue another one.
    fn take(&mut self, start: Start, number: Cluster) -> Option<OpenEnd> {
        let sums = match start {
            Start::Short(name) => first_bytes(name),
            _ => [None; 256],
        };
        let is_joined = |rest: Option<Rest>| match (start, rest) {
            (Start::Part(sum), Some(rest)) => rest.sum == sum,
            (Start::Short(_), Some(rest)) => {
                let byte = sums.get(usize::from(rest.sum)).copied().flatten();
                byte.is_some_and(|byte| rest.initial.map_or(super::is_short(byte), |initial| initial == byte))
            }
            _ => false,
        };
        // A name in two clusters proves more than an end between two names. Of other ends, a cluster is missing between.
        let grades: [&dyn Fn(Option<Rest>) -> bool; 3] = [&is_joined, &|rest| rest.is_none(), &|_| true];
        let matching = |is_match: &&dyn Fn(Option<Rest>) -> bool| -> Vec<Option<Rest>> {
            let ends = self.0.iter().filter(|(rest, ends)| is_match(**rest) && !ends.open.is_empty());
            ends.map(|(rest, _)| *rest).collect()
        };
        let (grade, rests) = grades.iter().map(matching).enumerate().find(|(_, rests)| !rests.is_empty())?;
        let (mut count, mut is_contested, mut nearest) = (0_usize, false, None);
        for rest in rests {
            let ends = self.0.get_mut(&rest)?;
            count = count.saturating_add(ends.open.len());
            is_contested |= ends.is_contested;
            nearest = nearest.max(ends.nearest(number).map(|last| (last < number, last, rest)));
        }
        let (is_below, last, rest) = nearest?;
        let ends = self.0.get_mut(&rest)?;
        let mut end = ends.open.remove(&last)?;
        end.is_doubtful |= count > 1 || grade == 2 || !is_below || is_contested && grade > 0;
        ends.is_contested = is_contested || end.is_doubtful;
        if ends.open.is_empty() {
            self.0.remove(&rest);
        }
        Some(end)
    }
}

impl Ends {
    /// Returns the last cluster that is nearest before `number`, or the first one if all are behind it.
    fn nearest(&self, number: Cluster) -> Option<Cluster> {
        let below = self.open.range((Bound::Unbounded, Bound::Excluded(number))).next_back();
        below.or_else(|| self.open.first_key_value()).map(|(&last, _)| last)
    }
}

/// Assigns the clusters, in ascending order, to the directories.
fn assign(clusters: &[(Cluster, DirectoryCluster)]) -> Trails {
    let (mut trails, mut ends, mut left) = (Trails::new(), OpenEnds::default(), Vec::new());
    for &(number, found) in clusters {
        match found.role {
            Role::First => {
                trails.insert(number, Trail { clusters: vec![(number, false)], has_end: found.has_end });
                if !found.has_end {
                    ends.add(found.rest, number, OpenEnd { first: number, is_doubtful: false });
                }
            }
            Role::Later(start) => {
                if !extend(&mut trails, &mut ends, (number, found), start) {
                    left.push((number, found, start));
                }
            }
        }
    }
    // Systems begin again at the start of a volume that was filled.
    for (number, found, start) in left {
        extend(&mut trails, &mut ends, (number, found), start);
    }
    trails
}

/// Adds a cluster to the directory that it continues. Returns whether one exists.
fn extend(
    trails: &mut Trails,
    ends: &mut OpenEnds,
    (number, found): (Cluster, DirectoryCluster),
    start: Start,
) -> bool {
    let Some(end) = ends.take(start, number) else { return false };
    let Some(trail) = trails.get_mut(&end.first) else { return false };
    trail.clusters.push((number, end.is_doubtful));
    trail.has_end = found.has_end;
    if !found.has_end {
        ends.add(found.rest, number, end);
    }
    true
}

impl Search<'_> {
    /// Returns the clusters of all deleted directories that are free.
    pub(super) fn trails(&self) -> Trails {
        let size = u64::from(self.sb.cluster_size.max(1));
        let mut found = Vec::new();
        for run in self.space.free_runs() {
            let bytes = self.space.bytes_of(run);
            let mut at = bytes.start;
            loop {
                at = skip_zeros(self.device, at..bytes.end, size);
                if at >= bytes.end || found.len() >= MOST {
                    break;
                }
                let index = at.saturating_sub(bytes.start).checked_div(size).unwrap_or(0);
                let number = Cluster(run.0.0.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)));
                found.extend(self.recognise(number).map(|cluster| (number, cluster)));
                at = at.saturating_add(size);
            }
        }
        assign(&found)
    }

    /// Recognises a cluster of a directory. Most clusters need only their first sector.
    pub(super) fn recognise(&self, number: Cluster) -> Option<DirectoryCluster> {
        let at = self.sb.offset_of(number)?;
        let mut bytes = vec![0; to_usize(self.sb.cluster_size.min(512).into())];
        self.device.read_at(at, &mut bytes).ok()?;
        DirectoryCluster::read(&bytes, number, self.sb)?;
        read_rest(self.device, at, &mut bytes, to_usize(self.sb.cluster_size.into()))?;
        DirectoryCluster::read(&bytes, number, self.sb)
    }
}

/// Reads the bytes at `at` that are missing in `bytes`.
fn read_rest(device: &dyn BlockDevice, at: u64, bytes: &mut Vec<u8>, len: usize) -> Option<()> {
    let start = bytes.len();
    bytes.resize(len.max(start), 0);
    let offset = at.checked_add(u64::try_from(start).ok()?)?;
    device.read_at(offset, bytes.get_mut(start..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Start = Start::Short(ShortName(*b"\xe5NAME   TXT"));

    fn found(role: Role, sum: Option<u8>, has_end: bool) -> DirectoryCluster {
        DirectoryCluster { role, rest: sum.map(|sum| Rest { sum, initial: None }), has_end }
    }

    fn clusters(trails: &Trails, first: u32) -> Vec<(u32, bool)> {
        let trail = trails.get(&Cluster(first)).unwrap();
        trail.clusters.iter().map(|&(cluster, is_doubtful)| (cluster.0, is_doubtful)).collect()
    }

    #[test]
    fn a_name_in_two_clusters_connects_them() {
        let found = [
            (10, found(Role::First, Some(7), false)),
            (11, found(Role::First, Some(8), false)),
            (20, found(Role::Later(Start::Part(7)), None, true)),
            (21, found(Role::Later(Start::Part(8)), None, true)),
        ];
        let trails = assign(&found.map(|(number, found)| (Cluster(number), found)));
        assert_eq!(clusters(&trails, 10), [(10, false), (20, false)]);
        assert_eq!(clusters(&trails, 11), [(11, false), (21, false)]);
        assert!(trails.values().all(|trail| trail.has_end));
    }

    #[test]
    fn a_short_name_continues_the_directory_with_its_first_character() {
        let name = ShortName(*b"KNAME   TXT");
        let sum = checksum(name);
        let start = Start::Short(ShortName(*b"\xe5NAME   TXT"));
        let first = |initial| DirectoryCluster {
            rest: Some(Rest { sum, initial }),
            ..found(Role::First, None, false)
        };
        let found =
            [(10, first(Some(b'K'))), (11, first(Some(b'L'))), (20, found(Role::Later(start), None, true))];
        let trails = assign(&found.map(|(number, found)| (Cluster(number), found)));
        assert_eq!(clusters(&trails, 10), [(10, false), (20, false)]);
        assert_eq!(clusters(&trails, 11), [(11, false)]);
    }

    #[test]
    fn a_cluster_that_two_directories_may_have_is_doubtful() {
        let found = [
            (10, found(Role::First, None, false)),
            (11, found(Role::First, None, false)),
            (20, found(Role::Later(Start::Name), None, true)),
            (21, found(Role::Later(SHORT), None, true)),
        ];
        let trails = assign(&found.map(|(number, found)| (Cluster(number), found)));
        assert_eq!(clusters(&trails, 11), [(11, false), (20, true)]);
        assert_eq!(clusters(&trails, 10), [(10, false), (21, true)]);
    }

    #[test]
    fn a_directory_without_its_end_is_incomplete() {
        let found = [
            (4, found(Role::Later(SHORT), None, true)),
            (10, found(Role::First, None, true)),
            (11, found(Role::First, None, false)),
            (12, found(Role::Later(Start::Name), Some(3), false)),
            (15, found(Role::Later(Start::Part(9)), None, false)),
        ];
        let mut found = found.map(|(number, found)| (Cluster(number), found));
        let trails = assign(&found);
        assert_eq!(clusters(&trails, 10), [(10, false)]);
        assert_eq!(clusters(&trails, 11), [(11, false), (12, false), (15, true), (4, true)]);
        assert!(trails.get(&Cluster(11)).unwrap().has_end);
        found[0].1.has_end = false;
        assert!(!assign(&found).get(&Cluster(11)).unwrap().has_end);
    }
}
