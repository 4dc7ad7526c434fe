//! Choosing the boot sector of a volume: the primary one, its backup, or one that differs from the primary in a
//! single bit.
//!
//! A wrong field of the boot sector makes everything after it look damaged, and a repair based on it destroys intact
//! data. The boot sector is therefore compared with the structures that it refers to. These are FATs with a correct
//! start that agree, and a root directory. They are also directories whose `.` refers to themselves, and chains that
//! match the sizes of files. Another boot sector is chosen if it fits clearly better. Source of the refused values:
//! Linux fs/fat/inode.c, `fat_fill_super`; dosfstools `src/boot.c`, `read_boot`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::FromBytes as _;
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_clusters::Entry;
use obento_driver::Probe;

use super::boot::start_bits;
use super::copies::may_be_entry;
use super::tree::first_slots;
use super::view::View;
use crate::inode::{Attributes, Kind};
use crate::name::ShortName;
use crate::open::{BOOT, PrimaryBoot, backup, read_boot};
use crate::raw::RawEntry;
use crate::super_block::{Root, SuperBlock, Width, raw_of};
use crate::unit::{Cluster, ENTRY};

/// Maximum number of entries of the root directory that are examined.
const SAMPLE: usize = 256;
/// Maximum number of clusters of a file's chain that are followed.
const FOLLOWED: u64 = 256;
/// Minimum advantage of another boot sector.
const CLEARLY: i64 = 6;

/// Fields that locate other structures: offset, length and name.
const FIELDS: &[(usize, usize, &str)] = &[
    (0xb, 2, "BPB_BytsPerSec"),
    (0xd, 1, "BPB_SecPerClus"),
    (0xe, 2, "BPB_RsvdSecCnt"),
    (0x10, 1, "BPB_NumFATs"),
    (0x11, 2, "BPB_RootEntCnt"),
    (0x13, 2, "BPB_TotSec16"),
    (0x15, 1, "BPB_Media"),
    (0x16, 2, "BPB_FATSz16"),
    (0x20, 4, "BPB_TotSec32"),
];
/// Such fields of FAT32 only.
const FIELDS_32: &[(usize, usize, &str)] =
    &[(0x24, 4, "BPB_FATSz32"), (0x28, 2, "BPB_ExtFlags"), (0x2c, 4, "BPB_RootClus")];

/// The boot sector that fits best.
pub struct Chosen {
    /// The decoded boot sector.
    pub sb: SuperBlock,
    /// Its bytes.
    pub bytes: [u8; BOOT],
    /// The reason if it is not the primary one.
    pub fallback: Option<BootFallback>,
}

/// The reason for not using the primary boot sector.
pub enum BootFallback {
    /// It is not a boot sector.
    Error(Error),
    /// The backup in this sector fits better.
    Copy(u16),
    /// A field fits better with another value.
    Field {
        /// The name of the field.
        field: &'static str,
        /// Its stored value.
        found: u32,
        /// The fitting value.
        expected: u32,
    },
}

