//! The errors of opening an image or a volume in it. A message contains the failed action, the object and the reason.

use std::fmt;
use std::path::{Path, PathBuf};

use obento_base::{Error, Quantity};
use obento_driver::Probe;
#[cfg(feature = "host")]
use obento_host::HostError;

use super::DataDescription;
use super::refused::CannotOpen;
use crate::address::PartSelector;
use crate::partition::Partition;
use crate::text::{Typed, escaped, human_size};

/// The error of opening an image or a volume in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The image file does not exist.
    #[error("cannot open '{}': no such file", shown(image))]
    Missing {
        /// The image.
        image: PathBuf,
    },
    /// The file of the external journal does not exist.
    #[error("cannot open the journal '{}': no such file", shown(journal))]
    MissingJournal {
        /// The file of the journal.
        journal: PathBuf,
    },
    /// The host does not permit reading the image.
    #[error("cannot open '{}': permission denied", shown(image))]
    NotPermitted {
        /// The image.
        image: PathBuf,
    },
    /// The host does not permit changing the image.
    #[error("cannot change '{}': permission denied", shown(image))]
    NotChangeable {
        /// The image.
        image: PathBuf,
    },
    /// The image is on a host file system that is mounted read-only.
    #[error("cannot change '{}': the host's file system is mounted read-only", shown(image))]
    ReadOnlyHost {
        /// The image.
        image: PathBuf,
    },
    /// The image has a compression or a format that obento can only read.
    #[error("cannot change '{}': obento reads the format {layer}, but does not write it", shown(image))]
    Packed {
        /// The image.
        image: PathBuf,
        /// The compression or format.
        layer: &'static str,
    },
    /// The caller requests a change of a snapshot.
    #[error("cannot change '{}': a snapshot is read-only", shown(image))]
    ReadOnlySnapshot {
        /// The image with the name of the snapshot.
        image: PathBuf,
    },
    /// The image has no snapshot of this name.
    #[error(
        "cannot open '{}': the image has no snapshot '{}'",
        shown(image),
        escaped(name.as_bytes())
    )]
    NoSnapshot {
        /// The image with the name of the snapshot.
        image: PathBuf,
        /// The image alone.
        file: PathBuf,
        /// The name or identifier of the snapshot.
        name: String,
    },
    /// A snapshot was requested, and the image is not a qcow2 image.
    #[error("cannot open '{}': only qcow2 images have snapshots", shown(image))]
    NotQcow2 {
        /// The image with the name of the snapshot.
        image: PathBuf,
    },
    /// The options name an external journal, but the journal of the volume is not on another device.
    #[error("cannot open '{}' with --journal: the volume has no external journal", At(image, part))]
    JournalNotUsed {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
    },
    /// This process already has a volume open that contains some of the same bytes, and at least one of the two volumes
    /// is open for change.
    #[error(
        "cannot open '{}': this process has the image open already, and an image that is changed can be open only once",
        At(image, part)
    )]
    InUse {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
    },
    /// The host cannot open the image, or the image cannot be unpacked.
    #[cfg(feature = "host")]
    #[error(transparent)]
    Host(#[from] HostError),
    /// The image has a length of 0 bytes.
    #[error("cannot open '{}': the file is empty", shown(image))]
    Empty {
        /// The image.
        image: PathBuf,
    },
    /// The image has too many layers of compression and disk image formats.
    #[error("cannot open '{}': more than {limit} nested containers", shown(image))]
    Nested {
        /// The image.
        image: PathBuf,
        /// The maximum number of layers.
        limit: usize,
    },
    /// Reading failed before a type was recognised.
    #[error("cannot read '{}': {error}", shown(image))]
    Unreadable {
        /// The image.
        image: PathBuf,
        /// The error of the device.
        error: Error,
    },
    /// No driver has the requested name.
    #[error("unknown file system type '{name}'")]
    UnknownType {
        /// The requested name.
        name: String,
        /// The names of all drivers.
        known: Vec<&'static str>,
    },
    /// No driver recognises the data.
    #[error("cannot open '{}': {}", At(image, part), Unknown(looks))]
    NoFileSystem {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
        /// The description of the data.
        looks: DataDescription,
    },
    /// The image has a partition table without partitions.
    #[error("cannot open '{}': the partition table has no partitions", shown(image))]
    NoPartitions {
        /// The image.
        image: PathBuf,
    },
    /// The image has partitions, but no driver recognises any of them.
    #[error(
        "cannot open '{}': no partition contains a supported file system:{}",
        shown(image),
        List(image, list)
    )]
    NoneOfThese {
        /// The image.
        image: PathBuf,
        /// The contents of the partitions.
        list: Vec<PartitionChoice>,
    },
    /// Several partitions contain a file system, and the caller selected none.
    #[error(
        "cannot open '{}': several partitions contain a file system; select a partition:{}",
        shown(image),
        List(image, list)
    )]
    SeveralFileSystems {
        /// The image.
        image: PathBuf,
        /// The contents of the partitions.
        list: Vec<PartitionChoice>,
    },
    /// Several types claim the same bytes, or one type claims the whole image and others claim its
    /// partitions.
    #[error("cannot open '{}': {}", At(image, part), Names(candidates))]
    Ambiguous {
        /// The image.
        image: PathBuf,
        /// The part that the caller selected.
        part: Option<PartSelector>,
        /// The types that claim it.
        candidates: Vec<Candidate>,
    },
    /// No partition matches the requested part.
    #[error("cannot open '{}': no such partition{}", At(image, &Some(part.clone())), Choices(image, list))]
    NoSuchPart {
        /// The image.
        image: PathBuf,
        /// The requested part.
        part: PartSelector,
        /// The existing partitions.
        list: Vec<PartitionChoice>,
    },
    /// Several partitions match the requested part.
    #[error("cannot open '{}': several partitions match; select a partition by its number:{}", At(image, &Some(part.clone())), List(image, list))]
    AmbiguousPart {
        /// The image.
        image: PathBuf,
        /// The requested part.
        part: PartSelector,
        /// The partitions with the name.
        list: Vec<PartitionChoice>,
    },
    /// The driver could not open the volume.
    #[error("{}", CannotOpen { at: At(image, part), fs_type, error })]
    Volume {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
        /// The type.
        fs_type: &'static str,
        /// Whether the caller requested the type. It may be wrong.
        is_requested: bool,
        /// The error of the driver.
        error: Box<Error>,
    },
    /// The volume has no space for the log of its provenance.
    #[error("cannot record the provenance of '{}': {error}", At(image, part))]
    Unrecorded {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
        /// The error of the volume.
        error: Box<Error>,
    },
    /// The entry of a partition is shorter than the volume in the partition.
    #[error(
        "cannot open '{}@{number}': the partition has {len} bytes, but its file system needs at least {needed} bytes",
        shown(image)
    )]
    ShortPartition {
        /// The image.
        image: PathBuf,
        /// The number of the partition.
        number: u32,
        /// The length of the partition in bytes.
        len: u64,
        /// The minimum length in bytes that the volume needs.
        needed: u64,
        /// Whether the free space after the partition suffices.
        can_grow: bool,
    },
    /// The requested offset is past the end of the image.
    #[error(
        "cannot open '{}@+{offset}': the offset is past the end of the image, which has {}",
        shown(image),
        Quantity::new(*len, "byte")
    )]
    PastTheEnd {
        /// The image.
        image: PathBuf,
        /// The requested offset in bytes.
        offset: u64,
        /// The length of the image in bytes.
        len: u64,
    },
    /// The driver could not open the volume with the requested super block.
    #[error(
        "cannot open the {fs_type} file system of '{}' with the super block at block {block}: {}",
        At(image, part),
        Why { error, ends: *ends }
    )]
    SuperBlock {
        /// The image.
        image: PathBuf,
        /// The part of the image.
        part: Option<PartSelector>,
        /// The type.
        fs_type: &'static str,
        /// The requested block.
        block: u64,
        /// The length of the volume in bytes, if the requested block is past its end.
        ends: Option<u64>,
        /// The error of the driver for this block.
        error: Box<Error>,
        /// The result of opening the volume without the requested super block.
        otherwise: FallbackOutcome,
    },
}

