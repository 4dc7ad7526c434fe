//! The settings of a disk.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use obento_host::build::Publish;
use obento_open::partition::{DiskId, Guid, PartitionType, Scheme};

use crate::build::{BuildSettings, BuildSource};
use crate::convert::ConvertFormat;

/// The settings of a disk.
#[derive(Clone)]
pub struct DiskSettings {
    /// The kind of the partition table.
    pub scheme: Scheme,
    /// The length in bytes, or `None` for the smallest sufficient length.
    pub size: Option<u64>,
    /// The identity of the disk, in the form that the partition table requires. `None` derives the identity as for
    /// [`PartitionSettings::uuid`].
    pub id: Option<DiskId>,
    /// The partitions, in the order of their positions.
    pub partitions: Vec<PartitionSettings>,
    /// The format of the image.
    pub container: ConvertFormat,
    /// Files that are copied to positions outside of partitions, such as boot loaders.
    pub blobs: Vec<Blob>,
    /// The treatment of an existing file at the path of the image.
    pub publish: Publish,
}

impl DiskSettings {
    /// Returns settings without partitions.
    pub fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            size: None,
            id: None,
            partitions: Vec::new(),
            blobs: Vec::new(),
            container: ConvertFormat::Raw,
            publish: Publish::Keep,
        }
    }
}

/// A file that is copied to a position outside of partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// The file.
    pub path: PathBuf,
    /// The first byte on the disk.
    pub offset: u64,
}

/// The settings of a partition.
#[derive(Clone)]
pub struct PartitionSettings {
    /// The number in a GPT. `None` uses the position in the list.
    pub number: Option<u32>,
    /// The first byte on the disk. `None` uses the first aligned byte after the previous partition.
    pub offset: Option<u64>,
    /// The type, in the form that the partition table requires.
    pub kind: PartitionType,
    /// The name in a GPT.
    pub name: String,
    /// The GUID in a GPT. `None` derives the GUID from the layout of the disk, the identities of the volumes, and the
    /// lengths of all other contents. Exception: for a [hash tree](PartitionContent::Verity) and its data, `None`
    /// derives the GUIDs from the root hash.
    pub uuid: Option<Guid>,
    /// The GPT attributes. An MBR supports only bit 2, which marks the active partition.
    pub attributes: u64,
    /// The length.
    pub size: PartitionSize,
    /// The contents.
    pub content: PartitionContent,
}

impl PartitionSettings {
    /// Returns settings for a partition that is as long as its contents.
    pub fn new(kind: PartitionType, content: PartitionContent) -> Self {
        Self {
            number: None,
            offset: None,
            kind,
            name: String::new(),
            uuid: None,
            attributes: 0,
            size: PartitionSize::Auto,
            content,
        }
    }
}

/// The length of a partition. It is rounded up to a multiple of [`ALIGNMENT`](obento_open::partition::ALIGNMENT),
/// or to sectors of 512 bytes if the settings contain an offset. `Rest` is rounded down instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionSize {
    /// The length of the contents.
    Auto,
    /// At least this many bytes.
    Bytes(u64),
    /// The rest of the disk. Only one partition may have this length.
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
        /// The UUID. `None` uses the GUID of the partition ([`PartitionSettings::uuid`]).
        uuid: Option<[u8; 16]>,
    },
    /// A hash tree of dm-verity for the partition at position `data` of the list. Its root hash is in the
    /// [report](crate::build::PartitionReport::root_hash).
    Verity {
        /// The position of the verified partition.
        data: usize,
        /// The salt, of at most 256 bytes. `None` derives the salt from [`PartitionSettings::uuid`] of this partition.
        /// If that GUID is `None`, too, the salt is derived from the layout of the disk, the identities of the volumes,
        /// and the lengths of all other contents.
        salt: Option<Vec<u8>>,
        /// The UUID of the super block. `None` uses the same GUID as for the salt.
        uuid: Option<[u8; 16]>,
    },
    /// A file system.
    Volume {
        /// The sources.
        sources: Vec<BuildSource>,
        /// The settings. The size of the partition replaces their size.
        settings: Box<BuildSettings>,
    },
    /// A file system of a type that no driver builds. Another program creates the volume and the kernel engine fills
    /// it, as in [`build_filled`](crate::build::build_filled). Two builds of such a partition have different bytes.
    Filled {
        /// The sources.
        sources: Vec<BuildSource>,
        /// The settings. The size of the partition replaces their size.
        settings: Box<BuildSettings>,
        /// The program that creates the empty volume.
        maker: EmptyMaker,
    },
}

/// Creates a volume in a file of zeros. On failure, returns a description.
pub type MakeEmpty = dyn Fn(BorrowedFd<'_>) -> Result<(), String> + Send + Sync;

/// A program that creates an empty volume of one type.
#[derive(Clone)]
pub struct EmptyMaker {
    /// Creates the volume.
    pub make: Arc<MakeEmpty>,
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
