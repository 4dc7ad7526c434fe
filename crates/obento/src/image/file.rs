//! The open files of an image, before their bytes are decoded.
//!
//! The bytes of an image are hostile. A program that drops privileges opens the files first and decodes them
//! afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use obento_driver::Access;
use obento_host::FileId;
use obento_host::compressed::{Compression, Room};
use obento_host::io::{BehindDevice, Opened};
use obento_host::qcow2::is_qcow2;

use super::{Image, ImageNotice, MAX_LAYERS, OpenError, Options, Writing, open_file};
use crate::Registry;

/// The open files that decoding needs in addition to the image.
#[derive(Default)]
pub(super) struct Parts {
    pub journal: Option<Opened>,
    /// Temporary files for the layers of compression.
    pub rooms: Vec<Room>,
}

/// An image whose files are open. Of its bytes, only the signature of a container was read.
pub struct ImageFile {
    path: PathBuf,
    options: Options,
    file: Opened,
    parts: Parts,
}

impl ImageFile {
    /// Opens the file or device at `path` and the external journal in `options`. Creates temporary files if
    /// the image is compressed.
    ///
    /// # Errors
    ///
    /// Missing; NotPermitted; NotChangeable; ReadOnlyHost; Host for other errors of the host.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let file = open_file(path, options)?;
        let journal = options.journal.as_deref().map(|path| open_file(path, options)).transpose()?;
        let rooms = rooms(&*file.device, options)?;
        Ok(Self { path: path.into(), options: options.clone(), file, parts: Parts { journal, rooms } })
    }

    /// Returns the files of the host that the image is read from.
    pub fn host_files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.parts.journal.iter().map(|journal| journal.id).chain([self.file.id])
    }

    /// Returns whether decoding may open files that the image names. A process without privileges cannot open
    /// them.
    pub fn opens_others(&self) -> bool {
        self.options.allow_backing
    }

    /// Reports the progress of unpacking to the callback in `options`.
    #[must_use]
    pub fn watched(mut self, options: &Options) -> Self {
        self.options.on_unpacking = options.on_unpacking.clone();
        self
    }

    /// Decodes containers and the partition table. Errors: as [`Image::open`].
    pub fn decode(self, registry: &Registry) -> Result<Image, OpenError> {
        let Self { path, options, file, parts } = self;
        let notices: Vec<_> = file.notices.into_iter().map(ImageNotice::Lock).collect();
        let device: Arc<dyn BlockDevice> = match (options.access, options.writing) {
            (Access::ReadWrite, Writing::Behind) => Arc::new(BehindDevice::new(file.device)),
            _ => file.device,
        };
        let mut image = Image::of_parts(&path, device, registry, &options, parts)?;
        image.host_files.push(file.id);
        image.notices.splice(0..0, notices);
        Ok(image)
    }
}

/// Creates temporary files for layers that may be compressed. A container may hold a compressed image, too.
fn rooms(device: &dyn BlockDevice, options: &Options) -> Result<Vec<Room>, OpenError> {
    let mut start = [0; Compression::MAGIC_LEN];
    let len = to_usize(device.len()).min(start.len());
    let start = &mut start[..len];
    if options.access == Access::ReadWrite || device.read_at(0, start).is_err() {
        return Ok(Vec::new());
    }
    let rooms = (0..MAX_LAYERS).map(|_| Room::new());
    match Compression::detect(start) {
        Some(_) => Ok(rooms.collect::<Result<_, _>>()?),
        // Most qcow2 images need no temporary file, so a failure to create one is not an error yet.
        None if is_qcow2(start) => Ok(rooms.filter_map(Result::ok).collect()),
        None => Ok(Vec::new()),
    }
}