/// One of several formats that claim an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The part of the image with the claimed bytes.
    pub part: Option<PartSelector>,
    /// The type as a message shows it.
    pub name: &'static str,
    /// The name for `-t TYPE`, if a driver opens the type.
    pub fs_type: Option<&'static str>,
}

/// The candidates, each type once.
struct Names<'a>(&'a [Candidate]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = Vec::new();
        for candidate in self.0 {
            if !names.contains(&candidate.name) {
                names.push(candidate.name);
            }
        }
        match &names[..] {
            [name] => write!(f, "the whole image and a partition have the signature of {name}"),
            [names @ .., last] => write!(f, "the data has the signatures of {} and {last}", names.join(", ")),
            [] => Ok(()),
        }
    }
}

/// The reason why no file system was found.
struct Unknown<'a>(&'a DataDescription);

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks = self.0;
        match (looks.is_unsupported(), looks.is_unrecognised()) {
            (true, _) => write!(f, "{} is not supported", looks.name),
            (false, true) => f.write_str("unrecognised format"),
            (false, false) => write!(f, "no supported file system; the data looks like {}", looks.like),
        }
    }
}

/// The result of opening a volume without a requested super block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallbackOutcome {
    /// The volume opens.
    Opens,
    /// The volume opens with the copy of the super block at this block.
    OpensByCopy(u64),
    /// The volume does not open.
    Fails,
}

