//! The contents of a partition: length, identity and bytes.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use obento_block::BlockDevice as _;
use obento_driver::{BuildPlan, FormatError};
use obento_env::Random as _;
use obento_host::HostError;
use obento_host::build::FreshFile;
use obento_host::source::{Run, SourceFile};
use obento_open::Registry;
use obento_open::partition::{ALIGNMENT, Guid};

use super::options::{EmptyMaker, PartitionContent, PartitionSettings};
use crate::build::digest::Seed;
use crate::build::source::{Read, open_at_once};
use crate::build::{BuildFailure, BuildSettings, FillReport, fill, volume};
use crate::copy::Observer;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;
/// Bytes of a page of a swap area. The header does not store the page size; machines with 4 KiB pages use the
/// area.
const PAGE: u64 = 4096;
/// Minimum number of pages of a usable swap area: `MIN_GOODPAGES` of mkswap(8).
const MIN_PAGES: u64 = 10;
/// Bytes of the label of a swap area: `sws_volume` of `union swap_header`.
const SWAP_LABEL: usize = 16;

/// Rounds `len` up to a valid length of a partition.
pub(super) fn rounded(len: u64) -> u64 {
    len.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// Rounds `len` down to a valid length of a partition.
pub(super) fn rounded_down(len: u64) -> u64 {
    len - len % ALIGNMENT
}

/// The contents of a partition.
pub(super) enum Filling<'r> {
    /// Zeros.
    Empty { len: u64 },
    /// The bytes of a file.
    Raw { path: PathBuf, file: File, len: u64 },
    /// A swap area.
    Swap { len: u64 },
    /// A hash tree, which is written after all other contents.
    Verity { len: u64 },
    /// A planned file system, and the number of bytes of files that its plan contains.
    Volume(Box<dyn BuildPlan + 'r>, u64),
    /// A finished file system in a separate file.
    Filled(Box<Filled>),
}

/// A volume that another program created.
pub(super) struct Filled {
    file: FreshFile,
    report: FillReport,
    /// The hash of its tree. The UUID of the volume does not depend on the tree.
    identity: [u8; 16],
}

/// The path of the disk image, and the registry of drivers.
pub(super) struct DiskContext<'a> {
    pub(super) out: &'a Path,
    pub(super) registry: &'a Registry,
}

impl<'r> Filling<'r> {
    /// Plans the contents of `partition`, which is `size` bytes long if `size` is given.
    ///
    /// # Errors
    ///
    /// - The contents do not fit.
    /// - The volume cannot be planned.
    /// - Host.
    /// - Layout if the contents need a size.
    pub(super) fn plan(
        partition: &PartitionSettings,
        size: Option<u64>,
        read: Option<&'r Read>,
        place: &DiskContext<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Self, BuildFailure> {
        let needs_size = |what: &str| BuildFailure::Layout { why: format!("{what} requires a size") };
        match (&partition.content, read) {
            (PartitionContent::Volume { settings, .. }, Some(read)) => {
                let settings = BuildSettings { size, ..(**settings).clone() };
                let (plan, came) = volume::plan(read, &settings, place.registry)?;
                Ok(Self::Volume(plan, came))
            }
            (PartitionContent::Filled { settings, maker, .. }, Some(read)) => {
                let settings = BuildSettings { size, ..(**settings).clone() };
                Ok(Self::Filled(Box::new(Filled::make(read, (&settings, maker), place, observer)?)))
            }
            (
                PartitionContent::Empty | PartitionContent::Volume { .. } | PartitionContent::Filled { .. },
                _,
            ) => Ok(Self::Empty { len: size.ok_or_else(|| needs_size("an empty partition"))? }),
            (PartitionContent::Swap { label, .. }, _) => {
                let len = size.ok_or_else(|| needs_size("a swap area"))?;
                if label.len() > SWAP_LABEL {
                    let why = format!("the label of the swap area has more than {SWAP_LABEL} bytes");
                    return Err(BuildFailure::Layout { why });
                }
                match len / PAGE {
                    pages if pages < MIN_PAGES => {
                        Err(BuildFailure::TooSmall { size: len, needed: MIN_PAGES * PAGE })
                    }
                    _ => Ok(Self::Swap { len }),
                }
            }
            (PartitionContent::Verity { .. }, _) => {
                Ok(Self::Verity { len: size.ok_or_else(|| needs_size("a hash tree"))? })
            }
            (PartitionContent::Raw(path), _) => Self::raw(path, size),
        }
    }

    fn raw(path: &Path, size: Option<u64>) -> Result<Self, BuildFailure> {
        let (file, meta) = open_at_once(path)?;
        let len = meta.len();
        match size {
            _ if !meta.is_file() => {
                Err(BuildFailure::Layout { why: format!("'{}' is not a regular file", path.display()) })
            }
            Some(size) if size < len => Err(BuildFailure::TooSmall { size, needed: len }),
            _ => Ok(Self::Raw { path: path.into(), file, len }),
        }
    }

    /// Returns the number of bytes that the contents need.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Empty { len } | Self::Raw { len, .. } | Self::Swap { len } | Self::Verity { len } => *len,
            Self::Volume(plan, _) => plan.device_len(),
            Self::Filled(filled) => filled.file.device().len(),
        }
    }

    /// Returns the bytes that identities are derived from. For a volume, they depend on its tree: its UUID or
    /// serial number, if these depend on the tree.
    pub(super) fn identity(&self) -> Vec<u8> {
        match self {
            Self::Volume(plan, _) => {
                let made = plan.formatted();
                format!("{} {:?} {:?}", made.fs_type, made.uuid, made.serial).into_bytes()
            }
            Self::Filled(filled) => filled.identity.to_vec(),
            other => other.len().to_le_bytes().to_vec(),
        }
    }

    /// Writes contents that are not a volume.
    ///
    /// # Errors
    ///
    /// - Host.
    /// - Errors of writing the image.
    /// - Changed if the length of the file changed.
    pub(super) fn write_plain(
        &self,
        content: &PartitionContent,
        (fresh, range): (&FreshFile, &Range<u64>),
        guid: Guid,
    ) -> Result<(), BuildFailure> {
        match (self, content) {
            (Self::Raw { path, file, len }, _) => copy(path, file, *len, fresh, range.start),
            (Self::Swap { .. }, PartitionContent::Swap { label, uuid }) => {
                let uuid = uuid.unwrap_or(*guid.as_bytes());
                let header = swap_header(range.end - range.start, label, uuid);
                Ok(fresh.device().write_at(range.start, &header).map_err(FormatError::from)?)
            }
            _ => Ok(()),
        }
    }
}

