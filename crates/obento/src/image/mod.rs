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

mod builder;
mod choose;
mod claim;
mod error;
mod file;
mod layer;
mod opened;
mod options;
mod refused;
mod signature;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::Error;
use obento_block::{BlockDevice, MemDevice, Slice};
use obento_driver::{Access, CheckOptions};
use obento_host::FileId;
use obento_host::compressed::{Compression, Incomplete, ReservedFile, decode_start, decompress};
use obento_host::container;
use obento_host::io::OpenedImage;
use obento_host::lock::{LockNotice, Purpose};
use obento_host::qcow2::change::{Snapshot, open_for_change, open_snapshot, snapshots};
use obento_host::qcow2::{Qcow2Device, References};

use crate::address::PartSelector;
pub use crate::format_target::FormatTarget;
use crate::partition::{Partition, Table, TableNotice};
use crate::{Registry, Volume};
pub use builder::{ImageBuilder, ImageCreationError};
pub(crate) use error::host_error;
pub use error::{Candidate, FallbackOutcome, OpenError, PartitionChoice, PartitionContents};
pub use file::ImageFile;
use file::Parts;
use layer::Layer;
use opened::OpenVolumes;
pub use options::{DiskChecksums, JournalUse, Locking, Options, Recording, Writing};
pub use signature::{DataDescription, DataForm};

/// The most containers that are unpacked inside each other. A compressed qcow2 image has two.
const MAX_LAYERS: usize = 4;

/// A notice for the user about an image that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageNotice {
    /// The compressed stream is truncated or damaged: the rest of the image is missing, and bytes of a
    /// damaged stream may be wrong. Or: the stream is complete, and unrecognised data follows.
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
            Self::Incomplete { incomplete, .. } => incomplete.is_damage(),
            Self::WrongChecksum { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for ImageNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { layer, incomplete: Incomplete::Truncated { decoded } } => {
                write!(f, "the {layer} data ends too early; only the first {decoded} bytes of the image are present")
            }
            Self::Incomplete { layer, incomplete: Incomplete::Damaged { decoded, reason } } => {
                write!(
                    f,
                    "the {layer} data is damaged ({reason}); {decoded} bytes of the image are present, and some may be wrong"
                )
            }
            Self::Incomplete { incomplete: Incomplete::Trailing, .. } => {
                f.write_str("unknown data follows the compressed data")
            }
            Self::WrongChecksum { layer } => {
                write!(f, "the checksum of the {layer} data is wrong; some bytes of the image may be wrong")
            }
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
    host_files: Vec<FileId>,
    /// The qcow2 file, if there is a layer of this format.
    qcow2: Option<Arc<dyn BlockDevice>>,
    /// The file and the snapshot in it that is open.
    snapshot: Option<(PathBuf, String)>,
    opened: Arc<OpenVolumes>,
}

impl Image {
    /// Opens the file or device at `path` for reading, unpacks it and reads its partition table. [`Image::builder`]
    /// opens an image for change or with other options.
    ///
    /// ```no_run
    /// use obento::Image;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let volume = Image::open("disk.img.xz")?.volume(None)?;
    /// println!("{}", volume.read_to_string("/etc/fstab")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - The errors of [`ImageFile::open`].
    /// - `Empty`: the file is empty.
    /// - `Nested`: the image has too many layers of compression and disk image formats.
    /// - `Packed`: the image is opened for change, and obento only reads its format.
    /// - `NotQcow2`, `NoSnapshot`: `path` names a snapshot that does not exist.
    /// - `Unreadable`: the image cannot be read.
    /// - `Host`: a layer is damaged, or the host has no space for the unpacked image.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns a builder that opens or creates an image with other drivers and options.
    pub fn builder() -> ImageBuilder {
        ImageBuilder::default()
    }

