//! Builds whole disks. A disk has a partition table and partitions. A partition contains a file system, the bytes of
//! a file, a swap area, or zeros.
//!
//! Order:
//! 1. The sources of all partitions are read and their volumes are planned. All lengths are then known.
//! 2. The partitions are laid out.
//! 3. The volumes are written one after another, as in [`build`](super::build()).
//! 4. The hash trees of dm-verity are written.
//! 5. The table is written.
//!
//! A volume that another program creates is not planned. It is filled in a separate file, which is then copied into
//! the partition.
//!
//! Identity: the GUIDs and the disk number are derived from the layout of the disk, the identities of the volumes, and
//! the lengths of all other contents. The UUIDs of volumes are derived from their trees.

mod blobs;
mod content;
mod options;
mod verity;

use std::ops::Range;
use std::path::Path;

use obento_driver::{BuildPlan, FormatError};
use obento_env::Random as _;
use obento_host::build::FreshFile;
use obento_host::convert::Identity;
use obento_open::Registry;
use obento_open::address::PartSelector;
use obento_open::partition::{
    DiskId, Guid, NewPartition, NewTable, PartitionType, Scheme, lay_out_at, number_of,
};

use super::container::{self, Comparison, Target};
use super::digest::Seed;
use super::source::Read;
use super::{BuildFailure, BuildReport, FillReport, Verified, source, volume};
use crate::copy::Observer;
use content::{DiskContext, Filling};
pub use options::{Blob, DiskSettings, EmptyMaker, PartitionContent, PartitionSettings, PartitionSize};

/// Maximum number of UTF-16 units of a name in a GPT.
const NAME_MAX: usize = 36;

/// The result of building a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskReport {
    /// The identity of the disk.
    pub id: DiskId,
    /// The length of the disk in bytes.
    pub len: u64,
    /// The partitions.
    pub partitions: Vec<PartitionReport>,
}

/// A partition that was created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionReport {
    /// The number.
    pub number: u32,
    /// The type.
    pub kind: PartitionType,
    /// The name.
    pub name: String,
    /// The bytes of the disk.
    pub range: Range<u64>,
    /// The GUID, which is not stored in an MBR.
    pub uuid: Guid,
    /// The file system, if a driver built it.
    pub volume: Option<BuildReport>,
    /// The file system, if another program created it.
    pub filled: Option<FillReport>,
    /// The root hash, if the partition contains a hash tree of dm-verity.
    pub root_hash: Option<[u8; 32]>,
}

/// Builds a disk image. The image file gets its name only after it is complete.
///
/// # Errors
///
/// - `Layout`: the layout of the disk is not possible.
/// - `Partition`: a partition cannot be created, for one of the reasons of [`build`](super::build()).
/// - `TooSmall`: the requested size of the disk is too small.
/// - `Host`: a file of the host cannot be read or written.
///
/// After an error, no file was created or replaced at `out`.
///
/// ```no_run
/// use obento::partition::{PartitionType, Scheme};
/// use obento::Registry;
/// use obento::build::{BuildSettings, BuildSource, DiskSettings, PartitionContent, PartitionSettings};
/// use obento::copy::Quiet;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let root = PartitionContent::Volume {
///     sources: vec![BuildSource::Directory("rootfs".into())],
///     settings: Box::new(BuildSettings::new("ext4")),
/// };
/// let kind = PartitionType::parse("root-x86-64", Scheme::Gpt).unwrap();
/// let mut settings = DiskSettings::new(Scheme::Gpt);
/// settings.partitions.push(PartitionSettings::new(kind, root));
/// obento::build::build_disk("disk.img".as_ref(), &settings, &Registry::default(), &mut Quiet::default())?;
/// # Ok(())
/// # }
/// ```
pub fn build_disk(
    out: &Path,
    settings: &DiskSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<DiskReport, BuildFailure> {
    let Made { fresh, report, identity, .. } = make(out, settings, registry, observer)?;
    container::publish(fresh, target(out, settings), || identity, Comparison::Skip, observer)?;
    Ok(report)
}

/// Builds a disk like [`build_disk`], and verifies the volume of each partition like
/// [`build_verified`](super::build_verified).
///
/// # Errors
///
/// Those of [`build_disk`]. In addition, `OnlyOnce`, `NotSame`, `NotSound` and `Differs`, as in
/// [`build_verified`](super::build_verified).
pub fn build_disk_verified(
    out: &Path,
    settings: &DiskSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<DiskReport, BuildFailure> {
    if settings.partitions.iter().any(|partition| partition.content.is_pipe()) {
        return Err(BuildFailure::OnlyOnce);
    }
    let first = make(out, settings, registry, observer)?;
    let second = make(out, settings, registry, observer)?;
    let volumes = first.report.partitions.iter().zip(&first.reads).filter_map(|(partition, read)| {
        let (read, volume) = (read.as_ref()?, partition.volume.as_ref()?);
        Some(Verified { part: Some(PartSelector::Number(partition.number)), read, made: &volume.formatted })
    });
    let volumes: Vec<_> = volumes.collect();
    let fresh = super::verified(first.fresh, second.fresh, &volumes, registry)?;
    container::publish(fresh, target(out, settings), || first.identity, Comparison::Compare, observer)?;
    Ok(first.report)
}

fn target<'a>(out: &'a Path, settings: &DiskSettings) -> Target<'a> {
    Target { path: out, format: settings.container, publish: settings.publish }
}

