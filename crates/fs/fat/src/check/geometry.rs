//! Which boot sector a volume has: the first, its copy, or one that differs from the first in a single bit.
//!
//! A wrong field of the boot sector makes everything behind it look damaged, and a repair by it destroys what was sound. So the boot sector
//! is measured by what it leads to before it is believed: FATs that start as FATs do and agree, a root directory, directories whose `.`
//! leads to themselves, chains that fit the sizes of files. Another boot sector is taken where it fits clearly better.
//! Source of what is refused: Linux fs/fat/inode.c, `fat_fill_super`; dosfstools `src/boot.c`, `read_boot`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::FromBytes as _;
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_clusters::Entry;

use super::boot::start_bits;
use super::copies::may_be_entry;
use super::tree::first_slots;
use super::view::View;
use crate::inode::{Attributes, Kind};
use crate::name::ShortName;
use crate::open::{BOOT, backup, read_boot};
use crate::raw::RawEntry;
use crate::super_block::{Root, SuperBlock, Width, raw_of};
use crate::unit::{Cluster, ENTRY};

/// How many entries of the root directory are looked at.
const SAMPLE: usize = 256;
/// How far the chain of a file is followed.
const FOLLOWED: u64 = 256;
/// By so much another boot sector has to fit better.
const CLEARLY: i64 = 6;

/// Fields that say where everything is: by their offsets, lengths and names.
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
/// The same of FAT32 alone.
const FIELDS_32: &[(usize, usize, &str)] =
    &[(0x24, 4, "BPB_FATSz32"), (0x28, 2, "BPB_ExtFlags"), (0x2c, 4, "BPB_RootClus")];

/// The boot sector that fits.
pub struct Chosen {
    /// It, decoded.
    pub sb: SuperBlock,
    /// Its bytes.
    pub bytes: [u8; BOOT],
    /// Why it is not the first.
    pub instead: Option<Instead>,
}

/// Why the first boot sector is not taken.
pub enum Instead {
    /// It is none.
    Error(Error),
    /// Its copy in this sector fits better.
    Copy(u16),
    /// A field fits better with another value.
    Field {
        /// Its name.
        field: &'static str,
        /// What it holds.
        found: u32,
        /// What fits.
        expected: u32,
    },
}

/// Chooses the boot sector. Errors: Corrupt, as the first boot sector is, if none fits; those of the device.
pub fn choose(device: &Arc<dyn BlockDevice>) -> Result<Chosen> {
    let bytes = read_boot(&**device, 0)?.unwrap_or([0; BOOT]);
    let first = SuperBlock::of_bytes(&bytes);
    let stated = match &first {
        Ok(sb) => fit(device, sb)?,
        Err(_) => Fit { good: 0, bad: i64::MAX / 2 },
    };
    if let Ok(sb) = &first
        && stated.bad == 0
    {
        return Ok(Chosen { sb: sb.clone(), bytes, instead: None });
    }
    let mut best: Option<(i64, Chosen)> = None;
    for (bytes, instead) in candidates(device, &bytes)? {
        let Ok(sb) = SuperBlock::of_bytes(&bytes) else { continue };
        let fit = fit(device, &sb)?;
        // Of volumes that fit alike, the one that fills the device.
        let value = fit.value().saturating_mul(2).saturating_add(i64::from(sb.len == device.len()));
        // A volume whose end is missing is no volume with a wrong length, unless the right one is that of the device.
        let is_cut = first.as_ref().is_ok_and(|first| first.len > device.len());
        let is_meant = !is_cut || sb.len == device.len();
        let is_better = fit.is_sure() && is_meant && best.as_ref().is_none_or(|(best, _)| value > *best);
        if is_better {
            best = Some((value, Chosen { sb, bytes, instead: Some(instead) }));
        }
    }
    match (first, best) {
        (Err(error), Some((_, chosen))) => {
            let instead = match chosen.instead {
                Some(Instead::Copy(_)) => Some(Instead::Error(error)),
                other => other,
            };
            Ok(Chosen { instead, ..chosen })
        }
        (Ok(_), Some((value, chosen))) if value / 2 >= stated.value().saturating_add(CLEARLY) => Ok(chosen),
        (Ok(sb), _) => Ok(Chosen { sb, bytes, instead: None }),
        (Err(error), None) => match backup(&**device) {
            // A copy is believed for what it says of itself.
            Some(sb) => {
                let offset = u64::from(sb.backup.unwrap_or(0)).saturating_mul(sb.sector_size.into());
                let bytes = read_boot(&**device, offset)?.unwrap_or([0; BOOT]);
                Ok(Chosen { sb, bytes, instead: Some(Instead::Error(error)) })
            }
            None => Err(error),
        },
    }
}

/// The copy, and the boot sectors that differ from the first in one bit of a field.
fn candidates(device: &Arc<dyn BlockDevice>, first: &[u8; BOOT]) -> Result<Vec<([u8; BOOT], Instead)>> {
    let mut all = Vec::new();
    if let Some((sb, sector)) = backup(&**device).and_then(|sb| sb.backup.map(|sector| (sb, sector))) {
        let offset = u64::from(sector).saturating_mul(sb.sector_size.into());
        all.extend(read_boot(&**device, offset)?.map(|bytes| (bytes, Instead::Copy(sector))));
    }
    let is_32 = raw_of(first).is_some_and(|raw| raw.BPB_FATSz16.get() == 0);
    let more = if is_32 { FIELDS_32 } else { &[] };
    for &(at, len, field) in FIELDS.iter().chain(more) {
        for bit in 0..len.saturating_mul(8) {
            let mut bytes = *first;
            let Some(byte) = bytes.get_mut(at.saturating_add(bit >> 3)) else { continue };
            *byte ^= 1 << (bit & 7);
            let (found, expected) = (number(first, at, len), number(&bytes, at, len));
            all.push((bytes, Instead::Field { field, found, expected }));
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

    /// Whether nearly all that was looked at fits.
    fn is_sure(&self) -> bool {
        self.good >= CLEARLY && self.bad.saturating_mul(8) <= self.good
    }
}

/// Measures a boot sector by what it leads to. Errors: those of the device.
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
            // The root directory has no name for itself.
            Kind::Dots if at < 2 => fit.count(8, false),
            Kind::File => file(&view, &raw, &mut fit)?,
            _ => {}
        }
    }
    Ok(fit)
}

/// Measures by a file of the root directory.
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

/// The field for which Linux or `fsck.fat` refuses a volume that the driver would open: its offset, and the value that keeps all else in its place.
pub fn refused(sb: &SuperBlock) -> Option<(&'static str, u64, u32, u32)> {
    let found = sb.root_entries;
    let per_sector = sb.sector_size / ENTRY;
    let expected = match sb.width {
        Width::Fat32 => 0,
        _ => u32::from(found).next_multiple_of(per_sector.max(1)).max(per_sector),
    };
    (u32::from(found) != expected).then_some(("BPB_RootEntCnt", 0x11, found.into(), expected))
}

/// Whether a volume is on `device` whose boot sector cannot be used as it is.
pub fn finds(device: &Arc<dyn BlockDevice>) -> bool {
    choose(device)
        .is_ok_and(|chosen| matches!(chosen.instead, Some(Instead::Error(_) | Instead::Field { .. })))
}
