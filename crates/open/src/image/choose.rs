//! Selects the file system of an image.
//!
//! A type *claims* a device or a partition if the signature of the type is present on it. Each range of bytes
//! has its own [`Verdict`]. If types claim the whole image and its partitions, this table decides:
//!
//! | whole image | partitions | selected |
//! |---|---|---|
//! | no claim | any | the only partition with a file system |
//! | UDF or ISO 9660 | any | the whole image, as mount(8) opens a hybrid ISO |
//! | another claim | no claim | the whole image, as in blkid(8) and mount(8) |
//! | another claim | a claim | nothing: the image is ambiguous |
//! | several claims | any | nothing: the image is ambiguous |

use std::ops::Range;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{Access, CheckOptions, Driver, Evidence, Notice, OpenOptions, Probe};

use super::claim::{Claim, ClaimSource, Verdict};
use super::opened::{LockedImage, NotOpened};
use super::{
    Candidate, DataDescription, FallbackOutcome, Image, JournalUse, OpenError, PartitionChoice,
    PartitionContents,
};
use crate::Volume;
use crate::address::PartSelector;
use crate::partition::{Partition, Scheme, Table, TableEditor};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// The selected bytes and their contents.
struct Subject {
    range: Range<u64>,
    part: Option<PartSelector>,
    verdict: Verdict,
}

/// The selection if the caller names no part.
enum Only {
    /// These bytes are selected.
    Subject(Subject),
    /// No partition contains a recognised file system.
    NoneOf(Vec<PartitionChoice>),
}

/// Returns the contents of each partition. [`Image::probe_all`] lists the cases in which the contents of the whole
/// device come first.
pub fn contents(image: &Image) -> Vec<PartitionChoice> {
    let mut contents = partitions(image);
    let nothing_known = contents.iter().all(|content| content.probe().is_none());
    let whole = image.verdict(&whole(image));
    let is_claim = whole.as_ref().is_ok_and(Verdict::is_claim);
    let holds = whole.map_or_else(PartitionContents::Unreadable, PartitionContents::from);
    let whole = PartitionChoice { partition: None, holds };
    if is_claim || contents.is_empty() || (nothing_known && whole.probe().is_some()) {
        contents.insert(0, whole);
    }
    contents
}

/// Returns the contents of each partition.
fn partitions(image: &Image) -> Vec<PartitionChoice> {
    let of = |partition: &Partition| choice(image, &partition.range(), Some(partition.clone()));
    image.partitions().iter().map(of).collect()
}

/// Returns the contents of `range`. If `partition` is `Some`, `range` is the range of this partition.
fn choice(image: &Image, range: &Range<u64>, partition: Option<Partition>) -> PartitionChoice {
    let is_container = partition.as_ref().is_some_and(|partition| partition.kind.is_container());
    let holds = match image.bytes(range) {
        Ok(_) if is_container => Ok(PartitionContents::Partitions),
        Ok(_) => image.verdict(range).map(PartitionContents::from),
        Err(error) => Err(error),
    };
    PartitionChoice { partition, holds: holds.unwrap_or_else(PartitionContents::Unreadable) }
}

fn whole(image: &Image) -> Range<u64> {
    0..image.device.len()
}

impl From<Verdict> for PartitionContents {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Volume(_, probe) => Self::FileSystem(probe),
            Verdict::Unsupported(looks) | Verdict::Other(looks) => Self::Other(looks),
            Verdict::Ambiguous(claims) => Self::Ambiguous(claims.iter().map(Claim::shown).collect()),
        }
    }
}

/// Returns the bytes that `part` selects, or those of the whole device, and their contents.
pub fn part_to_overwrite(
    image: &Image,
    part: Option<&PartSelector>,
) -> Result<(Arc<dyn BlockDevice>, Vec<PartitionChoice>), OpenError> {
    let Some(part) = part else { return Ok((image.device.clone(), contents(image))) };
    let (range, partition) = named(image, part)?;
    let device = image.bytes(&range).map_err(unreadable(image))?;
    Ok((device, vec![choice(image, &range, partition)]))
}

