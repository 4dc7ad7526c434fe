//! The open files of an image, before their bytes are decoded.
//!
//! The bytes of an image are not trusted. A program that drops privileges opens the files first, and decodes them
//! afterwards.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_block::{BlockDevice, Handoff};
use obento_driver::Access;
use obento_host::build::AccessLimit;
use obento_host::compressed::ReservedFile;
use obento_host::io::{BehindDevice, OpenedImage};
use obento_host::{FileId, HostFile};

use super::layers::{Parts, open_file, open_journal, rooms};
use super::start::start_of_packed;
use super::{Image, ImageNotice, OpenError, Options, Writing};
use crate::Registry;
use crate::address::{HostEntry, snapshot_of};

/// An image whose files are open. No contents except the signature of the outermost layer have been read.
pub struct ImageFile {
    path: PathBuf,
    options: Options,
    file: OpenedImage,
    parts: Parts,
}

impl ImageFile {
    /// Opens the file or device at `path` and the external journal in `options`. Creates temporary files if
    /// the image is opened for reading and is compressed or has a disk image format. `disk.qcow2%NAME` is a
    /// snapshot (see [`snapshot_of`]).
    ///
    /// # Errors
    ///
    /// - `ReadOnlySnapshot`: `path` names a snapshot, and `options` request access for change.
    /// - `Missing`: the image does not exist.
    /// - `MissingJournal`: the external journal in `options` does not exist.
    /// - `NotPermitted`: the host does not permit reading the image.
    /// - `NotChangeable`: the host does not permit changing the image.
    /// - `ReadOnlyHost`: the file system of the host is mounted read-only.
    /// - `Host`: another error of the host.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let snapshot = snapshot_of(path, &HostEntry::look_up);
        if snapshot.is_some() && options.access == Access::ReadWrite {
            return Err(OpenError::ReadOnlySnapshot { image: path.into() });
        }
        let file = open_file(snapshot.as_ref().map_or(path, |(file, _)| file), options)?;
        let journal = open_journal(options)?;
        let rooms = rooms(&*file.device, options)?;
        let parts = Parts { journal, snapshot, rooms, new_disk: None };
        Ok(Self { path: path.into(), options: options.clone(), file, parts })
    }

    /// Opens an image that another process passes to this process. `file` is the open file, which keeps its
    /// lock. Until the [`Handoff`] is released, writes are stored in memory, and nothing is written to the
    /// file.
    ///
    /// # Errors
    ///
    /// - `Host`: an error of the host.
    pub fn adopt(file: OwnedFd, path: &Path, options: &Options) -> Result<(Self, Arc<Handoff>), OpenError> {
        let mut file = obento_host::io::adopt(file, path, options.io).map_err(OpenError::Host)?;
        let handoff = Arc::new(Handoff::holding(file.device));
        file.device = handoff.clone();
        let parts = Parts { snapshot: snapshot_of(path, &HostEntry::look_up), ..Parts::default() };
        Ok((Self { path: path.into(), options: options.clone(), file, parts }, handoff))
    }

    /// Prepares the image for another process. Returns the image, and the device that this process
    /// [freezes](Handoff::freeze) when it passes the image on.
    #[must_use]
    pub fn for_handoff(mut self) -> (Self, Arc<Handoff>) {
        let handoff = Arc::new(Handoff::passing(self.file.device));
        self.file.device = handoff.clone();
        (self, handoff)
    }

    /// Returns a descriptor of the open file, for another process. Fails if the image is not a file of the host, or
    /// if this process cannot open another file.
    pub fn file_of(device: &dyn BlockDevice) -> io::Result<OwnedFd> {
        let backing = device.backing(0..1).ok_or(io::ErrorKind::Unsupported)?;
        let file = HostFile::of(&backing).ok_or(io::ErrorKind::Unsupported)?;
        file.as_fd().try_clone_to_owned()
    }

    /// Returns the files of the host that the image is read from.
    pub fn host_files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.parts.journal.iter().map(|journal| journal.id).chain([self.file.id])
    }

    /// Returns the limit that the open file sets to the permissions of a copy of its bytes. Backing files are not
    /// included, since they are not open.
    pub fn access_limit(&self) -> AccessLimit {
        self.file.limit
    }

    /// Returns whether decoding may open other files that the image refers to. A process without privileges may be
    /// unable to open them.
    pub fn opens_others(&self) -> bool {
        self.options.allow_backing
    }

    /// Returns whether decoding may unpack a compressed image.
    pub fn may_unpack(&self) -> bool {
        !self.parts.rooms.is_empty()
    }

    /// Selects `room` as the file to which [`decode`](Self::decode) unpacks the outermost layer, if this
    /// layer is compressed raw data. A compressed image of another format, such as `disk.qcow2.gz`, is still
    /// unpacked to a temporary file, because the unpacked bytes are not the disk.
    pub fn unpack_to(&mut self, room: ReservedFile) {
        self.parts.new_disk = Some(room);
    }

    /// Reports the progress of unpacking to the callback in `options`.
    #[must_use]
    pub fn watched(mut self, options: &Options) -> Self {
        self.options.on_unpacking = options.on_unpacking.clone();
        self
    }

    /// Replaces compressed data by its first bytes, followed by zeros. Decoding then shows the kind of the data, and
    /// needs little time and no temporary file.
    #[must_use]
    pub fn with_start_of_packed(mut self) -> Self {
        if let Some(start) = start_of_packed(&self.file.device, &self.options) {
            self.file.device = start;
        }
        self
    }

    /// Decodes containers and the partition table.
    ///
    /// # Errors
    ///
    /// - `UnknownType`: the registry has no driver of the type that the options select.
    /// - The errors of [`Image::open`] from `Empty` on.
    pub fn decode(self, registry: &Registry) -> Result<Image, OpenError> {
        let Self { path, options, file, parts } = self;
        let notices: Vec<_> = file.notices.into_iter().map(ImageNotice::Lock).collect();
        let device: Arc<dyn BlockDevice> = match (options.access, options.writing) {
            (Access::ReadWrite, Writing::Behind) => Arc::new(BehindDevice::new(file.device)),
            _ => file.device,
        };
        let mut image = Image::of_parts(&path, device, registry, &options, parts)?;
        image.host_files.push(file.id);
        image.access_limit = image.access_limit.and(file.limit);
        image.notices.splice(0..0, notices);
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Creates a file with this mode.
    fn create(path: &Path, mode: u32) {
        fs::write(path, [1; 4096]).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_limit_of_a_copy_is_that_of_the_open_file_whatever_its_path_leads_to_later() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("disk.img"), folder.path().join("other"));
        create(&path, 0o600);
        let private = AccessLimit::of([&*path]);
        let file = ImageFile::open(&path, &Options::default()).unwrap();
        create(&other, 0o644);
        fs::rename(&other, &path).unwrap();
        assert_ne!(AccessLimit::of([&*path]), private);
        assert_eq!(file.access_limit(), private);
        assert_eq!(file.decode(&Registry::empty()).unwrap().access_limit(), private);
    }
}
