//! What a disk is built of, and how.

use std::path::PathBuf;

use obento_host::build::Publish;

use crate::build::{BuildSettings, BuildSource};
use crate::partition::{DiskId, Guid, PartitionType, Scheme};

/// How to build a disk.
#[derive(Clone)]
pub struct DiskSettings {
    /// The kind of its partition table.
    pub scheme: Scheme,
    /// Its bytes; `None` for as many as are needed.
    pub size: Option<u64>,
    /// What identifies it, of the kind of its table; `None` for what follows from what is in it.
    pub id: Option<DiskId>,
    /// Its partitions, in the order in which they lie.
    pub partitions: Vec<PartitionSettings>,
    /// What to do where the image has its name already.
    pub publish: Publish,
}

impl DiskSettings {
    /// A disk without partitions.
    pub fn new(scheme: Scheme) -> Self {
        Self { scheme, size: None, id: None, partitions: Vec::new(), publish: Publish::Keep }
    }
}

/// A partition to be built.
#[derive(Clone)]
pub struct PartitionSettings {
    /// What it is for, of the kind of the table.
    pub kind: PartitionType,
    /// Its name in a GPT.
    pub name: String,
    /// Its GUID in a GPT; `None` for what follows from what is in the disk.
    pub uuid: Option<Guid>,
    /// GPT attributes; of these an MBR knows bit 2, which makes it the active one.
    pub attributes: u64,
    /// How long it is.
    pub size: PartitionSize,
    /// What is in it.
    pub content: PartitionContent,
}

impl PartitionSettings {
    /// One that is as long as what is in it needs.
    pub fn new(kind: PartitionType, content: PartitionContent) -> Self {
        Self { kind, name: String::new(), uuid: None, attributes: 0, size: PartitionSize::Auto, content }
    }
}

/// How long a partition is; always a multiple of [`ALIGNMENT`](crate::partition::ALIGNMENT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionSize {
    /// As what is in it needs.
    Auto,
    /// So many bytes at least.
    Bytes(u64),
    /// What the others leave of the disk; of one partition at most.
    Rest,
}

/// What is in a partition.
#[derive(Clone)]
pub enum PartitionContent {
    /// Zeros.
    Empty,
    /// The bytes of a file.
    Raw(PathBuf),
    /// An area to swap to.
    Swap {
        /// Its label, of at most 16 bytes.
        label: Vec<u8>,
        /// Its UUID; `None` for what follows from what is in the disk.
        uuid: Option<[u8; 16]>,
    },
    /// A file system.
    Volume {
        /// What it is built of.
        sources: Vec<BuildSource>,
        /// How. Its size is that of the partition.
        settings: Box<BuildSettings>,
    },
    /// A file system of a type that another program makes and the kernel engine fills, as
    /// [`build_filled`](crate::build_filled) has it. It is not the same twice.
    Filled {
        /// What it is built of.
        sources: Vec<BuildSource>,
        /// How. Its size is that of the partition.
        settings: Box<BuildSettings>,
        /// What makes the empty volume.
        maker: EmptyMaker,
    },
}

/// What makes an empty volume of one type.
#[derive(Clone)]
pub struct EmptyMaker {
    /// Does it in a file of zeros; or what went wrong.
    pub make: obento_linux::starter::Make,
    /// Bytes of the smallest volume that it makes, or near them.
    pub least: u64,
}

impl PartitionContent {
    /// What a file system is built of, and how.
    pub fn tree(&self) -> Option<(&[BuildSource], &BuildSettings)> {
        match self {
            Self::Volume { sources, settings } | Self::Filled { sources, settings, .. } => {
                Some((sources, settings))
            }
            _ => None,
        }
    }

    /// Whether it can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        self.tree().is_some_and(|(sources, _)| sources.iter().any(BuildSource::is_pipe))
    }
}