/// A disk that has no name yet.
struct Made {
    fresh: FreshFile,
    reads: Vec<Option<Read>>,
    report: DiskReport,
    /// The identity of the file, for formats that store one.
    identity: Identity,
}

fn make(
    out: &Path,
    settings: &DiskSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<Made, BuildFailure> {
    let settings = &prepared(settings)?;
    let reads = read(out, settings, observer)?;
    let place = DiskContext { out, registry };
    let (fillings, ranges, len) = plan(settings, &reads, &place, observer)?;
    let (id, mut guids, file_id) = identity(settings, &fillings);
    let fresh = FreshFile::new(out, len)?;
    blobs::write(settings, &ranges, len, &fresh)?;
    let mut built = Vec::new();
    for (at, filling) in fillings.into_iter().enumerate() {
        let partition = &settings.partitions[at];
        let written =
            filling.write(partition, reads[at].as_ref(), (&fresh, &ranges[at]), guids[at], observer);
        built.push(written.map_err(|failure| numbered(settings, at, failure))?);
    }
    let roots = verity::write(settings, &ranges, &mut guids, &fresh)?;
    let partitions: Vec<NewPartition> = settings
        .partitions
        .iter()
        .zip(ranges)
        .zip(guids)
        .map(|((partition, range), guid)| NewPartition {
            number: partition.number,
            kind: partition.kind,
            name: partition.name.clone(),
            uuid: guid,
            attributes: partition.attributes,
            range,
        })
        .collect();
    let table = NewTable { id, partitions };
    table.write(fresh.device()).map_err(FormatError::from)?;
    let report = |(at, (partition, (volume, filled))): (usize, (NewPartition, Built))| PartitionReport {
        number: number(settings, at),
        kind: partition.kind,
        name: partition.name,
        range: partition.range,
        uuid: partition.uuid,
        volume,
        filled,
        root_hash: roots[at],
    };
    let partitions = table.partitions.into_iter().zip(built).enumerate().map(report).collect();
    let identity = Identity { id: file_id, time: newest(settings, &reads) };
    Ok(Made { fresh, reads, report: DiskReport { id, len, partitions }, identity })
}

/// Validates the settings and adds salts that distinguish partitions with the same contents.
fn prepared(settings: &DiskSettings) -> Result<DiskSettings, BuildFailure> {
    let mut settings = settings.clone();
    let layout = |why: String| BuildFailure::Layout { why };
    if settings.partitions.iter().filter(|partition| partition.size == PartitionSize::Rest).count() > 1 {
        return Err(layout("only one partition can have the size \"rest\"".into()));
    }
    expect_numbers(&settings)?;
    verity::expect_valid(&settings)?;
    for at in 0..settings.partitions.len() {
        let number = number(&settings, at);
        let partition = &mut settings.partitions[at];
        if partition.name.encode_utf16().count() > NAME_MAX {
            return Err(layout(format!(
                "the name of partition {number} has more than {NAME_MAX} UTF-16 units"
            )));
        }
        let is_of_table = matches!(
            (settings.scheme, partition.kind),
            (Scheme::Gpt, PartitionType::Gpt(_)) | (Scheme::Mbr, PartitionType::Mbr(_))
        );
        if !is_of_table {
            return Err(layout(format!(
                "the type of partition {number} is not a type of {}",
                settings.scheme
            )));
        }
        if let PartitionContent::Volume { settings, .. } | PartitionContent::Filled { settings, .. } =
            &mut partition.content
        {
            settings.salt = format!("partition {number}").into_bytes();
        }
    }
    Ok(settings)
}

/// Returns the number of a partition.
fn number(settings: &DiskSettings, at: usize) -> u32 {
    let requested = settings.partitions.get(at).and_then(|partition| partition.number);
    requested.unwrap_or_else(|| number_of(settings.scheme, at, settings.partitions.len()))
}

/// Fails with `Layout` if two partitions have the same number, or a number is not possible.
fn expect_numbers(settings: &DiskSettings) -> Result<(), BuildFailure> {
    let layout = |why: String| Err(BuildFailure::Layout { why });
    let mut seen = std::collections::BTreeSet::new();
    for at in 0..settings.partitions.len() {
        let (number, is_given) = (number(settings, at), settings.partitions[at].number.is_some());
        if is_given && (settings.scheme == Scheme::Mbr || !(1..=128).contains(&number)) {
            return layout(match settings.scheme {
                Scheme::Gpt => format!("partition {number}: the number must be from 1 to 128"),
                Scheme::Mbr => format!("partition {number}: the key 'number' requires a GPT"),
            });
        }
        if !seen.insert(number) {
            return layout(format!("two partitions have the number {number}"));
        }
    }
    Ok(())
}

/// Adds the number of the partition to an error.
fn numbered(settings: &DiskSettings, at: usize, failure: BuildFailure) -> BuildFailure {
    let number = number(settings, at);
    BuildFailure::Partition { number, failure: Box::new(failure) }
}

/// Reads the sources of all partitions.
fn read(
    out: &Path,
    settings: &DiskSettings,
    observer: &mut dyn Observer,
) -> Result<Vec<Option<Read>>, BuildFailure> {
    let mut reads = Vec::new();
    for (at, partition) in settings.partitions.iter().enumerate() {
        reads.push(match partition.content.tree() {
            Some((sources, of_volume)) => {
                let read = source::read_all(out, sources, of_volume, None, observer);
                Some(read.map_err(|failure| numbered(settings, at, failure))?)
            }
            None => None,
        });
    }
    Ok(reads)
}

/// The contents of all partitions, their ranges, and the length of the disk.
type Planned<'r> = (Vec<Filling<'r>>, Vec<Range<u64>>, u64);

