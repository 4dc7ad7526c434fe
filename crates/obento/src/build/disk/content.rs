//! What is in a partition: its length, its identity and its bytes.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use obento_block::BlockDevice as _;
use obento_driver::{BuildPlan, FormatError};
use obento_host::HostError;
use obento_host::build::FreshFile;

use super::options::{PartitionContent, PartitionSettings};
use crate::build::source::Read;
use crate::build::{BuildFailure, volume};
use crate::partition::{ALIGNMENT, Guid};
use crate::{BuildSettings, Registry};

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;
/// Bytes of a page of a swap area. It does not say how large they are: this is what machines with pages of 4 KiB take.
const PAGE: u64 = 4096;
/// Fewer are of no use: `MIN_GOODPAGES` of mkswap(8).
const MIN_PAGES: u64 = 10;
/// Bytes of a swap area's label: `sws_volume` of `union swap_header`.
const SWAP_LABEL: usize = 16;

/// As many bytes as a partition has for `len`.
pub(super) fn rounded(len: u64) -> u64 {
    len.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// As many bytes as a partition can have of `len`.
pub(super) fn rounded_down(len: u64) -> u64 {
    len - len % ALIGNMENT
}

/// What comes into a partition.
pub(super) enum Filling<'r> {
    /// Zeros.
    Empty { len: u64 },
    /// The bytes of a file.
    Raw { path: PathBuf, file: File, len: u64 },
    /// An area to swap to.
    Swap { len: u64 },
    /// A file system.
    Volume(Box<dyn BuildPlan + 'r>),
}

impl<'r> Filling<'r> {
    /// What `partition`, which is `size` bytes long if that is given, is filled with. Errors: it does not fit; the volume cannot
    /// be; Host; Layout for what needs a size.
    pub(super) fn plan(
        partition: &PartitionSettings,
        size: Option<u64>,
        read: Option<&'r Read>,
        registry: &Registry,
    ) -> Result<Self, BuildFailure> {
        let needs_size = |what: &str| BuildFailure::Layout { why: format!("{what} needs a size") };
        match (&partition.content, read) {
            (PartitionContent::Volume { settings, .. }, Some(read)) => {
                let settings = BuildSettings { size, ..(**settings).clone() };
                Ok(Self::Volume(volume::plan(read, &settings, registry)?))
            }
            (PartitionContent::Empty | PartitionContent::Volume { .. }, _) => {
                Ok(Self::Empty { len: size.ok_or_else(|| needs_size("an empty partition"))? })
            }
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
            (PartitionContent::Raw(path), _) => Self::raw(path, size),
        }
    }

    fn raw(path: &Path, size: Option<u64>) -> Result<Self, BuildFailure> {
        let file = File::open(path).map_err(|error| HostError::of_io("open", path, &error))?;
        let meta = file.metadata().map_err(|error| HostError::of_io("examine", path, &error))?;
        let len = meta.len();
        match size {
            _ if !meta.is_file() => {
                Err(BuildFailure::Layout { why: format!("{} is no regular file", path.display()) })
            }
            Some(size) if size < len => Err(BuildFailure::TooSmall { size, needed: len }),
            _ => Ok(Self::Raw { path: path.into(), file, len }),
        }
    }

    /// How many bytes it needs.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Empty { len } | Self::Raw { len, .. } | Self::Swap { len } => *len,
            Self::Volume(plan) => plan.device_len(),
        }
    }

    /// What identities follow from: of a volume its UUID or serial number, which follow from its tree.
    pub(super) fn identity(&self) -> Vec<u8> {
        match self {
            Self::Volume(plan) => {
                let made = plan.formatted();
                format!("{} {:?} {:?}", made.fs_type, made.uuid, made.serial).into_bytes()
            }
            other => other.len().to_le_bytes().to_vec(),
        }
    }

    /// Writes what is no volume. Errors: Host; those of the image; Changed if the file is not as long as it was.
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

/// Copies a file; zeros stay holes.
fn copy(path: &Path, mut file: &File, len: u64, fresh: &FreshFile, start: u64) -> Result<(), BuildFailure> {
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
        if buffer[..read].iter().any(|&byte| byte != 0) {
            fresh.device().write_at(start + done, &buffer[..read]).map_err(FormatError::from)?;
        }
        done = end;
    }
}

/// The first page of a swap area: `union swap_header` of Linux `include/linux/swap.h`. Its numbers have the byte order of the
/// machine; these are little-endian.
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
