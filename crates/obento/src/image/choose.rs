//! Which file system of an image is meant.

use std::ops::Range;
use std::sync::Arc;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_driver::{Access, CheckOptions, Driver, Notice, OpenOptions};

use super::opened::NotOpened;
use super::{Content, Holds, Image, Looks, OpenError, Otherwise};
use crate::partition::{Partition, Scheme, Table};
use crate::{Part, Volume};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// What the device and each partition hold. The whole device is left out where partitions hold something.
pub fn contents(image: &Image) -> Vec<Content> {
    let of = |partition: &Partition| {
        let holds = match image.bytes(&partition.range()) {
            Ok(_) if partition.kind.is_container() => Holds::Partitions,
            Ok(device) => holds(image, &*device),
            Err(error) => Holds::Unreadable(error),
        };
        Content { partition: Some(partition.clone()), holds }
    };
    let mut contents: Vec<Content> = image.partitions().iter().map(of).collect();
    if contents.iter().all(|content| content.probe().is_none()) {
        let whole = Content { partition: None, holds: holds(image, &*image.device) };
        if contents.is_empty() || whole.probe().is_some() {
            contents.insert(0, whole);
        }
    }
    contents
}

fn holds(image: &Image, device: &dyn BlockDevice) -> Holds {
    match image.registry.probe(device) {
        Ok(Some((_, probe))) => Holds::FileSystem(probe),
        Ok(None) => Looks::of(device).map_or_else(Holds::Unreadable, Holds::Other),
        Err(error) => Holds::Unreadable(error),
    }
}

/// The bytes that `part` names, or the whole device, and what they hold.
pub fn ground(image: &Image, part: Option<&Part>) -> Result<(Arc<dyn BlockDevice>, Vec<Content>), OpenError> {
    let unreadable = |error| OpenError::Unreadable { image: image.path.clone(), error };
    let len = image.device.len();
    let (range, partition) = match part {
        None => return Ok((image.device.clone(), contents(image))),
        Some(Part::Offset(offset)) if *offset >= len => {
            return Err(OpenError::PastTheEnd { image: image.path.clone(), offset: *offset, len });
        }
        Some(Part::Offset(offset)) => (*offset..len, None),
        Some(part) => {
            let partition = find(image, part)?;
            (partition.range(), Some(partition))
        }
    };
    let device = image.bytes(&range).map_err(unreadable)?;
    let holds = match &partition {
        Some(partition) if partition.kind.is_container() => Holds::Partitions,
        _ => holds(image, &*device),
    };
    Ok((device, vec![Content { partition, holds }]))
}

/// What may be a damaged file system, and the driver for it.
pub type Damaged = (Arc<dyn BlockDevice>, Option<Arc<dyn Driver>>);

/// The bytes of the file system that `part` names, or of the only one, and the driver that it asks for: by the type that
/// was asked for, by its signature, or, where nothing else is to be seen, the first whose check finds one that is damaged.
pub fn damaged(image: &Image, part: Option<&Part>, options: &CheckOptions) -> Result<Damaged, OpenError> {
    let unreadable = |error| OpenError::Unreadable { image: image.path.clone(), error };
    let device = match part {
        Some(_) => ground(image, part)?.0,
        None => image.bytes(&only_range(image)?).map_err(unreadable)?,
    };
    if let Some(driver) = forced(image) {
        return Ok((device, Some(driver.clone())));
    }
    if let Some((driver, _)) = image.registry.probe(&*device).map_err(unreadable)? {
        return Ok((device, Some(driver.clone())));
    }
    let looks = Looks::of(&*device).map_err(unreadable)?;
    let finds = |driver: &&Arc<dyn Driver>| driver.check().is_some_and(|check| check.finds(&device, options));
    let driver = image.registry.drivers().iter().find(finds).filter(|_| looks.may_be_anything()).cloned();
    Ok((device, driver))
}

/// Where the only file system is.
fn only_range(image: &Image) -> Result<Range<u64>, OpenError> {
    let list = contents(image);
    let mut known = list.iter().filter(|content| content.probe().is_some());
    match (known.next(), known.next()) {
        (Some(_), Some(_)) => Err(OpenError::SeveralFileSystems { image: image.path.clone(), list }),
        (Some(Content { partition: Some(partition), .. }), None) => Ok(partition.range()),
        (None, _) if !image.partitions().is_empty() => {
            Err(OpenError::NoneOfThese { image: image.path.clone(), list })
        }
        _ => Ok(0..image.device.len()),
    }
}

