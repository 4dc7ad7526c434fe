//! An open image: its layers of compression and disk image formats, its partitions and its file systems.
//!
//! From the outside to the inside, an image consists of:
//!
//! 1. up to `MAX_LAYERS` layers of compression and disk image formats;
//! 2. a partition table, or a file system that fills the device;
//! 3. the file systems of the partitions.
//!
//! A whole device and a partition can both have the signature of a file system, and one device can have several
//! signatures. The rules of blkid(8), mount(8) and the kernel decide which signature counts. `claim` has the table
//! for signatures on the same bytes, and `choose` the table for an image and its partitions. If the rules disagree,
//! the image is ambiguous. An ambiguous image is opened only if the caller selects a part with `@` or a type.

#[cfg(feature = "host")]
mod builder;
mod choose;
mod claim;
mod error;
#[cfg(feature = "host")]
mod file;
#[cfg(feature = "host")]
mod layer;
#[cfg(feature = "host")]
mod layers;
mod opened;
mod options;
#[cfg(not(feature = "host"))]
mod plain;
mod refused;
mod signature;
#[cfg(feature = "host")]
mod start;
#[cfg(all(test, feature = "host"))]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::Error;
#[cfg(feature = "host")]
use obento_base::Quantity;
use obento_block::{BlockDevice, Slice};
use obento_driver::{Access, CheckOptions};
#[cfg(feature = "host")]
use obento_host::{FileId, build::AccessLimit, compressed::Incomplete, lock::LockNotice};

use crate::address::PartSelector;
#[cfg(feature = "host")]
pub use crate::format_target::FormatTarget;
use crate::partition::{Partition, Table, TableNotice};
use crate::{Registry, Volume};
#[cfg(feature = "host")]
pub use builder::{ImageBuilder, ImageCreationError};
use claim::{Verdict, Verdicts};
pub use error::{Candidate, FallbackOutcome, OpenError, PartitionChoice, PartitionContents};
#[cfg(feature = "host")]
pub use file::ImageFile;
#[cfg(feature = "host")]
use layers::Parts;
#[cfg(feature = "host")]
pub(crate) use layers::host_error;
use opened::OpenVolumes;
pub use options::{DiskChecksums, JournalUse, Locking, Options, Recording, Writing};
#[cfg(not(feature = "host"))]
use plain::NoParts as Parts;
pub use signature::{DataDescription, DataForm};

/// A notice for the user about an image that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageNotice {
    /// The compressed stream is truncated or damaged: the rest of the image is missing, and bytes of a
    /// damaged stream may be wrong. Or: the stream is complete, and unrecognised data follows.
    #[cfg(feature = "host")]
    Incomplete {
        /// The layer.
        layer: &'static str,
        /// The damage, or the data that follows.
        incomplete: Incomplete,
    },
    /// A checksum of the whole disk is wrong, so that bytes of the image may be wrong. Found only with
    /// [`DiskChecksums::Verify`].
    WrongChecksum {
        /// The layer.
        layer: &'static str,
    },
    /// The image is not protected against changes by other processes.
    #[cfg(feature = "host")]
    Lock(LockNotice),
    /// The partition table has errors.
    Table(TableNotice),
    /// The partition table cannot be read.
    NoTable(Error),
    /// The GPT is ignored, because the MBR is not a protective MBR.
    IgnoredGpt,
}

