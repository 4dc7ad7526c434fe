//! The sources and the settings of a build.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use obento_base::{FileKind, Mode};
use obento_driver::FreeSpace;
use obento_host::build::Publish;
use obento_host::compressed::UnpackLimits;

use crate::convert::ConvertFormat;
use crate::import::Selection;

/// Maximum number of threads. Further threads would only wait for the others.
const MAX_THREADS: usize = 4;

/// One source of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildSource {
    /// The contents of a directory of the host.
    Directory(PathBuf),
    /// A tar archive, plain or compressed.
    Archive(Input),
    /// A tar archive with whiteouts: a layer of a container image.
    Layer(Input),
    /// An OCI image layout or the output of `docker save`, as a directory or a tar archive. The layers of the image
    /// that its index refers to are the contents. If the index refers to several images, [`BuildSettings::image`]
    /// selects one. It contains the tag (`org.opencontainers.image.ref.name`), the platform (`linux/arm64`,
    /// `linux/arm/v7`) or the digest of the image.
    OciLayout(PathBuf),
    /// A manifest in the format of mtree(5).
    Mtree(PathBuf),
    /// A manifest in the format of composefs-dump(5).
    Dump(PathBuf),
    /// A file or directory of the host, at a path in the image.
    Add {
        /// The path on the host.
        from: PathBuf,
        /// The path in the image.
        to: Vec<u8>,
    },
}

impl BuildSource {
    /// Returns the host path that is read, or `None` for standard input.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Archive(input) | Self::Layer(input) => match input {
                Input::File(path) => Some(path),
                Input::Standard => None,
            },
            Self::Directory(path) | Self::OciLayout(path) | Self::Mtree(path) | Self::Dump(path) => {
                Some(path)
            }
            Self::Add { from, .. } => Some(from),
        }
    }

    /// Returns whether the source can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        match self {
            Self::Archive(input) | Self::Layer(input) => input.is_pipe(),
            _ => false,
        }
    }
}

impl Input {
    /// Returns whether the input can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        match self {
            Self::Standard => true,
            // For example the FIFO of a shell's `<(command)`.
            Self::File(path) => std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()),
        }
    }
}

/// The input of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Standard,
}

/// The handling of the bytes of an archive from a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pipes {
    /// Stores the bytes in an unnamed file beside the image until the volume is laid out. The image has the same
    /// bytes as if the archive were a file.
    #[default]
    Spool,
    /// Writes the bytes directly to their positions, in the order of their arrival, if the driver supports that. No
    /// second copy of the bytes is needed. The layout differs from that of an archive in a file.
    Stream,
}

/// The owner of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// Root owns the files of a directory of the host. Files of other sources have the owners in the source.
    #[default]
    Source,
    /// All files have the owners in the source, including those of a directory of the host.
    Keep,
    /// This user ID and group ID own all files, except files for which a manifest sets the owner.
    Is(u32, u32),
}

/// A mapping of a range of user IDs or group IDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdMap {
    /// The first ID in the source.
    pub from: u32,
    /// The ID that the first ID is mapped to.
    pub to: u32,
    /// The number of consecutive IDs that are mapped.
    pub count: u32,
}

/// A change of permission bits.
pub type ChangeMode = Arc<dyn Fn(FileKind, Mode) -> Mode + Send + Sync>;