fn unreadable(image: &Image) -> impl Fn(Error) -> OpenError {
    |error| OpenError::Unreadable { image: image.path.clone(), error }
}

/// Returns the bytes that `part` names, and the partition if `part` names one.
fn named(image: &Image, part: &PartSelector) -> Result<(Range<u64>, Option<Partition>), OpenError> {
    let len = image.device.len();
    match part {
        PartSelector::Offset(offset) if *offset >= len => {
            Err(OpenError::PastTheEnd { image: image.path.clone(), offset: *offset, len })
        }
        PartSelector::Offset(offset) => Ok((*offset..len, None)),
        part => find(image, part).map(|partition| (partition.range(), Some(partition))),
    }
}

/// Returns the bytes that `part` selects, or the selection if the caller names no part. Fails with the errors
/// of [`named`], with `Unreadable`, and with `Ambiguous` or `SeveralFileSystems` if several volumes qualify.
fn subject(image: &Image, part: Option<&PartSelector>) -> Result<Only, OpenError> {
    let (range, _) = match part {
        Some(part) => named(image, part)?,
        None if image.partitions().is_empty() => (whole(image), None),
        None => return only(image),
    };
    let verdict = judge(image, &range)?;
    let subject = Subject { range, part: part.cloned(), verdict };
    subject.unless_ambiguous(image).map(Only::Subject)
}

/// Determines the contents of `range`. If the caller requested a type, the contents count as a volume of that
/// type.
fn judge(image: &Image, range: &Range<u64>) -> Result<Verdict, OpenError> {
    let Some(driver) = forced(image) else { return image.verdict(range).map_err(unreadable(image)) };
    let probe = image.bytes(range).and_then(|device| driver.probe(&*device)).map_err(unreadable(image))?;
    Ok(Verdict::Volume(driver.clone(), probe.unwrap_or_default()))
}

/// Returns the result of a probe, or `None` for a volume that its driver did not recognise.
fn recognised(probe: Probe) -> Option<Probe> {
    Some(probe).filter(|probe| !probe.fs_type.is_empty())
}

impl Subject {
    fn unless_ambiguous(self, image: &Image) -> Result<Self, OpenError> {
        let Verdict::Ambiguous(claims) = &self.verdict else { return Ok(self) };
        let candidates = claims.iter().map(|claim| candidate(claim, self.part.clone())).collect();
        Err(OpenError::Ambiguous { image: image.path.clone(), part: self.part, candidates })
    }
}

fn candidate(claim: &Claim, part: Option<PartSelector>) -> Candidate {
    let fs_type = match &claim.by {
        ClaimSource::Driver(..) => Some(claim.name),
        ClaimSource::Signature(_) => None,
    };
    Candidate { part, name: claim.shown(), fs_type }
}

/// Selects from an image with partitions, by the table of this module.
fn only(image: &Image) -> Result<Only, OpenError> {
    let verdict = image.verdict(&whole(image)).map_err(unreadable(image))?;
    let list = partitions(image);
    let of_whole = |verdict| Subject { range: whole(image), part: None, verdict };
    if let Some(driver) = forced(image) {
        return of_type(image, driver, list, &verdict);
    }
    let rivals = rivals(image, &list);
    if verdict.is_disc() || (verdict.is_claim() && rivals.is_empty()) {
        return of_whole(verdict).unless_ambiguous(image).map(Only::Subject);
    }
    if verdict.is_claim() {
        let mut candidates = candidates(&verdict, &Some(PartSelector::Offset(0)));
        candidates.extend(rivals);
        return Err(OpenError::Ambiguous { image: image.path.clone(), part: None, candidates });
    }
    match partition_with_volume(image, &list)? {
        Some(range) => {
            let verdict = judge(image, &range)?;
            Ok(Only::Subject(Subject { range, part: None, verdict }))
        }
        // The volume is found by a copy of its super block, or by fields that any data may contain.
        None if matches!(verdict, Verdict::Volume(..)) => Ok(Only::Subject(of_whole(verdict))),
        None => Ok(Only::NoneOf(list)),
    }
}