/// An MBR does not say how large its sectors are. If no partition holds anything known with small ones, but one does
/// with large ones, they are large.
pub fn count_in_large_sectors(image: &mut Image) {
    let is_small_mbr = |table: &Table| table.scheme == Scheme::Mbr && table.sector_size == 512;
    if !image.table.as_ref().is_some_and(is_small_mbr) || any_file_system(image) {
        return;
    }
    let Ok(Some(large)) = Table::read_mbr_of_large_sectors(&*image.device) else { return };
    let small = image.table.replace(large);
    if !any_file_system(image) {
        image.table = small;
    }
}

fn any_file_system(image: &Image) -> bool {
    image.partitions().iter().any(|partition| {
        let device = image.bytes(&partition.range());
        device.is_ok_and(|device| matches!(image.registry.probe(&*device), Ok(Some(_))))
    })
}

/// Opens the file system that `part` names, or the only one.
pub fn volume(image: &Image, part: Option<&Part>, access: Access) -> Result<Volume, OpenError> {
    match part {
        None => only_volume(image, access),
        Some(Part::Offset(offset)) => {
            let len = image.device.len();
            if *offset >= len {
                return Err(OpenError::PastTheEnd { image: image.path.clone(), offset: *offset, len });
            }
            open(image, *offset..len, part.cloned(), access)
        }
        Some(part) => {
            let partition = find(image, part)?;
            open(image, partition.range(), Some(part.clone()), access)
        }
    }
}

fn only_volume(image: &Image, access: Access) -> Result<Volume, OpenError> {
    let list = contents(image);
    let mut known = list.iter().filter(|content| content.probe().is_some());
    match (known.next(), known.next()) {
        (Some(_), Some(_)) => Err(OpenError::SeveralFileSystems { image: image.path.clone(), list }),
        (Some(Content { partition: Some(partition), .. }), None) => {
            open(image, partition.range(), None, access)
        }
        _ if image.partitions().is_empty() || list.iter().any(|content| content.partition.is_none()) => {
            open(image, 0..image.device.len(), None, access)
        }
        _ => rescue_only(image, list, access),
    }
}

/// With no partition recognised, the only one that opens all the same (by a copy of its super block) is meant.
fn rescue_only(image: &Image, list: Vec<Content>, access: Access) -> Result<Volume, OpenError> {
    let unknown = list.iter().filter(|content| may_be_damaged(&content.holds));
    let ranges = unknown.filter_map(|content| content.partition.as_ref()).map(Partition::range);
    let mut rescued = ranges.filter_map(|range| rescuer(image, &range).map(|driver| (range, driver)));
    match (rescued.next(), rescued.next()) {
        (Some((range, driver)), None) => open_with(image, range, driver, None, access),
        (Some(_), Some(_)) => Err(OpenError::SeveralFileSystems { image: image.path.clone(), list }),
        _ => Err(OpenError::NoneOfThese { image: image.path.clone(), list }),
    }
}

/// Whether a file system whose first super block is lost may be there: nothing else is.
fn may_be_damaged(holds: &Holds) -> bool {
    matches!(holds, Holds::Other(looks) if looks.may_be_anything())
}

/// Opens what fills `range`: by its signature, by the type that was asked for, or by a copy of its super block.
fn open(image: &Image, range: Range<u64>, part: Option<Part>, access: Access) -> Result<Volume, OpenError> {
    if let Some(driver) = forced(image) {
        return open_with(image, range, driver, part, access);
    }
    let unreadable = |error| OpenError::Unreadable { image: image.path.clone(), error };
    let device = image.bytes(&range).map_err(unreadable)?;
    if let Some((driver, _)) = image.registry.probe(&*device).map_err(unreadable)? {
        return open_with(image, range, driver, part, access);
    }
    let looks = Looks::of(&*device).map_err(unreadable)?;
    match looks.may_be_anything().then(|| rescuer(image, &range)).flatten() {
        Some(driver) => open_with(image, range, driver, part, access),
        None => Err(OpenError::NoFileSystem { image: image.path.clone(), part, looks }),
    }
}

/// Opens what fills `range` with `driver`.
fn open_with(
    image: &Image,
    range: Range<u64>,
    driver: &Arc<dyn Driver>,
    part: Option<Part>,
    access: Access,
) -> Result<Volume, OpenError> {
    image.open_volume(&range, driver, access).map_err(|reason| match reason {
        NotOpened::Driver(error) => failed(image, &range, driver, part, error),
        NotOpened::InUse => OpenError::InUse { image: image.path.clone(), part },
    })
}