/// The settings of a build.
#[derive(Clone)]
pub struct BuildSettings {
    /// The type of the file system.
    pub fs_type: String,
    /// The length in bytes, or `None` for a sufficient length.
    pub size: Option<u64>,
    /// The free space if the length is not given.
    pub room: FreeSpace,
    /// The label.
    pub label: Vec<u8>,
    /// The UUID, or `None` to derive it from the tree and the options.
    pub uuid: Option<[u8; 16]>,
    /// The block size in bytes.
    pub block_size: Option<u32>,
    /// Features, as in [`FormatOptions::features`](obento_driver::FormatOptions::features).
    pub features: Vec<String>,
    /// Settings, as in [`FormatOptions::settings`](obento_driver::FormatOptions::settings).
    pub settings: Vec<(String, String)>,
    /// The time of the volume, in seconds since 1970. Later times of files are replaced by this time. `None` uses the
    /// newest time of a file as the time of the volume.
    pub epoch: Option<i64>,
    /// The owner of the files.
    pub owner: Owner,
    /// The mappings of user IDs.
    pub map_uid: Vec<IdMap>,
    /// The mappings of group IDs.
    pub map_gid: Vec<IdMap>,
    /// The change of permission bits.
    pub chmod: Option<ChangeMode>,
    /// Patterns of entries to exclude, with everything below them. A pattern without `/` matches a component anywhere
    /// in a path. A pattern with `/` matches consecutive components.
    pub exclude: Vec<Vec<u8>>,
    /// Whether the extended attributes of files from a directory of the host are stored.
    pub xattrs: bool,
    /// The image of an OCI layout, as described at [`BuildSource::OciLayout`]. It is an error if no image has this
    /// name.
    pub image: Option<String>,
    /// Additional input for the derivation of the UUID and the seeds. Two volumes with the same tree and
    /// different salts have different UUIDs.
    pub salt: Vec<u8>,
    /// The limits of unpacking compressed sources.
    pub unpack: UnpackLimits,
    /// The maximum number of entries of all sources.
    pub max_files: u64,
    /// Directories of the host that may contain the files that a manifest refers to, in addition to the directory of
    /// the manifest.
    pub contents: Vec<PathBuf>,
    /// The handling of the bytes of an archive from a pipe.
    pub pipes: Pipes,
    /// Whether the volume contains a log with the source of each file, which the provenance layer continues.
    /// Only [`build`](super::build()) and [`build_verified`](super::build_verified) write such a log.
    pub provenance: bool,
    /// The format of the image.
    pub container: ConvertFormat,
    /// The treatment of an existing file at the path of the image.
    pub publish: Publish,
    /// The number of threads that read and copy files. 0 uses one thread per processor, up to 4.
    pub threads: usize,
}

impl BuildSettings {
    /// Returns the default settings for the type `fs_type`. 10 % of the volume stay free.
    pub fn new(fs_type: &str) -> Self {
        Self {
            fs_type: fs_type.into(),
            size: None,
            room: FreeSpace::Free(10),
            label: Vec::new(),
            uuid: None,
            block_size: None,
            features: Vec::new(),
            settings: Vec::new(),
            epoch: None,
            owner: Owner::default(),
            map_uid: Vec::new(),
            map_gid: Vec::new(),
            chmod: None,
            exclude: Vec::new(),
            xattrs: false,
            image: None,
            salt: Vec::new(),
            unpack: UnpackLimits::default(),
            max_files: u64::MAX,
            contents: Vec::new(),
            pipes: Pipes::default(),
            provenance: false,
            container: ConvertFormat::Raw,
            publish: Publish::Keep,
            threads: 0,
        }
    }

    /// Returns the number of threads that read and move files.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
            threads => threads,
        }
    }

    /// Returns the selection of source entries.
    pub(super) fn selection(&self) -> Selection<'_> {
        Selection { strip: 0, exclude: &self.exclude }
    }

    /// Returns the stored owner and group for those of a source.
    pub(super) fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let (uid, gid) = match self.owner {
            Owner::Is(uid, gid) => (uid, gid),
            Owner::Source | Owner::Keep => (uid, gid),
        };
        (mapped(&self.map_uid, uid), mapped(&self.map_gid, gid))
    }

    /// Returns the stored permission bits for those of a source. Those of a symbolic link are not changed.
    pub(super) fn mode(&self, kind: FileKind, mode: Mode) -> Mode {
        match &self.chmod {
            Some(change) if kind != FileKind::Symlink => change(kind, mode),
            _ => mode,
        }
    }
}

fn mapped(maps: &[IdMap], id: u32) -> u32 {
    let found = maps.iter().find_map(|map| {
        let inside = id.checked_sub(map.from).filter(|&inside| inside < map.count)?;
        map.to.checked_add(inside)
    });
    found.unwrap_or(id)
}