/// Returns the claims of a verdict on the bytes that `part` names.
fn candidates(verdict: &Verdict, part: &Option<PartSelector>) -> Vec<Candidate> {
    match verdict {
        Verdict::Volume(driver, probe) => {
            let fs_type = driver.names().first().copied();
            vec![Candidate { part: part.clone(), name: probe.fs_type, fs_type }]
        }
        Verdict::Unsupported(looks) => {
            vec![Candidate { part: part.clone(), name: looks.name, fs_type: None }]
        }
        Verdict::Ambiguous(claims) => claims.iter().map(|claim| candidate(claim, part.clone())).collect(),
        Verdict::Other(_) => Vec::new(),
    }
}

/// Returns the claims of partitions that do not start at the start of the image. A partition at the start is
/// the same volume as the whole image.
fn rivals(image: &Image, list: &[PartitionChoice]) -> Vec<Candidate> {
    let partitions = list.iter().filter_map(|content| content.partition.as_ref());
    let partitions = partitions.filter(|partition| partition.start > 0 && !partition.kind.is_container());
    let claims = partitions.filter_map(|partition| {
        let verdict = image.verdict(&partition.range()).ok().filter(Verdict::is_claim)?;
        Some(candidates(&verdict, &Some(PartSelector::Number(partition.number))))
    });
    claims.flatten().collect()
}

/// Returns the only place with a signature of `driver`. Without any signature, returns the only partition
/// with a file system.
fn of_type(
    image: &Image,
    driver: &Arc<dyn Driver>,
    list: Vec<PartitionChoice>,
    of_whole: &Verdict,
) -> Result<Only, OpenError> {
    let has_type = |range: &Range<u64>| {
        let device = image.bytes(range).ok();
        device.is_some_and(|device| matches!(driver.probe(&*device), Ok(Some(_))))
    };
    let all = whole(image);
    let of = |range: Range<u64>| {
        let verdict = judge(image, &range)?;
        Ok(Only::Subject(Subject { range, part: None, verdict }))
    };
    let mut ranges: Vec<(PartSelector, Range<u64>)> = Vec::new();
    if of_whole.is_claim() {
        ranges.push((PartSelector::Offset(0), all.clone()));
    }
    let partitions = image.partitions().iter().filter(|partition| !partition.kind.is_container());
    ranges.extend(partitions.map(|partition| (PartSelector::Number(partition.number), partition.range())));
    ranges.retain(|(_, range)| has_type(range));
    match &ranges[..] {
        [(_, range)] => of(range.clone()),
        [(PartSelector::Offset(_), _), ..] => {
            let fs_type = driver.names().first().copied();
            let name = fs_type.unwrap_or_default();
            let candidates =
                ranges.into_iter().map(|(part, _)| Candidate { part: Some(part), name, fs_type });
            Err(OpenError::Ambiguous {
                image: image.path.clone(),
                part: None,
                candidates: candidates.collect(),
            })
        }
        [_, ..] => Err(OpenError::SeveralFileSystems { image: image.path.clone(), list }),
        [] => match partition_with_volume(image, &list)? {
            Some(range) => of(range),
            None if has_type(&all) => of(all),
            None => Ok(Only::NoneOf(list)),
        },
    }
}