/// Why `driver` did not open what fills `range`.
fn failed(
    image: &Image,
    range: &Range<u64>,
    driver: &Arc<dyn Driver>,
    part: Option<Part>,
    error: Error,
) -> OpenError {
    let (path, error) = (image.path.clone(), Box::new(error));
    let Ok(device) = image.bytes(range) else { return OpenError::Unreadable { image: path, error: *error } };
    let name = driver.names().first().copied().unwrap_or_default();
    let fs_type = match driver.probe(&*device) {
        Ok(Some(probe)) if image.options.fs_type.is_none() => probe.fs_type,
        _ => name,
    };
    let Some(block) = image.options.super_block else {
        return OpenError::Volume { image: path, part, fs_type, error };
    };
    // No format counts in blocks of less than a sector.
    let is_outside = block.checked_mul(SECTOR).is_none_or(|start| start >= device.len());
    let ends = is_outside.then(|| device.len());
    let otherwise = otherwise(image, &device, driver);
    OpenError::SuperBlock { image: path, part, fs_type, block, ends, error, otherwise }
}

/// What becomes of the volume if no super block is asked for.
fn otherwise(image: &Image, device: &Arc<dyn BlockDevice>, driver: &Arc<dyn Driver>) -> Otherwise {
    let options = OpenOptions { super_block: None, ..image.options.for_driver() };
    let Ok(fs) = driver.open(device.clone(), &options) else { return Otherwise::Fails };
    let notices = Volume::new(fs).info().notices;
    let copy = notices.iter().find_map(|notice| match notice {
        Notice::BackupSuperBlock { block } => Some(*block),
        _ => None,
    });
    copy.map_or(Otherwise::Opens, Otherwise::OpensByCopy)
}

/// The driver of the type that was asked for.
fn forced(image: &Image) -> Option<&Arc<dyn Driver>> {
    image.options.fs_type.as_ref().and_then(|name| image.registry.find(name))
}

/// The driver that opens a file system that no signature tells of.
fn rescuer<'i>(image: &'i Image, range: &Range<u64>) -> Option<&'i Arc<dyn Driver>> {
    // A driver that opens what has no signature of its own must say by what.
    image.registry.drivers().iter().find(|driver| {
        let opened = image.open_volume(range, driver, Access::ReadOnly);
        let is_told = |volume: Volume| {
            let notices = volume.info().notices;
            notices.iter().any(|notice| matches!(notice, Notice::BackupSuperBlock { .. }))
        };
        opened.is_ok_and(|volume| image.options.super_block.is_some() || is_told(volume))
    })
}

/// The partition that is called so.
fn find(image: &Image, part: &Part) -> Result<Partition, OpenError> {
    let list = contents(image);
    let mut found: Vec<&Content> = Vec::new();
    for matches in [by_table, by_label, by_uuid] as [fn(&Content, &Part) -> bool; 3] {
        found = list.iter().filter(|content| content.partition.is_some() && matches(content, part)).collect();
        if !found.is_empty() {
            break;
        }
    }
    match found[..] {
        [Content { partition: Some(partition), .. }] => Ok(partition.clone()),
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

fn by_table(content: &Content, part: &Part) -> bool {
    let Some(partition) = &content.partition else { return false };
    match part {
        Part::Number(number) => partition.number == *number,
        Part::Name(name) | Part::Any(name) => partition.name == *name,
        _ => false,
    }
}

fn by_label(content: &Content, part: &Part) -> bool {
    match part {
        Part::Label(label) | Part::Any(label) => content.probe().is_some_and(|probe| probe.label == *label),
        _ => false,
    }
}

fn by_uuid(content: &Content, part: &Part) -> bool {
    let wanted = match part {
        Part::Uuid(uuid) => uuid.clone(),
        Part::Any(text) => String::from_utf8_lossy(text).to_ascii_lowercase(),
        _ => return false,
    };
    let of_partition = content.partition.as_ref().is_some_and(|partition| partition.uuid == wanted);
    let of_volume = content.probe().and_then(|probe| crate::volume_id_text(probe.uuid, probe.serial));
    of_partition || of_volume.is_some_and(|id| id.eq_ignore_ascii_case(&wanted))
}