    /// Creates an image of `size` bytes with an empty file system of the type `fs_type`, and opens it for change.
    ///
    /// The volume fills the image, without a partition table. [`FormatTarget`] creates a file
    /// system with a label, other features, or on an existing device.
    ///
    /// ```
    /// use obento::Image;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.img");
    /// let image = Image::create(&path, 16 << 20, "ext4")?;
    /// let volume = image.volume(None)?;
    /// volume.write("/motd", "Welcome\n")?;
    /// volume.close()?;
    ///
    /// assert!(Image::create(&path, 16 << 20, "ext4").is_err(), "an existing file is never overwritten");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `NoFormat`: no driver creates file systems of this type.
    /// - `Open`: the file exists, or cannot be created or opened.
    /// - `Format`: the file system cannot be created, for example because `size` is too small. The file is removed.
    pub fn create(path: impl AsRef<Path>, size: u64, fs_type: &str) -> Result<Self, ImageCreationError> {
        Self::builder().create(path, size, fs_type)
    }

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
        let journal = open_journal(options)?;
        Self::of_parts(path, device, registry, options, Parts { journal, ..Parts::default() })
    }

    fn of_parts(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        registry: &Registry,
        options: &Options,
        Parts { journal, snapshot, rooms, mut new_disk }: Parts,
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
            host_files: journal.iter().map(|journal| journal.id).collect(),
            journal: journal.map(|journal| journal.device),
            qcow2: None,
            snapshot,
            opened: Arc::default(),
        };
        let len = image.device.len();
        let mut rooms = rooms.into_iter();
        while image.unpack(len, &mut rooms, &mut new_disk)? {}
        if image.snapshot.is_some() && image.qcow2.is_none() {
            return Err(OpenError::NotQcow2 { image: path.into() });
        }
        image.find_table();
        Ok(image)
    }

    /// Returns the path that was used to open the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the files of the host that the image is read from: the image, its backing files and its
    /// journal.
    pub fn host_files(&self) -> &[FileId] {
        &self.host_files
    }

    /// Returns the layers of the image, the outermost layer first. The layers are `bzip2`, `gzip`, `lzma`, `xz`,
    /// `zstd`, `qcow2`, `vhd`, `vhdx`, `vmdk`, `vdi` and `android-sparse`.
    pub fn layers(&self) -> &[&'static str] {
        &self.layers
    }

    /// Returns the snapshots in a qcow2 image, in the order of its table. Other images have none.
    ///
    /// # Errors
    ///
    /// `Host`: the table of snapshots is damaged or cannot be read.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, OpenError> {
        let Some(file) = &self.qcow2 else { return Ok(Vec::new()) };
        Ok(snapshots(&**file, &self.path)?)
    }

    /// Returns the disk: the device inside all layers.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
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

    /// Returns the contents of each partition, or of the device if it has no partition table.
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
        choose::contents(self)
    }

    /// Opens the file system that `part` selects, or the only file system if `part` is `None`. The volume is
    /// open for change if the image was opened for change. If the volume is already open for change, returns
    /// that volume. If the image was opened for change and the volume is already open for reading, fails with
    /// `InUse`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] lists the errors. The message describes the data that was found instead of a file
    /// system.
    pub fn volume(&self, part: Option<&PartSelector>) -> Result<Volume, OpenError> {
        Ok(choose::volume(self, part, self.options.access)?.stored_in(&self.host_files))
    }

    /// Opens a file system like [`volume`](Self::volume), but only for reading, even if the image was opened for
    /// change. If the volume is already open for change, returns that volume.
    pub fn volume_to_read(&self, part: Option<&PartSelector>) -> Result<Volume, OpenError> {
        Ok(choose::volume(self, part, Access::ReadOnly)?.stored_in(&self.host_files))
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
        choose::part_to_overwrite(self, part)
    }

    /// Returns the bytes of the file system that `part` names, or of the only one, even if damaged, and its
    /// driver.
    pub(crate) fn volume_to_check(
        &self,
        part: Option<&PartSelector>,
        options: &CheckOptions,
    ) -> Result<choose::Damaged, OpenError> {
        choose::damaged(self, part, options)
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
        choose::volume_bytes(self, part)
    }

    /// Returns the error that [`volume`](Self::volume) without a part returns, if several types claim the
    /// image.
    pub fn ambiguity(&self) -> Option<OpenError> {
        choose::ambiguity(self)
    }

    /// Returns the registry that the image was opened with.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the device of the external journal, if the options contain a journal.
    pub fn journal(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.journal.as_ref()
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

    /// Decodes one layer of an image whose file has `file_len` bytes. Unpacks a compressed layer into the
    /// next of `rooms`, or raw data in the outermost layer into `new_disk`. Returns whether a layer was found.
    fn unpack(
        &mut self,
        file_len: u64,
        rooms: &mut dyn Iterator<Item = ReservedFile>,
        new_disk: &mut Option<ReservedFile>,
    ) -> Result<bool, OpenError> {
        let unreadable = |error| OpenError::Unreadable { image: self.path.clone(), error };
        let Some(layer) = Layer::find(&*self.device).map_err(unreadable)? else { return Ok(false) };
        let packed = || OpenError::Packed { image: self.path.clone(), layer: layer.name() };
        let is_change = self.options.access == Access::ReadWrite;
        if is_change && !layer.may_be_changed() {
            return Err(packed());
        }
        if self.layers.len() == MAX_LAYERS {
            return Err(OpenError::Nested { image: self.path.clone(), limit: MAX_LAYERS });
        }
        match layer {
            Layer::Compressed(compression) => {
                let new_disk =
                    new_disk.take().filter(|_| self.layers.is_empty() && self.holds_raw_data(compression));
                self.decompress(compression, file_len, new_disk.or_else(|| rooms.next()))?;
            }
            Layer::Container(format) => {
                let disk = container::open(format, self.device.clone(), &self.path)?;
                if is_change && disk.is_read_only() {
                    return Err(packed());
                }
                let verifies = self.options.disk_checksums == DiskChecksums::Verify;
                if verifies && container::has_wrong_checksum(format, &*self.device) {
                    self.notices.push(ImageNotice::WrongChecksum { layer: format.name() });
                }
                self.device = disk;
                self.layers.push(format.name());
            }
            Layer::Qcow2 => {
                let references =
                    if self.options.allow_backing { References::Open } else { References::Refuse };
                let file = self.device.clone();
                if let (Some((image, name)), None) = (&self.snapshot, &self.qcow2) {
                    let found = open_snapshot(&self.device, &self.path, references, name)?;
                    let (path, name) = (self.path.clone(), name.clone());
                    let none = || OpenError::NoSnapshot { image: path, file: image.clone(), name };
                    let qcow2 = found.ok_or_else(none)?;
                    self.host_files.extend(qcow2.referenced);
                    self.device = qcow2.device;
                } else if is_change {
                    let qcow2 = open_for_change(&self.device, &self.path, references)?;
                    self.host_files.extend(qcow2.referenced);
                    self.device = qcow2.device;
                } else {
                    let qcow2 = Qcow2Device::open(self.device.clone(), &self.path, references)?;
                    self.host_files.extend(qcow2.referenced());
                    self.device = Arc::new(qcow2);
                }
                self.qcow2.get_or_insert(file);
                self.layers.push("qcow2");
            }
        }
        if self.device.is_empty() {
            return Err(OpenError::Empty { image: self.path.clone() });
        }
        Ok(true)
    }

    /// Returns whether the first bytes of the compressed data have no signature of another layer.
    fn holds_raw_data(&self, compression: Compression) -> bool {
        let mut start = vec![0; container::SECTOR];
        let len = decode_start(&*self.device, compression, &self.options.unpack, &mut start);
        start.truncate(len);
        !start.is_empty() && Layer::find(&MemDevice::read_only(start)) == Ok(None)
    }

    fn decompress(
        &mut self,
        compression: Compression,
        file_len: u64,
        room: Option<ReservedFile>,
    ) -> Result<(), OpenError> {
        let observer = self.options.on_unpacking.clone();
        let mut report = |progress| observer.iter().for_each(|observer| observer(progress));
        let options = obento_host::compressed::Options {
            limits: self.options.unpack,
            file_len: Some(file_len),
            room,
            progress: Some(&mut report),
        };
        let unpacked = decompress(&*self.device, &self.path, compression, options)?;
        let layer = compression.name();
        self.notices
            .extend(unpacked.incomplete.map(|incomplete| ImageNotice::Incomplete { layer, incomplete }));
        self.device = Arc::new(unpacked.device);
        self.layers.push(layer);
        Ok(())
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

fn open_file(path: &Path, options: &Options) -> Result<OpenedImage, OpenError> {
    let lock = match (options.access, options.locking) {
        (Access::ReadOnly, Locking::Skip) => None,
        (Access::ReadOnly, Locking::Take) => Some(Purpose::Read),
        (Access::ReadWrite, _) => Some(Purpose::Change),
    };
    obento_host::io::open(path, lock, options.io).map_err(|error| host_error(path, options.access, error))
}

/// Opens the external journal in `options`.
fn open_journal(options: &Options) -> Result<Option<OpenedImage>, OpenError> {
    let opened = options.journal.as_deref().map(|path| open_file(path, options)).transpose();
    opened.map_err(|error| match error {
        OpenError::Missing { image } => OpenError::MissingJournal { journal: image },
        error => error,
    })
}