/// Plans the contents of all partitions. The partition that takes the rest of the disk is planned last.
fn plan<'r>(
    settings: &DiskSettings,
    reads: &'r [Option<Read>],
    place: &DiskContext<'_>,
    observer: &mut dyn Observer,
) -> Result<Planned<'r>, BuildFailure> {
    let mut lens: Vec<u64> = vec![1; settings.partitions.len()];
    let mut fillings: Vec<Option<Filling<'r>>> = Vec::new();
    let mut rest = None;
    for (at, partition) in settings.partitions.iter().enumerate() {
        let size = match partition.size {
            PartitionSize::Rest => {
                rest = Some(at);
                fillings.push(None);
                continue;
            }
            PartitionSize::Auto => None,
            PartitionSize::Bytes(len) if partition.offset.is_some() => Some(len.next_multiple_of(512)),
            PartitionSize::Bytes(len) => Some(content::rounded(len)),
        };
        if size.is_none() && matches!(partition.content, PartitionContent::Verity { .. }) {
            fillings.push(None);
            continue;
        }
        let filling = Filling::plan(partition, size, reads[at].as_ref(), place, observer);
        let filling = filling.map_err(|failure| numbered(settings, at, failure))?;
        lens[at] = size.unwrap_or_else(|| filling.len());
        fillings.push(Some(filling));
    }
    for at in (0..fillings.len()).filter(|&at| Some(at) != rest) {
        if let (None, PartitionContent::Verity { data, .. }) =
            (&fillings[at], &settings.partitions[at].content)
        {
            let len = verity::len_of(&settings.partitions[*data], lens[*data]);
            lens[at] = len.map_err(|failure| numbered(settings, at, failure))?;
            fillings[at] = Some(Filling::Verity { len: lens[at] });
        }
    }
    let laid_out = |lens: &[u64]| {
        let starts = settings.partitions.iter().map(|partition| partition.offset);
        lay_out_at(settings.scheme, &starts.zip(lens.iter().copied()).collect::<Vec<_>>())
    };
    let table = |error: obento_open::partition::TableError| BuildFailure::Layout { why: error.to_string() };
    if let Some(at) = rest {
        let why = "a partition has the size \"rest\", and the disk has no size".to_owned();
        let size = settings.size.ok_or(BuildFailure::Layout { why })?;
        if settings.partitions.iter().skip(at + 1).any(|partition| partition.offset.is_some()) {
            let why = "a partition with the size \"rest\" is before a partition with an offset".to_owned();
            return Err(BuildFailure::Layout { why });
        }
        let (_, needed) = laid_out(&lens).map_err(table)?;
        let left = size.checked_sub(needed).ok_or(BuildFailure::TooSmall { size, needed })?;
        // One unit is already included, and an incomplete unit stays unused.
        lens[at] = content::rounded_down(left).saturating_add(content::rounded(1));
        let (partition, read) = (&settings.partitions[at], reads[at].as_ref());
        let filling = Filling::plan(partition, Some(lens[at]), read, place, observer);
        fillings[at] = Some(filling.map_err(|failure| numbered(settings, at, failure))?);
    }
    let (ranges, needed) = laid_out(&lens).map_err(table)?;
    verity::expect_room(settings, &ranges)?;
    let len = match settings.size {
        Some(size) if size < needed => return Err(BuildFailure::TooSmall { size, needed }),
        Some(size) => size - size % 512,
        None => needed,
    };
    if settings.scheme == Scheme::Mbr && len.div_ceil(512) > u64::from(u32::MAX) {
        return Err(table(obento_open::partition::TableError::TooLarge));
    }
    Ok((fillings.into_iter().flatten().collect(), ranges, len))
}

