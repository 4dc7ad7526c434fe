//! The settings of a disk.

use std::path::PathBuf;

use obento_host::build::Publish;

use crate::build::{BuildSettings, BuildSource};
use crate::partition::{DiskId, Guid, PartitionType, Scheme};

/// The settings of a disk.
#[derive(Clone)]
pub struct DiskSettings {
    /// The kind of the partition table.
    pub scheme: Scheme,
    /// The length in bytes, or `None` for the smallest sufficient length.
    pub size: Option<u64>,
    /// The identity in the form of the partition table, or `None` to derive it from the contents.
    pub id: Option<DiskId>,
    /// The partitions, in the order of their positions.
    pub partitions: Vec<PartitionSettings>,
    /// What happens if the image exists.
    pub publish: Publish,
}

impl DiskSettings {
    /// Returns settings without partitions.
    pub fn new(scheme: Scheme) -> Self {
        Self { scheme, size: None, id: None, partitions: Vec::new(), publish: Publish::Keep }
    }
}

/// The settings of a partition.
#[derive(Clone)]
pub struct PartitionSettings {
    /// The type, in the form of the partition table.
    pub kind: PartitionType,
    /// The name in a GPT.
    pub name: String,
    /// The GUID in a GPT, or `None` to derive it from the contents of the disk.
    pub uuid: Option<Guid>,
    /// The GPT attributes. An MBR supports only bit 2, which marks the active partition.
    pub attributes: u64,
    /// The length.
    pub size: PartitionSize,
    /// The contents.
    pub content: PartitionContent,
}

impl PartitionSettings {
    /// Returns settings for a partition with the length of its contents.
    pub fn new(kind: PartitionType, content: PartitionContent) -> Self {
        Self { kind, name: String::new(), uuid: None, attributes: 0, size: PartitionSize::Auto, content }
    }
}

/// The length of a partition, which is always a multiple of [`ALIGNMENT`](crate::partition::ALIGNMENT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionSize {
    /// The length that the contents need.
    Auto,
    /// At least this many bytes.
    Bytes(u64),
    /// The part of the disk that the other partitions leave. For at most one partition.
    Rest,
}

/// The contents of a partition.
#[derive(Clone)]
pub enum PartitionContent {
    /// Zeros.
    Empty,
    /// The bytes of a file.
    Raw(PathBuf),
    /// A swap area.
    Swap {
        /// The label, of at most 16 bytes.
        label: Vec<u8>,
        /// The UUID, or `None` to derive it from the contents of the disk.
        uuid: Option<[u8; 16]>,
    },
    /// A file system.
    Volume {
        /// The sources.
        sources: Vec<BuildSource>,
        /// The settings. The size of the partition replaces their size.
        settings: Box<BuildSettings>,
    },
    /// A file system of a type that another program creates and the kernel engine fills, as in
    /// [`build_filled`](crate::build_filled). Two builds have different bytes.
    Filled {
        /// The sources.
        sources: Vec<BuildSource>,
        /// The settings. The size of the partition replaces their size.
        settings: Box<BuildSettings>,
        /// The program that creates the empty volume.
        maker: EmptyMaker,
    },
}

/// A program that creates an empty volume of one type.
#[derive(Clone)]
pub struct EmptyMaker {
    /// Creates the volume in a file of zeros. Errors: a description of the failure.
    pub make: obento_linux::starter::Make,
    /// The approximate size in bytes of the smallest volume that the program creates.
    pub least: u64,
}

impl PartitionContent {
    /// Returns the sources and settings of a file system.
    pub fn tree(&self) -> Option<(&[BuildSource], &BuildSettings)> {
        match self {
            Self::Volume { sources, settings } | Self::Filled { sources, settings, .. } => {
                Some((sources, settings))
            }
            _ => None,
        }
    }

    /// Returns whether the contents can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        self.tree().is_some_and(|(sources, _)| sources.iter().any(BuildSource::is_pipe))
    }
}