/// Chooses the boot sector. `probe` may contain the primary one. Fails with the `Corrupt` error of the primary boot
/// sector if none fits, or if the device fails.
pub fn choose(device: &Arc<dyn BlockDevice>, probe: Option<&Probe>) -> Result<Chosen> {
    let PrimaryBoot { bytes, decoded: first } = PrimaryBoot::of(&**device, probe)?;
    let stated = match &first {
        Ok(sb) => fit(device, sb)?,
        Err(_) => Fit { good: 0, bad: i64::MAX / 2 },
    };
    if let Ok(sb) = &first
        && stated.bad == 0
    {
        return Ok(Chosen { sb: sb.clone(), bytes, fallback: None });
    }
    let mut best: Option<(i64, Chosen)> = None;
    for (bytes, fallback) in candidates(device, &bytes)? {
        let Ok(sb) = SuperBlock::of_bytes(&bytes) else { continue };
        let fit = fit(device, &sb)?;
        // Of equally good candidates, the one that fills the device wins.
        let value = fit.value().saturating_mul(2).saturating_add(i64::from(sb.len == device.len()));
        // A volume with a missing end does not count as a volume with a wrong length, unless the right length equals
        // the length of the device.
        let is_cut = first.as_ref().is_ok_and(|first| first.len > device.len());
        let is_meant = !is_cut || sb.len == device.len();
        let is_better = fit.is_sure() && is_meant && best.as_ref().is_none_or(|(best, _)| value > *best);
        if is_better {
            best = Some((value, Chosen { sb, bytes, fallback: Some(fallback) }));
        }
    }
    match (first, best) {
        (Err(error), Some((_, chosen))) => {
            let fallback = match chosen.fallback {
                Some(BootFallback::Copy(_)) => Some(BootFallback::Error(error)),
                other => other,
            };
            Ok(Chosen { fallback, ..chosen })
        }
        (Ok(_), Some((value, chosen))) if value / 2 >= stated.value().saturating_add(CLEARLY) => Ok(chosen),
        (Ok(sb), _) => Ok(Chosen { sb, bytes, fallback: None }),
        (Err(error), None) => match backup(&**device) {
            // The backup is used with its own values.
            Some(sb) => {
                let offset = u64::from(sb.backup.unwrap_or(0)).saturating_mul(sb.sector_size.into());
                let bytes = read_boot(&**device, offset)?.unwrap_or([0; BOOT]);
                Ok(Chosen { sb, bytes, fallback: Some(BootFallback::Error(error)) })
            }
            None => Err(error),
        },
    }
}

/// Returns the backup, and the boot sectors that differ from the primary one in one bit of a field.
fn candidates(device: &Arc<dyn BlockDevice>, first: &[u8; BOOT]) -> Result<Vec<([u8; BOOT], BootFallback)>> {
    let mut all = Vec::new();
    if let Some((sb, sector)) = backup(&**device).and_then(|sb| sb.backup.map(|sector| (sb, sector))) {
        let offset = u64::from(sector).saturating_mul(sb.sector_size.into());
        all.extend(read_boot(&**device, offset)?.map(|bytes| (bytes, BootFallback::Copy(sector))));
    }
    let is_32 = raw_of(first).is_some_and(|raw| raw.BPB_FATSz16.get() == 0);
    let more = if is_32 { FIELDS_32 } else { &[] };
    for &(at, len, field) in FIELDS.iter().chain(more) {
        for bit in 0..len.saturating_mul(8) {
            let mut bytes = *first;
            let Some(byte) = bytes.get_mut(at.saturating_add(bit >> 3)) else { continue };
            *byte ^= 1 << (bit & 7);
            let (found, expected) = (number(first, at, len), number(&bytes, at, len));
            all.push((bytes, BootFallback::Field { field, found, expected }));
        }
    }
    Ok(all)
}