/// Returns the only partition with a file system that a driver recognises. Fails with `SeveralFileSystems` or
/// `Ambiguous`.
fn partition_with_volume(image: &Image, list: &[PartitionChoice]) -> Result<Option<Range<u64>>, OpenError> {
    let is_volume = |content: &&PartitionChoice| {
        matches!(content.holds, PartitionContents::FileSystem(_) | PartitionContents::Ambiguous(_))
    };
    let mut known = list.iter().filter(is_volume);
    match (known.next(), known.next()) {
        (Some(_), Some(_)) => {
            Err(OpenError::SeveralFileSystems { image: image.path.clone(), list: list.to_vec() })
        }
        (Some(PartitionChoice { partition: Some(partition), .. }), None) => {
            let part = Some(PartSelector::Number(partition.number));
            let verdict = judge(image, &partition.range())?;
            let subject = Subject { range: partition.range(), part, verdict };
            subject.unless_ambiguous(image).map(|subject| Some(subject.range))
        }
        _ => Ok(None),
    }
}

/// Returns whether a signature claims the whole image.
pub fn is_claimed(image: &Image) -> bool {
    image.verdict(&whole(image)).is_ok_and(|verdict| verdict.is_claim())
}

/// Returns the error of opening the image without `@` or a type, if the image is ambiguous.
pub fn ambiguity(image: &Image) -> Option<OpenError> {
    subject(image, None).err().filter(|error| matches!(error, OpenError::Ambiguous { .. }))
}

/// The bytes of a file system that may be damaged, its driver, and the result of the driver's probe.
pub type Damaged = (Arc<dyn BlockDevice>, Option<Arc<dyn Driver>>, Option<Probe>);

/// Returns the bytes and the driver of the file system that `part` selects, or of the only file system. The driver is
/// the one for the requested type, or the one that recognises the signature. If no driver recognises the bytes, it is
/// the first driver whose check finds a damaged volume.
pub fn damaged(
    image: &Image,
    part: Option<&PartSelector>,
    options: &CheckOptions,
) -> Result<Damaged, OpenError> {
    let subject = match subject(image, part)? {
        Only::Subject(subject) => subject,
        Only::NoneOf(list) => return Err(OpenError::NoneOfThese { image: image.path.clone(), list }),
    };
    let device = image.bytes(&subject.range).map_err(unreadable(image))?;
    let looks = match subject.verdict {
        Verdict::Volume(driver, probe) => {
            // A check of a whole disk meets volumes to which the journal does not belong.
            if image.partitions().len() <= 1 {
                expect_journal_used(image, &subject.range, &driver, subject.part)?;
            }
            return Ok((device, Some(driver), recognised(probe)));
        }
        Verdict::Unsupported(looks) | Verdict::Other(looks) => looks,
        Verdict::Ambiguous(_) => return Ok((device, None, None)),
    };
    if looks.is_unsupported() {
        return Err(OpenError::NoFileSystem { image: image.path.clone(), part: subject.part, looks });
    }
    let finds = |driver: &&Arc<dyn Driver>| driver.check().is_some_and(|check| check.finds(&device, options));
    let driver = image.registry.drivers().iter().find(finds).filter(|_| looks.may_be_anything()).cloned();
    Ok((device, driver, None))
}

/// Returns the bytes of the file system that `part` selects, or of the only file system, and the result of the
/// driver's probe.
pub fn volume_bytes(
    image: &Image,
    part: Option<&PartSelector>,
) -> Result<(Arc<dyn BlockDevice>, PartitionChoice), OpenError> {
    let subject = match subject(image, part)? {
        Only::Subject(subject) => subject,
        Only::NoneOf(list) => return Err(OpenError::NoneOfThese { image: image.path.clone(), list }),
    };
    let partition = image.partitions().iter().find(|partition| partition.range() == subject.range);
    let device = image.bytes(&subject.range).map_err(unreadable(image))?;
    if let Verdict::Volume(driver, _) = &subject.verdict {
        expect_journal_used(image, &subject.range, driver, subject.part.clone())?;
    }
    Ok((device, PartitionChoice { partition: partition.cloned(), holds: subject.verdict.into() }))
}