/// Returns the newest time of a volume, in seconds since 1970.
fn newest(settings: &DiskSettings, reads: &[Option<Read>]) -> u64 {
    let trees = settings.partitions.iter().map(|partition| partition.content.tree());
    let times = trees.zip(reads).filter_map(|(tree, read)| Some(container::time(read.as_ref()?, tree?.1)));
    times.max().unwrap_or(0)
}

/// Returns the identity of the disk, the identities of its partitions, and the identity of the file. An
/// identity that was not requested is derived from the layout of the disk, the identities of the volumes, and the
/// lengths of all other contents.
fn identity(settings: &DiskSettings, fillings: &[Filling<'_>]) -> (DiskId, Vec<Guid>, [u8; 16]) {
    let mut fields: Vec<Vec<u8>> = vec![b"obento disk 1".to_vec(), settings.scheme.to_string().into_bytes()];
    for (partition, filling) in settings.partitions.iter().zip(fillings) {
        fields
            .push(format!("{:?} {:?} {}", partition.kind, partition.size, partition.attributes).into_bytes());
        fields.push(partition.name.clone().into_bytes());
        fields.push(filling.identity());
    }
    let seed = Seed::of_fields(fields.iter().map(Vec::as_slice));
    let drawn = Guid::from_u128(u128::from_be_bytes(seed.uuid()));
    let mut number = [0; 4];
    seed.fill(&mut number);
    let id = settings.id.unwrap_or(match settings.scheme {
        Scheme::Gpt => DiskId::Guid(drawn),
        // 0 means that the disk has no number.
        Scheme::Mbr => DiskId::Signature(u32::from_le_bytes(number).max(1)),
    });
    let guids = settings.partitions.iter().map(|partition| {
        let drawn = Guid::from_u128(u128::from_be_bytes(seed.uuid()));
        partition.uuid.unwrap_or(drawn)
    });
    let guids = guids.collect();
    (id, guids, seed.uuid())
}

/// The result for a partition: built by a driver, or created by another program.
type Built = (Option<BuildReport>, Option<FillReport>);

impl Filling<'_> {
    /// Writes the contents of a partition. Returns the result for a file system.
    fn write(
        self,
        partition: &PartitionSettings,
        read: Option<&Read>,
        (fresh, range): (&FreshFile, &Range<u64>),
        guid: Guid,
        observer: &mut dyn Observer,
    ) -> Result<Built, BuildFailure> {
        match (self, &partition.content, read) {
            (Self::Volume(mut plan, came), PartitionContent::Volume { settings, .. }, Some(read)) => {
                let moved = volume::write(&mut *plan, read, (fresh, range.start), settings, observer)?;
                let plan: &dyn BuildPlan = &*plan;
                Ok((Some(volume::report(plan, read, came + moved)), None))
            }
            (Self::Filled(filled), ..) => Ok((None, Some(filled.lay(fresh, range.start)?))),
            (filling, content, _) => {
                filling.write_plain(content, (fresh, range), guid)?;
                Ok((None, None))
            }
        }
    }
}
