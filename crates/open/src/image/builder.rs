//! Opens and creates images with options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_driver::{FormatError, FormatOptions};
use obento_env::SystemRandom;

use super::{Image, ImageFile, OpenError, Options, check_type};
use crate::Registry;
use crate::image::FormatTarget;
use crate::text::escaped;

/// Opens and creates images with other drivers and options than [`Image::open`] and [`Image::create`].
///
/// ```
/// use obento::{Image, Registry};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.img");
/// let registry = Registry::default();
/// Image::builder().registry(registry.clone()).create(&path, 16 << 20, "ext4")?;
///
/// let volume = Image::builder().registry(registry).fs_type("ext4").for_change().open(&path)?.volume(None)?;
/// volume.write("/motd", "Welcome\n")?;
/// volume.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct ImageBuilder {
    registry: Registry,
    options: Options,
}

/// Images in files of the host.
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
}

impl FormatTarget {
    /// Returns the file as an image that is open for change. Fails as [`Image::on_device`] does.
    pub fn image(&self, registry: &Registry, options: &Options) -> Result<Image, OpenError> {
        let options = options.clone().for_change();
        Image::on_device(self.path(), self.device(), registry, &options)
    }

    /// Returns the file as it was before [`open`](Self::open) extended it. Returns `None` if it was not extended, or was
    /// empty. The end of a file can identify its contents. Fails as [`Image::on_device`] does.
    pub fn old_image(&self, registry: &Registry, options: &Options) -> Result<Option<Image>, OpenError> {
        let Some(device) = self.old_bytes() else { return Ok(None) };
        Image::on_device(self.path(), device, registry, options).map(Some)
    }
}

impl ImageBuilder {
    /// Replaces the drivers. The default is [`Registry::default`].
    #[must_use]
    pub fn registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Replaces all options. The default is [`Options::default`].
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Opens the image for change. A volume that is opened for change replays a dirty journal onto the image.
    ///
    /// Opening an image reads the signatures in it. The first selection of a volume uses these results, unless the
    /// caller has requested the device ([`Image::device`]) in between. Other processes must therefore not change the
    /// image after it was opened: a driver may use the super block that was read at that time.
    #[must_use]
    pub fn for_change(self) -> Self {
        Self { options: self.options.for_change(), ..self }
    }

    /// Opens the file systems as volumes of the type `name`, instead of finding the type by its signature.
    #[must_use]
    pub fn fs_type(self, name: impl Into<String>) -> Self {
        Self { options: Options { fs_type: Some(name.into()), ..self.options }, ..self }
    }

    /// Opens the image as [`Image::open`] does.
    ///
    /// # Errors
    ///
    /// - `UnknownType`: the registry has no driver of the type that the options select.
    /// - The errors of [`Image::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image, OpenError> {
        check_type(&self.registry, &self.options)?;
        ImageFile::open(path.as_ref(), &self.options)?.decode(&self.registry)
    }

    /// Creates an image as [`Image::create`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Image::create`].
    pub fn create(
        &self,
        path: impl AsRef<Path>,
        size: u64,
        fs_type: &str,
    ) -> Result<Image, ImageCreationError> {
        let path = path.as_ref();
        let mut formats = self.registry.drivers().iter().filter_map(|driver| driver.format());
        let format = formats.find(|format| format.types().contains(&fs_type));
        let format = format.ok_or_else(|| ImageCreationError::NoFormat { fs_type: fs_type.to_owned() })?;
        let target = FormatTarget::create(path, size)?;
        let mut options = FormatOptions::new(fs_type, self.options.clock.clone(), Arc::new(SystemRandom));
        options.contents = target.contents();
        let failed = |error| ImageCreationError::Format { image: path.to_owned(), error };
        format.format(&*target.device(), &options).map_err(failed)?;
        target.keep();
        Ok(self.clone().for_change().open(path)?)
    }
}

/// The error of creating an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageCreationError {
    /// No driver of the registry creates file systems of this type.
    #[error("cannot create a file system of type '{}': no driver creates this type", escaped(fs_type.as_bytes()))]
    NoFormat {
        /// The type.
        fs_type: String,
    },
    /// The file cannot be created or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file system cannot be created.
    #[error("cannot create a file system on '{}': {error}", escaped(image.as_os_str().as_encoded_bytes()))]
    Format {
        /// The image.
        image: PathBuf,
        /// The reason.
        error: FormatError,
    },
}