impl ImageNotice {
    /// Returns whether bytes of the image are missing or may be wrong. A program that reads files of the image then
    /// reports an error.
    pub fn is_damage(&self) -> bool {
        match self {
            #[cfg(feature = "host")]
            Self::Incomplete { incomplete, .. } => incomplete.is_damage(),
            Self::WrongChecksum { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for ImageNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "host")]
            Self::Incomplete { layer, incomplete: Incomplete::Truncated { decoded } } => {
                let first = Quantity::new(*decoded, "byte");
                write!(f, "the {layer} data ends too early; the image is cut after {first}")
            }
            #[cfg(feature = "host")]
            Self::Incomplete { layer, incomplete: Incomplete::Damaged { decoded, reason } } => {
                write!(
                    f,
                    "the {layer} data is damaged ({reason}); {decoded} bytes of the image are present, and some may be wrong"
                )
            }
            #[cfg(feature = "host")]
            Self::Incomplete { incomplete: Incomplete::Trailing, .. } => {
                f.write_str("unknown data follows the compressed data")
            }
            Self::WrongChecksum { layer } => {
                write!(f, "the checksum of the {layer} data is wrong; some bytes of the image may be wrong")
            }
            #[cfg(feature = "host")]
            Self::Lock(notice) => notice.fmt(f),
            Self::Table(notice) => notice.fmt(f),
            Self::NoTable(error) => write!(f, "the partition table cannot be used: {error}"),
            Self::IgnoredGpt => f.write_str(
                "a GPT without a protective MBR is ignored, as in Linux; to open a volume of this disk, name its first byte: IMAGE@+OFFSET",
            ),
        }
    }
}

/// An open image.
#[derive(Clone)]
pub struct Image {
    path: PathBuf,
    layers: Vec<&'static str>,
    device: Arc<dyn BlockDevice>,
    table: Option<Table>,
    notices: Vec<ImageNotice>,
    registry: Registry,
    options: Options,
    journal: Option<Arc<dyn BlockDevice>>,
    #[cfg(feature = "host")]
    host_files: Vec<FileId>,
    #[cfg(feature = "host")]
    access_limit: AccessLimit,
    /// The qcow2 file, if there is a layer of this format.
    #[cfg(feature = "host")]
    qcow2: Option<Arc<dyn BlockDevice>>,
    /// The file and the snapshot in it that is open.
    #[cfg(feature = "host")]
    snapshot: Option<(PathBuf, String)>,
    opened: Arc<OpenVolumes>,
    verdicts: Arc<Verdicts>,
}

