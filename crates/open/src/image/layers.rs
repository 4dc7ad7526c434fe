//! The layers of an image: compression and disk image formats. Their files are opened first and decoded later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};
use obento_driver::Access;
use obento_host::build::AccessLimit;
use obento_host::compressed::{Compression, ReservedFile, decode_start, decompress};
use obento_host::io::OpenedImage;
use obento_host::lock::Purpose;
use obento_host::qcow2::change::{Snapshot, open_for_change, open_snapshot, snapshots};
use obento_host::qcow2::{Qcow2Device, ReferencedFile, References};
use obento_host::{FileId, HostError, container};

use super::layer::Layer;
use super::{DiskChecksums, Image, ImageNotice, Locking, OpenError, Options};

/// Maximum number of nested layers. A compressed qcow2 image has two layers.
const MAX_LAYERS: usize = 4;

/// The open files that decoding needs in addition to the image.
#[derive(Default)]
pub(super) struct Parts {
    pub journal: Option<OpenedImage>,
    /// The file and the snapshot in it that was requested.
    pub snapshot: Option<(PathBuf, String)>,
    /// Temporary files for the layers of compression.
    pub rooms: Vec<ReservedFile>,
    /// The file that becomes a new disk if the outermost layer is compressed raw data.
    pub new_disk: Option<ReservedFile>,
}

impl Parts {
    /// Opens the files for an image on a device that the caller supplies.
    pub fn of_device(options: &Options) -> Result<Self, OpenError> {
        Ok(Self { journal: open_journal(options)?, ..Self::default() })
    }
}

/// Images in files of the host.
impl Image {
    /// Returns the files of the host that the image is read from: the image, its backing files and its
    /// journal.
    pub fn host_files(&self) -> &[FileId] {
        &self.host_files
    }

    /// Returns the limit that the image and its backing and data files set to the permissions of a copy of its bytes.
    /// The limit is that of the open files, even if their paths refer to other files later.
    pub fn access_limit(&self) -> AccessLimit {
        self.access_limit
    }

    fn add_references(&mut self, files: &[ReferencedFile]) {
        for file in files {
            self.host_files.push(file.id);
            self.access_limit = self.access_limit.and(file.limit);
        }
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

    /// Returns whether the image may be opened for change: it is not a snapshot, and obento writes the formats of all
    /// layers. Even so, some variants of a format are read-only.
    pub fn can_be_changed(&self) -> bool {
        self.snapshot.is_none() && self.layers.iter().all(|layer| ["qcow2", "vhd"].contains(layer))
    }

    /// Decodes all layers.
    pub(super) fn decode_layers(
        &mut self,
        Parts { journal, snapshot, rooms, mut new_disk }: Parts,
    ) -> Result<(), OpenError> {
        self.host_files.extend(journal.iter().map(|journal| journal.id));
        self.journal = journal.map(|journal| journal.device);
        self.snapshot = snapshot;
        let len = self.device.len();
        let mut rooms = rooms.into_iter();
        while self.unpack(len, &mut rooms, &mut new_disk)? {}
        match self.snapshot.is_some() && self.qcow2.is_none() {
            true => Err(OpenError::NotQcow2 { image: self.path.clone() }),
            false => Ok(()),
        }
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
                    self.add_references(&qcow2.referenced);
                    self.device = qcow2.device;
                } else if is_change {
                    let qcow2 = open_for_change(&self.device, &self.path, references)?;
                    self.add_references(&qcow2.referenced);
                    self.device = qcow2.device;
                } else {
                    let qcow2 = Qcow2Device::open(self.device.clone(), &self.path, references)?;
                    self.add_references(qcow2.referenced());
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
}

/// Creates temporary files for layers that may be compressed. A container may hold a compressed image, too.
pub(super) fn rooms(device: &dyn BlockDevice, options: &Options) -> Result<Vec<ReservedFile>, OpenError> {
    if options.access == Access::ReadWrite {
        return Ok(Vec::new());
    }
    let rooms = (0..MAX_LAYERS).map(|_| ReservedFile::new());
    match Layer::find(device) {
        Ok(Some(Layer::Compressed(_))) => Ok(rooms.collect::<Result<_, _>>()?),
        // Most disk images need no temporary file, so a failure to create one is not an error yet.
        Ok(Some(Layer::Qcow2 | Layer::Container(_))) => Ok(rooms.filter_map(Result::ok).collect()),
        Ok(None) | Err(_) => Ok(Vec::new()),
    }
}

pub(super) fn open_file(path: &Path, options: &Options) -> Result<OpenedImage, OpenError> {
    let lock = match (options.access, options.locking) {
        (Access::ReadOnly, Locking::Skip) => None,
        (Access::ReadOnly, Locking::Take) => Some(Purpose::Read),
        (Access::ReadWrite, _) => Some(Purpose::Change),
    };
    obento_host::io::open(path, lock, options.io).map_err(|error| host_error(path, options.access, error))
}

/// Opens the external journal in `options`.
pub(super) fn open_journal(options: &Options) -> Result<Option<OpenedImage>, OpenError> {
    let opened = options.journal.as_deref().map(|path| open_file(path, options)).transpose();
    opened.map_err(|error| match error {
        OpenError::Missing { image } => OpenError::MissingJournal { journal: image },
        error => error,
    })
}

/// Returns the error of opening the image at `path` on the host for `access`.
pub(crate) fn host_error(path: &Path, access: Access, error: HostError) -> OpenError {
    let image = path.to_owned();
    match error.errno().map(|errno| errno.raw_os_error()) {
        Some(ENOENT) => OpenError::Missing { image },
        Some(EACCES | EPERM) if access == Access::ReadWrite => OpenError::NotChangeable { image },
        Some(EACCES | EPERM) => OpenError::NotPermitted { image },
        Some(EROFS) => OpenError::ReadOnlyHost { image },
        _ => OpenError::Host(error),
    }
}

// include/uapi/asm-generic/errno-base.h
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
