//! What is built, and how.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use obento_base::{FileKind, Mode};
use obento_driver::Room;
use obento_host::build::Publish;
use obento_host::compressed::UnpackLimits;

use crate::import::Selection;

/// More threads wait for each other.
const MAX_THREADS: usize = 4;

/// One source of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildSource {
    /// All that is in a directory of the host.
    Directory(PathBuf),
    /// A tar archive, plain or packed.
    Archive(Input),
    /// A tar archive with whiteouts: a layer of a container image.
    Layer(Input),
    /// An OCI image layout, or the output of `docker save`, as a directory or a tar archive of it: the layers of the image that its index
    /// names. Of several [`BuildSettings::image`] names one: by its
    /// tag (`org.opencontainers.image.ref.name`), its platform (`linux/arm64`, `linux/arm/v7`) or its digest.
    OciLayout(PathBuf),
    /// A manifest as mtree(5) has it.
    Mtree(PathBuf),
    /// A manifest as composefs-dump(5) has it.
    Dump(PathBuf),
    /// A file or directory of the host, at a path in the image.
    Add {
        /// Of the host.
        from: PathBuf,
        /// In the image.
        to: Vec<u8>,
    },
}

impl BuildSource {
    /// What of the host it is read from; none for standard input.
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

    /// Whether it can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        match self {
            Self::Archive(input) | Self::Layer(input) => input.is_pipe(),
            _ => false,
        }
    }
}

impl Input {
    /// Whether it can be read only once.
    pub(super) fn is_pipe(&self) -> bool {
        match self {
            Self::Standard => true,
            // What a shell makes of <(command), for one.
            Self::File(path) => std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()),
        }
    }
}

/// Where an archive comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Standard,
}

/// What becomes of the bytes of an archive that comes through a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pipes {
    /// They are kept in a file without a name beside the image until the volume is laid out, so that the image has the same bytes as
    /// one of the same archive in a file.
    #[default]
    Spool,
    /// They are written straight to their places, in the order in which they come, if the driver supports that. The image needs no
    /// second copy of the bytes, and has another layout than one of the same archive in a file.
    Stream,
}

/// Whose the files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// Of a directory of the host root's, of anything else whose it says.
    #[default]
    Source,
    /// Also of a directory of the host whose it says.
    Keep,
    /// All of them these user's and group's, but where a manifest says otherwise.
    Is(u32, u32),
}

/// Numbers of users or groups that become others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdMap {
    /// The first number of a source.
    pub from: u32,
    /// What it becomes.
    pub to: u32,
    /// How many follow it likewise, itself among them.
    pub count: u32,
}

/// A change of permission bits.
pub type ChangeMode = Arc<dyn Fn(FileKind, Mode) -> Mode + Send + Sync>;

/// How to build.
#[derive(Clone)]
pub struct BuildSettings {
    /// The type of the file system.
    pub fs_type: String,
    /// Its length in bytes; `None` for as much as is needed.
    pub size: Option<u64>,
    /// What stays free where the length is found.
    pub room: Room,
    /// Its label.
    pub label: Vec<u8>,
    /// Its UUID; `None` for one that follows from the tree and the options.
    pub uuid: Option<[u8; 16]>,
    /// Bytes a block.
    pub block_size: Option<u32>,
    /// As [`FormatOptions::features`](crate::FormatOptions::features).
    pub features: Vec<String>,
    /// As [`FormatOptions::settings`](crate::FormatOptions::settings).
    pub settings: Vec<(String, String)>,
    /// The time of the volume, and the latest of its files; without it the newest time of a file is that of the volume.
    pub epoch: Option<i64>,
    /// Whose the files are.
    pub owner: Owner,
    /// Users that become others.
    pub map_uid: Vec<IdMap>,
    /// Groups that become others.
    pub map_gid: Vec<IdMap>,
    /// What becomes of permission bits.
    pub chmod: Option<ChangeMode>,
    /// Patterns of what is left out, with all below it: a component anywhere in a path, or several with `/` between them.
    pub exclude: Vec<Vec<u8>>,
    /// Whether directories of the host give their extended attributes.
    pub xattrs: bool,
    /// Which image of an OCI layout that has several: what [`BuildSource::OciLayout`] says of it.
    pub image: Option<String>,
    /// What else UUID and seeds follow from, so that two volumes of the same tree are told apart.
    pub salt: Vec<u8>,
    /// What unpacking compressed sources may cost.
    pub unpack: UnpackLimits,
    /// Directories of the host, besides that of a manifest, in which the contents that a manifest names may be.
    pub contents: Vec<PathBuf>,
    /// What becomes of the bytes of an archive that comes through a pipe.
    pub pipes: Pipes,
    /// What to do where the image has its name already.
    pub publish: Publish,
    /// How many threads look at files and move bytes; 0 for as many as there are processors, up to 4.
    pub threads: usize,
}

impl BuildSettings {
    /// The defaults of the type `fs_type`: a tenth stays free.
    pub fn new(fs_type: &str) -> Self {
        Self {
            fs_type: fs_type.into(),
            size: None,
            room: Room::Free(10),
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
            contents: Vec::new(),
            pipes: Pipes::default(),
            publish: Publish::Keep,
            threads: 0,
        }
    }

    /// How many threads read and move.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
            threads => threads,
        }
    }

    /// What of the sources is taken.
    pub(super) fn selection(&self) -> Selection<'_> {
        Selection { strip: 0, exclude: &self.exclude }
    }

    /// What an owner becomes.
    pub(super) fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let (uid, gid) = match self.owner {
            Owner::Is(uid, gid) => (uid, gid),
            Owner::Source | Owner::Keep => (uid, gid),
        };
        (mapped(&self.map_uid, uid), mapped(&self.map_gid, gid))
    }

    /// What permission bits become; a link's are none.
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