impl Image {
    /// Opens the image on `device`. `path` appears in messages. Files that a qcow2 image refers to are found relative
    /// to `path`.
    ///
    /// # Errors
    ///
    /// - `MissingJournal`, `NotPermitted`, `NotChangeable`, `ReadOnlyHost` or `Host`: the external journal in
    ///   `options` cannot be opened.
    /// - `UnknownType`: the registry has no driver of the type that the options select.
    /// - The errors of [`Image::open`] from `Empty` on.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{Image, Options, Registry};
    /// use obento::block::MemDevice;
    /// use obento::driver::FormatOptions;
    /// use obento::env::{SystemClock, SystemRandom};
    ///
    /// let (registry, device) = (Registry::default(), Arc::new(MemDevice::new(vec![0; 16 << 20])));
    /// let ext4 = registry.find("ext4").and_then(|driver| driver.format()).unwrap();
    /// ext4.format(&*device, &FormatOptions::new("ext4", Arc::new(SystemClock), Arc::new(SystemRandom)))?;
    ///
    /// let image = Image::on_device("memory".as_ref(), device, &registry, &Options::default().for_change())?;
    /// let volume = image.volume(None)?;
    /// volume.write("/file", "in an ext4 in memory")?;
    /// volume.close()?;
    /// assert_eq!(image.volume(None)?.read("/file")?, b"in an ext4 in memory");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_device(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        registry: &Registry,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let image = Self::of_parts(path, device, registry, options, Parts::of_device(options)?)?;
        image.forget_contents();
        Ok(image)
    }

    fn of_parts(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        registry: &Registry,
        options: &Options,
        parts: Parts,
    ) -> Result<Self, OpenError> {
        check_type(registry, options)?;
        if device.is_empty() {
            return Err(OpenError::Empty { image: path.into() });
        }
        let mut image = Self {
            path: path.into(),
            layers: Vec::new(),
            device,
            table: None,
            notices: Vec::new(),
            registry: registry.clone(),
            options: options.clone(),
            journal: None,
            #[cfg(feature = "host")]
            host_files: Vec::new(),
            #[cfg(feature = "host")]
            access_limit: AccessLimit::NONE,
            #[cfg(feature = "host")]
            qcow2: None,
            #[cfg(feature = "host")]
            snapshot: None,
            opened: Arc::default(),
            verdicts: Arc::default(),
        };
        image.decode_layers(parts)?;
        image.find_table();
        Ok(image)
    }

    /// Returns the path that was used to open the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the layers of the image, the outermost layer first. The layers are `bzip2`, `gzip`, `lzma`, `xz`,
    /// `zstd`, `qcow2`, `vhd`, `vhdx`, `vmdk`, `vdi` and `android-sparse`.
    pub fn layers(&self) -> &[&'static str] {
        &self.layers
    }

    /// Returns the disk: the device inside all layers.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.forget_contents();
        &self.device
    }

    /// Returns the partition table.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Returns the partitions. The list is empty without a table.
    pub fn partitions(&self) -> &[Partition] {
        self.table.as_ref().map_or(&[], |table| &table.partitions)
    }

    /// Returns the notices for the user. If a notice [is damage](ImageNotice::is_damage), files of the image
    /// may have wrong contents.
    pub fn notices(&self) -> &[ImageNotice] {
        &self.notices
    }

    /// Returns the contents of each partition. The contents of the whole device come first in these cases:
    ///
    /// - A type claims the whole device.
    /// - The image has no partitions.
    /// - A driver recognises the whole device and no partition.
    ///
    /// ```no_run
    /// use obento::Image;
    ///
    /// let image = Image::open("disk.img")?;
    /// for content in image.probe_all() {
    ///     let number = content.partition.map_or(0, |partition| partition.number);
    ///     println!("{number}: {}", content.holds);
    /// }
    /// # Ok::<(), obento::OpenError>(())
    /// ```
    pub fn probe_all(&self) -> Vec<PartitionChoice> {
        choose::contents(&self.for_selection())
    }

    /// Opens the file system that `part` selects, or the only file system if `part` is `None`. The volume is
    /// open for change if the image was opened for change.
    ///
    /// If the volume is already open for change, returns that volume. Fails with `InUse` in these cases:
    ///
    /// - The image was opened for change, and the volume is already open for reading.
    /// - Another open volume contains some of the same bytes, and one of the two volumes is open for change.
    ///
    /// # Errors
    ///
    /// [`OpenError`] lists the errors. The message describes the data that was found instead of a file
    /// system.
    pub fn volume(&self, part: Option<&PartSelector>) -> Result<Volume, OpenError> {
        self.volume_for(part, self.options.access)
    }

    /// Opens a file system like [`volume`](Self::volume), but only for reading, even if the image was opened for
    /// change. If the volume is already open for change, returns that volume.
    pub fn volume_to_read(&self, part: Option<&PartSelector>) -> Result<Volume, OpenError> {
        self.volume_for(part, Access::ReadOnly)
    }

    fn volume_for(&self, part: Option<&PartSelector>, access: Access) -> Result<Volume, OpenError> {
        let volume = choose::volume(self, part, access)?;
        #[cfg(feature = "host")]
        let volume = volume.stored_in(&self.host_files);
        Ok(volume)
    }

    /// Returns the bytes that `part` selects, or all bytes, as a device, and a description of their current
    /// contents. For a caller that overwrites the bytes.
    ///
    /// # Errors
    ///
    /// - `PastTheEnd`: the offset is past the end of the image.
    /// - `NoSuchPart`: no partition matches `part`.
    /// - `AmbiguousPart`: several partitions match `part`.
    /// - `Unreadable`: the image cannot be read.
    pub fn part_to_overwrite(
        &self,
        part: Option<&PartSelector>,
    ) -> Result<(Arc<dyn BlockDevice>, Vec<PartitionChoice>), OpenError> {
        choose::part_to_overwrite(&self.for_selection(), part)
    }

    /// Returns the bytes of the file system that `part` names, or of the only one, even if damaged, and its
    /// driver.
    pub(crate) fn volume_to_check(
        &self,
        part: Option<&PartSelector>,
        options: &CheckOptions,
    ) -> Result<choose::Damaged, OpenError> {
        choose::damaged(&self.for_selection(), part, options)
    }

    /// Returns the bytes of the file system that `part` selects, or of the only file system, and the result of the
    /// driver's probe.
    ///
    /// # Errors
    ///
    /// The errors of [`volume`](Self::volume) that occur before a driver opens the volume.
    pub fn volume_bytes(
        &self,
        part: Option<&PartSelector>,
    ) -> Result<(Arc<dyn BlockDevice>, PartitionChoice), OpenError> {
        choose::volume_bytes(&self.for_selection(), part)
    }

    /// Returns the number of the partition that `part` selects, or of the only partition with a file system, and the
    /// number of free bytes after the partition. Returns `None` if the selected bytes are not a partition.
    pub fn partition_to_grow(&self, part: Option<&PartSelector>) -> Option<(u32, u64)> {
        choose::partition_to_grow(&self.for_selection(), part)
    }

    /// Returns the error that [`volume`](Self::volume) without a part returns, if several types claim the
    /// image.
    pub fn ambiguity(&self) -> Option<OpenError> {
        choose::ambiguity(&self.for_selection())
    }

    /// Returns the registry that the image was opened with.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the device of the external journal, if the options contain a journal.
    pub fn journal(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.journal.as_ref()
    }

    /// Returns the block of the super block that the caller selected.
    pub fn super_block(&self) -> Option<u64> {
        self.options.super_block
    }

    /// Returns whether the image was opened for reading or for change.
    pub fn access(&self) -> Access {
        self.options.access
    }

    /// Returns the bytes of `range` as a device.
    fn bytes(&self, range: &Range<u64>) -> Result<Arc<dyn BlockDevice>, Error> {
        if *range == (0..self.device.len()) {
            return Ok(self.device.clone());
        }
        Ok(Arc::new(Slice::new(self.device.clone(), range.clone())?))
    }

    /// Returns this image for one selection, which examines each range of bytes once. Other selections use the results
    /// only if the image is open for reading: the bytes of an image that is open for change can differ by then. The
    /// first selection uses the contents that were found when the image was opened.
    fn for_selection(&self) -> Self {
        let verdicts = match self.options.access {
            Access::ReadOnly => self.verdicts.clone(),
            Access::ReadWrite => Arc::new(self.verdicts.take()),
        };
        Self { verdicts, ..self.clone() }
    }

    /// Forgets the contents that were found when the image was opened for change, since the caller has the device and
    /// can change them before the first selection.
    fn forget_contents(&self) {
        if self.options.access == Access::ReadWrite {
            self.verdicts.take();
        }
    }

    /// Returns whether the signature of a type is on the whole image, whether or not a driver supports the type.
    pub fn is_claimed(&self) -> bool {
        choose::is_claimed(self)
    }

    /// Returns the contents of `range`. Fails with the errors of the device.
    fn verdict(&self, range: &Range<u64>) -> Result<Verdict, Error> {
        self.verdicts.of(range, || claim::judge(&self.registry, &*self.bytes(range)?))
    }

    fn find_table(&mut self) {
        match Table::read(&*self.device) {
            Ok(table) => self.table = table,
            Err(error) => self.notices.push(ImageNotice::NoTable(error)),
        }
        choose::count_in_large_sectors(self);
        if self.table.is_none()
            && matches!(Table::ignores_gpt(&*self.device), Ok(true))
            && !choose::is_claimed(self)
        {
            self.notices.push(ImageNotice::IgnoredGpt);
        }
        let notices = self.table.iter().flat_map(|table| &table.notices);
        self.notices.extend(notices.copied().map(ImageNotice::Table));
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Image");
        debug.field("path", &self.path).field("layers", &self.layers).field("table", &self.table);
        debug.finish_non_exhaustive()
    }
}

fn check_type(registry: &Registry, options: &Options) -> Result<(), OpenError> {
    match &options.fs_type {
        Some(name) if registry.find(name).is_none() => {
            Err(OpenError::UnknownType { name: name.clone(), known: registry.names().collect() })
        }
        _ => Ok(()),
    }
}