fn number(bytes: &[u8; BOOT], at: usize, len: usize) -> u32 {
    let field = bytes.iter().skip(at).take(len).rev();
    field.fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// How well a boot sector fits its volume.
#[derive(Default)]
struct Fit {
    good: i64,
    bad: i64,
}

impl Fit {
    fn count(&mut self, weight: i64, is_good: bool) {
        let side = if is_good { &mut self.good } else { &mut self.bad };
        *side = side.saturating_add(weight);
    }

    fn value(&self) -> i64 {
        self.good.saturating_sub(self.bad)
    }

    /// Returns whether nearly everything that was examined fits.
    fn is_sure(&self) -> bool {
        self.good >= CLEARLY && self.bad.saturating_mul(8) <= self.good
    }
}

/// Compares a boot sector with the structures that it leads to. Fails if the device fails.
fn fit(device: &Arc<dyn BlockDevice>, sb: &SuperBlock) -> Result<Fit> {
    let mut fit = Fit::default();
    let has_all = sb.len <= device.len();
    fit.count(8, has_all);
    let fats_end = sb.fat_start.saturating_add(sb.fat_len.saturating_mul(sb.fats.into()));
    if !has_all || fats_end > device.len() || sb.data_start > device.len() {
        fit.count(8, false);
        return Ok(fit);
    }
    fit.count(8, refused(sb).is_none());
    let view = View::new(Arc::clone(device), sb.clone());
    for copy in 0..sb.fats.min(4) {
        let (value, bits) = (view.copy(copy).value(Cluster(0))?, start_bits(sb.width));
        fit.count(2, value & bits == bits);
        fit.count(1, value & 0xff == u32::from(sb.media));
        let mut alike = 0_u32;
        let (mut one, mut other) = (view.copy(0), view.copy(copy));
        for cluster in (1..sb.clusters.saturating_add(2).min(64)).map(Cluster) {
            alike = alike.saturating_add(u32::from(one.value(cluster)? == other.value(cluster)?));
        }
        fit.count(1, alike >= 56 || alike.saturating_add(8) >= sb.clusters);
    }
    if let Root::Chain(first) = sb.root {
        fit.count(8, view.sb.has(first));
        let entry = view.entry(&mut view.table(), first)?;
        fit.count(2, matches!(entry, Entry::Next(_) | Entry::Last));
    }
    for (at, (_, raw)) in first_slots(&view, SAMPLE)?.into_iter().enumerate() {
        match raw.kind() {
            Kind::End => break,
            _ if !may_be_entry(&raw) => fit.count(1, false),
            // The root directory has no entry for itself.
            Kind::Dots if at < 2 => fit.count(8, false),
            Kind::File => file(&view, &raw, &mut fit)?,
            _ => {}
        }
    }
    Ok(fit)
}

/// Examines a file of the root directory.
fn file(view: &View, raw: &RawEntry, fit: &mut Fit) -> Result<()> {
    let (size, first) = (raw.size(), raw.first(view.sb.width));
    if raw.attributes().contains(Attributes::DIRECTORY) {
        let start = first.and_then(|first| view.sb.offset_of(first));
        let dot = start.map(|start| view.bytes::<32>(start)).transpose()?;
        let dot = dot.and_then(|bytes| RawEntry::read_from_bytes(&bytes).ok());
        let is_own = |dot: RawEntry| dot.name() == ShortName::DOT && dot.first(view.sb.width) == first;
        fit.count(3, dot.is_some_and(is_own));
        return Ok(());
    }
    let need = view.sb.clusters_for(size);
    if need > FOLLOWED {
        return Ok(());
    }
    let (mut table, mut next, mut count) = (view.table(), first, 0_u64);
    while let Some(cluster) = next.filter(|_| count <= need) {
        count = count.saturating_add(1);
        next = match view.sb.has(cluster).then(|| view.entry(&mut table, cluster)).transpose()? {
            Some(Entry::Next(next)) => Some(next),
            Some(Entry::Last) => None,
            _ => {
                count = u64::MAX;
                None
            }
        };
    }
    fit.count(if need == 0 { 0 } else { 2 }, count == need);
    Ok(())
}

/// Returns the field for which Linux or `fsck.fat` refuses a volume that the driver would open. Returns its name, its
/// offset, its value, and the value that moves no other structure.
pub fn refused(sb: &SuperBlock) -> Option<(&'static str, u64, u32, u32)> {
    let found = sb.root_entries;
    let per_sector = sb.sector_size / ENTRY;
    let expected = match sb.width {
        Width::Fat32 => 0,
        _ => u32::from(found).next_multiple_of(per_sector.max(1)).max(per_sector),
    };
    (u32::from(found) != expected).then_some(("BPB_RootEntCnt", 0x11, found.into(), expected))
}

/// Returns whether `device` contains a volume whose boot sector needs a correction before use.
pub fn finds(device: &Arc<dyn BlockDevice>) -> bool {
    choose(device, None).is_ok_and(|chosen| {
        matches!(chosen.fallback, Some(BootFallback::Error(_) | BootFallback::Field { .. }))
    })
}