impl Filled {
    fn make(
        read: &Read,
        (settings, maker): (&BuildSettings, &EmptyMaker),
        place: &DiskContext<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Self, BuildFailure> {
        let mut make = |file: BorrowedFd<'_>| (maker.make)(file);
        let (file, report) =
            fill::filled(place.out, read, (settings, maker.least), place.registry, &mut make, observer)?;
        Ok(Self { file, report, identity: Seed::of(&read.tree, settings).uuid() })
    }

    /// Copies the bytes of the finished volume to the disk from byte `start` on, and closes its file. Fails
    /// with `Host`, and with the errors of the image.
    pub(super) fn lay(self, fresh: &FreshFile, start: u64) -> Result<FillReport, BuildFailure> {
        let file = SourceFile::of(self.file.share()?);
        let mut buffer = vec![0; CHUNK];
        for run in file.runs() {
            let Run::Data(range) = run? else { continue };
            for at in range.clone().step_by(CHUNK) {
                let len = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
                file.device().read_at(at, &mut buffer[..len]).map_err(FormatError::from)?;
                put(fresh, start + at, &buffer[..len])?;
            }
        }
        Ok(self.report)
    }
}

/// Writes bytes of the disk, which contains zeros. Zeros stay holes.
fn put(fresh: &FreshFile, at: u64, bytes: &[u8]) -> Result<(), BuildFailure> {
    if bytes.iter().any(|&byte| byte != 0) {
        fresh.device().write_at(at, bytes).map_err(FormatError::from)?;
    }
    Ok(())
}

/// Copies a file.
pub(super) fn copy(
    path: &Path,
    mut file: &File,
    len: u64,
    fresh: &FreshFile,
    start: u64,
) -> Result<(), BuildFailure> {
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.map_err(|error| HostError::of_io("read", path, &error))?,
        };
        let end = done + read as u64;
        if read == 0 && end == len {
            return Ok(());
        }
        if read == 0 || end > len {
            return Err(HostError::Changed { path: path.into() }.into());
        }
        put(fresh, start + done, &buffer[..read])?;
        done = end;
    }
}

/// Returns the first page of a swap area: `union swap_header` of Linux `include/linux/swap.h`. The format
/// uses the byte order of the machine; this code writes little-endian numbers.
fn swap_header(len: u64, label: &[u8], uuid: [u8; 16]) -> Vec<u8> {
    const MAGIC: &[u8; 10] = b"SWAPSPACE2";
    let mut page = vec![0; PAGE as usize];
    let last = u32::try_from((len / PAGE).saturating_sub(1)).unwrap_or(u32::MAX);
    page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[1036..1052].copy_from_slice(&uuid);
    page[1052..1052 + label.len()].copy_from_slice(label);
    let end = page.len();
    page[end - MAGIC.len()..].copy_from_slice(MAGIC);
    page
}