/// Finds the sector size of an MBR, which the MBR does not store. Uses large sectors if a partition has the signature
/// of a file system with large sectors, and no partition is recognised with small sectors. A copy of a super block does
/// not count with large sectors, because an earlier volume on the whole disk may have left the copy.
pub fn count_in_large_sectors(image: &mut Image) {
    let is_small_mbr = |table: &Table| table.scheme == Scheme::Mbr && table.sector_size == 512;
    if !image.table.as_ref().is_some_and(is_small_mbr) || any_partition(image, |_| true) {
        return;
    }
    let small = image.table.clone();
    for size in [4096, 2048, 1024] {
        let Ok(Some(large)) = Table::read_mbr_of_large_sectors(&*image.device, size) else { continue };
        image.table = Some(large);
        if any_partition(image, |probe| probe.evidence == Evidence::Signature) {
            return;
        }
    }
    image.table = small;
}

/// Returns whether a partition contains a file system that `counts`, or several file systems.
fn any_partition(image: &Image, counts: impl Fn(&Probe) -> bool) -> bool {
    let is_volume = |content: &PartitionChoice| match &content.holds {
        PartitionContents::FileSystem(probe) => counts(probe),
        holds => matches!(holds, PartitionContents::Ambiguous(_)),
    };
    partitions(image).iter().any(is_volume)
}

/// Opens the file system that `part` selects, or the only file system.
pub fn volume(image: &Image, part: Option<&PartSelector>, access: Access) -> Result<Volume, OpenError> {
    let opened = image.opened.lock();
    let image = &image.for_selection();
    let mut locked = LockedImage { image, opened };
    match subject(image, part)? {
        Only::Subject(subject) => open(&mut locked, subject, access),
        Only::NoneOf(list) => rescue_only(&mut locked, list, access),
    }
}

/// Opens the only partition that opens by a copy of its super block, if no partition is recognised.
fn rescue_only(
    locked: &mut LockedImage<'_>,
    list: Vec<PartitionChoice>,
    access: Access,
) -> Result<Volume, OpenError> {
    let image = locked.image;
    let unknown = list.iter().filter(|content| may_be_damaged(&content.holds));
    let ranges = unknown.filter_map(|content| content.partition.as_ref()).map(Partition::range);
    let mut rescued = ranges.filter_map(|range| rescuer(locked, &range).map(|driver| (range, driver)));
    match (rescued.next(), rescued.next()) {
        (Some((range, driver)), None) => open_with(locked, range, (driver, None), None, access),
        (Some(_), Some(_)) => Err(OpenError::SeveralFileSystems { image: image.path.clone(), list }),
        _ => Err(OpenError::NoneOfThese { image: image.path.clone(), list }),
    }
}

/// Returns whether the bytes may contain a file system without its first super block: nothing else is
/// recognised.
fn may_be_damaged(holds: &PartitionContents) -> bool {
    matches!(holds, PartitionContents::Other(looks) if looks.may_be_anything())
}

/// Opens the selected bytes: by their signature, by the requested type, or by a copy of the super block.
fn open(locked: &mut LockedImage<'_>, subject: Subject, access: Access) -> Result<Volume, OpenError> {
    let Subject { range, part, verdict } = subject;
    let image = locked.image;
    let looks = match verdict {
        Verdict::Volume(driver, probe) => {
            return open_with(locked, range, (&driver, recognised(probe)), part, access);
        }
        Verdict::Unsupported(looks) | Verdict::Other(looks) => looks,
        Verdict::Ambiguous(_) => DataDescription::of(&*image.device).map_err(unreadable(image))?,
    };
    match looks.may_be_anything().then(|| rescuer(locked, &range)).flatten() {
        Some(driver) => open_with(locked, range, (driver, None), part, access),
        None if part.is_none() && has_empty_table(image) => {
            Err(OpenError::NoPartitions { image: image.path.clone() })
        }
        None => Err(OpenError::NoFileSystem { image: image.path.clone(), part, looks }),
    }
}