/// The reason why a requested super block is not usable.
struct Why<'a> {
    error: &'a Error,
    ends: Option<u64>,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends {
            Some(len) => {
                write!(
                    f,
                    "the block is past the end of the volume, which has {} ({len} bytes)",
                    human_size(len)
                )
            }
            None => self.error.fmt(f),
        }
    }
}

/// The contents of a partition, for a choice between partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionChoice {
    /// The partition, or `None` for the whole device.
    pub partition: Option<Partition>,
    /// The contents.
    pub holds: PartitionContents,
}

/// The contents of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartitionContents {
    /// A file system that a driver recognises.
    FileSystem(Probe),
    /// Several types claim the same bytes.
    Ambiguous(Vec<&'static str>),
    /// Other data.
    Other(DataDescription),
    /// Other partitions.
    Partitions,
    /// The partition could not be read.
    Unreadable(Error),
}

impl PartitionChoice {
    /// Returns the file system, if a driver recognises one.
    pub fn probe(&self) -> Option<&Probe> {
        match &self.holds {
            PartitionContents::FileSystem(probe) => Some(probe),
            _ => None,
        }
    }
}

fn shown(path: &Path) -> Typed<'_> {
    Typed(path.as_os_str().as_encoded_bytes())
}

/// An image or a part of it.
pub(super) struct At<'a>(&'a Path, &'a Option<PartSelector>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0).fmt(f)?;
        self.1.as_ref().map_or(Ok(()), |part| write!(f, "@{part}"))
    }
}

/// One line for each partition, which begins with the way to name it.
struct List<'a>(&'a Path, &'a [PartitionChoice]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for content in self.1 {
            let Some(partition) = &content.partition else { continue };
            let (size, kind) = (human_size(partition.len), partition.kind);
            write!(f, "\n  {}@{}  {size:>8}  {kind}", shown(self.0), partition.number)?;
            if !partition.name.is_empty() {
                write!(f, " \"{}\"", escaped(&partition.name))?;
            }
            write!(f, ": {}", content.holds)?;
        }
        Ok(())
    }
}

struct Choices<'a>(&'a Path, &'a [PartitionChoice]);

impl fmt::Display for Choices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => f.write_str("; the image has no valid partition table"),
            list => write!(f, "; the partitions are:{}", List(self.0, list)),
        }
    }
}

impl fmt::Display for PartitionContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem(probe) if probe.label.is_empty() => f.write_str(probe.fs_type),
            Self::FileSystem(probe) => write!(f, "{} labelled \"{}\"", probe.fs_type, escaped(&probe.label)),
            Self::Ambiguous(names) => write!(f, "ambiguous ({})", names.join(", ")),
            Self::Other(looks) => f.write_str(looks.like),
            Self::Partitions => f.write_str("other partitions"),
            Self::Unreadable(error) => error.fmt(f),
        }
    }
}