/// Returns whether the image has a partition table without partitions.
fn has_empty_table(image: &Image) -> bool {
    match &image.table {
        Some(table) => table.partitions.is_empty(),
        None => matches!(Table::read_empty_mbr(&*image.device), Ok(Some(_))),
    }
}

/// Checks that the volume in `range` has an external journal, if the options name one. Fails with `JournalNotUsed`.
fn expect_journal_used(
    image: &Image,
    range: &Range<u64>,
    driver: &Arc<dyn Driver>,
    part: Option<PartSelector>,
) -> Result<(), OpenError> {
    if image.journal.is_none() || image.options.journal_use == JournalUse::Optional {
        return Ok(());
    }
    let device = image.bytes(range).map_err(unreadable(image))?;
    // An error of the device is reported when the volume is opened.
    match driver.may_use_external_journal(&*device) {
        Ok(false) => Err(OpenError::JournalNotUsed { image: image.path.clone(), part }),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Opens the volume in `range` with a driver, which may have recognised the volume.
fn open_with(
    locked: &mut LockedImage<'_>,
    range: Range<u64>,
    (driver, probe): (&Arc<dyn Driver>, Option<Probe>),
    part: Option<PartSelector>,
    access: Access,
) -> Result<Volume, OpenError> {
    let image = locked.image;
    expect_journal_used(image, &range, driver, part.clone())?;
    let fs_type = probe.as_ref().filter(|_| image.options.fs_type.is_none()).map(|probe| probe.fs_type);
    let fs_type = fs_type.or(driver.names().first().copied()).unwrap_or_default();
    locked.open_volume(&range, driver, probe, access).map_err(|reason| match reason {
        NotOpened::Driver(error) => failed(image, &range, (driver, fs_type), part, error),
        NotOpened::Unrecorded(error) => {
            OpenError::Unrecorded { image: image.path.clone(), part, error: Box::new(error) }
        }
        NotOpened::InUse => OpenError::InUse { image: image.path.clone(), part },
    })
}

/// Returns the error of opening the volume in `range` with a driver.
fn failed(
    image: &Image,
    range: &Range<u64>,
    (driver, fs_type): (&Arc<dyn Driver>, &'static str),
    part: Option<PartSelector>,
    error: Error,
) -> OpenError {
    let (path, error) = (image.path.clone(), Box::new(error));
    let Ok(device) = image.bytes(range) else { return OpenError::Unreadable { image: path, error: *error } };
    if let Error::Device(DeviceError::OutOfBounds { offset, len, device_len }) = *error
        && device_len == device.len()
        && let Some(partition) = image.partitions().iter().find(|partition| partition.range() == *range)
        && partition.end() <= image.device.len()
    {
        let (number, len, needed) = (partition.number, partition.len, offset.saturating_add(len));
        let room = len.saturating_add(free_after(image, partition));
        return OpenError::ShortPartition { image: path, number, len, needed, can_grow: room >= needed };
    }
    let Some(block) = image.options.super_block else {
        let is_requested = image.options.fs_type.is_some();
        return OpenError::Volume { image: path, part, fs_type, is_requested, error };
    };
    // No format has blocks that are shorter than a sector.
    let is_outside = block.checked_mul(SECTOR).is_none_or(|start| start >= device.len());
    let ends = is_outside.then(|| device.len());
    let otherwise = otherwise(image, &device, driver);
    OpenError::SuperBlock { image: path, part, fs_type, block, ends, error, otherwise }
}

/// Returns the number of free bytes of the disk after the partition.
fn free_after(image: &Image, partition: &Partition) -> u64 {
    let limit = image.table.as_ref().and_then(|table| {
        let editor = TableEditor::open(image.device.clone(), table).ok()?;
        editor.limit_of(partition.number).ok()
    });
    limit.map_or(0, |limit| limit.saturating_sub(partition.end()))
}

/// Returns the partition that `part` selects, or the only partition with a file system, and the number of free bytes
/// after this partition.
pub fn partition_to_grow(image: &Image, part: Option<&PartSelector>) -> Option<(u32, u64)> {
    let partition = volume_bytes(image, part).ok()?.1.partition?;
    Some((partition.number, free_after(image, &partition)))
}

/// Returns how the volume opens if the caller requests no super block.
fn otherwise(image: &Image, device: &Arc<dyn BlockDevice>, driver: &Arc<dyn Driver>) -> FallbackOutcome {
    let options = OpenOptions { super_block: None, ..image.options.for_driver() };
    let Ok(fs) = driver.open(device.clone(), &options) else { return FallbackOutcome::Fails };
    let notices = Volume::new(fs).info().notices;
    let copy = notices.iter().find_map(|notice| match notice {
        Notice::BackupSuperBlock { block } => Some(*block),
        _ => None,
    });
    copy.map_or(FallbackOutcome::Opens, FallbackOutcome::OpensByCopy)
}

/// Returns the driver of the requested type.
fn forced(image: &Image) -> Option<&Arc<dyn Driver>> {
    image.options.fs_type.as_ref().and_then(|name| image.registry.find(name))
}

/// Returns the driver that opens a file system without a signature.
fn rescuer<'i>(locked: &mut LockedImage<'i>, range: &Range<u64>) -> Option<&'i Arc<dyn Driver>> {
    let image = locked.image;
    // A driver that opens a volume without a signature must report the evidence for its type.
    image.registry.drivers().iter().find(|driver| {
        let opened = locked.open_volume(range, driver, None, Access::ReadOnly);
        let is_reported = |volume: Volume| {
            let notices = volume.info().notices;
            notices.iter().any(|notice| matches!(notice, Notice::BackupSuperBlock { .. }))
        };
        opened.is_ok_and(|volume| image.options.super_block.is_some() || is_reported(volume))
    })
}

/// Returns the partition that `part` names.
fn find(image: &Image, part: &PartSelector) -> Result<Partition, OpenError> {
    let list = contents(image);
    let mut found: Vec<&PartitionChoice> = Vec::new();
    for matches in [by_table, by_label, by_uuid] as [fn(&PartitionChoice, &PartSelector) -> bool; 3] {
        found = list.iter().filter(|content| content.partition.is_some() && matches(content, part)).collect();
        if !found.is_empty() {
            break;
        }
    }
    match found[..] {
        [PartitionChoice { partition: Some(partition), .. }] => Ok(partition.clone()),
        [] => {
            let list = list.into_iter().filter(|content| content.partition.is_some()).collect();
            Err(OpenError::NoSuchPart { image: image.path.clone(), part: part.clone(), list })
        }
        _ => {
            let list = found.into_iter().cloned().collect();
            Err(OpenError::AmbiguousPart { image: image.path.clone(), part: part.clone(), list })
        }
    }
}

fn by_table(content: &PartitionChoice, part: &PartSelector) -> bool {
    let Some(partition) = &content.partition else { return false };
    match part {
        PartSelector::Number(number) => partition.number == *number,
        PartSelector::Name(name) | PartSelector::Any(name) => partition.name == *name,
        _ => false,
    }
}

fn by_label(content: &PartitionChoice, part: &PartSelector) -> bool {
    match part {
        PartSelector::Label(label) | PartSelector::Any(label) => {
            content.probe().is_some_and(|probe| probe.label == *label)
        }
        _ => false,
    }
}

fn by_uuid(content: &PartitionChoice, part: &PartSelector) -> bool {
    let wanted = match part {
        PartSelector::Uuid(uuid) => uuid.clone(),
        PartSelector::Any(text) => String::from_utf8_lossy(text).to_ascii_lowercase(),
        _ => return false,
    };
    let of_partition = content.partition.as_ref().is_some_and(|partition| partition.uuid == wanted);
    let of_volume = content.probe().and_then(crate::text::probe_id_text);
    of_partition || of_volume.is_some_and(|id| id.eq_ignore_ascii_case(&wanted))
}
