//! Existing images. They are only read: a volume is opened read-only, a mount is read-only, and the kernel uses a
//! read-only loop device.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use obento::address::{Address, HostEntry, PartSelector, snapshot_of};
use obento::host::IoBackend;
use obento::{Image, OpenError, Options, Registry, Volume};

use super::mounted::{MountCommand, for_others, needs_root};
use crate::{BenchError, Result};

/// An existing image, and how its files are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredImage {
    /// How the files are read.
    pub reader: Reader,
    /// The image, such as `disk.img@2`, as written on the command line.
    pub image: String,
    /// The options of mount(8), separated by commas. For the kernel, `fstype=TYPE` is the type.
    pub options: String,
}

/// A way to read the files of an existing image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A driver of obento, in the measuring process.
    Driver,
    /// A driver of obento, mounted through FUSE.
    Fuse,
    /// The kernel, on a loop device.
    Kernel,
}

impl StoredImage {
    /// Parses the text after the `:` of a target. Returns `None` if the text is not the name of an image. The name of
    /// an image contains a `/`, a `.`, an `@` or a `%`, and a type contains none of these.
    pub(super) fn parse(reader: Reader, text: &str) -> Option<Self> {
        let (head, rest) = text.split_once(',').unwrap_or((text, ""));
        if !head.contains(['/', '.', '@', '%']) {
            return None;
        }
        // A driver in this process has no options, so that a comma is a part of the name.
        let (image, options) = if reader == Reader::Driver { (text, "") } else { (head, rest) };
        Some(Self { reader, image: image.to_owned(), options: options.to_owned() })
    }

    /// Returns the address of the image.
    ///
    /// # Errors
    ///
    /// - The image does not exist, or the text is not an address.
    /// - The address has a path in the image, or is that of a server.
    pub fn address(&self) -> Result<Address> {
        let address = Address::parse(self.image.as_ref())?;
        let wrong = |why| Err(BenchError::Image(format!("cannot measure '{self}': {why}")));
        match (address.server(), &address.place) {
            (Some(_), _) => wrong("a server is not an image; omit the text before the address"),
            (None, Some(_)) => wrong("this is a path inside an image; name the image, or IMAGE@PART"),
            (None, None) => Ok(address),
        }
    }

    /// Returns the file or device that contains the image.
    pub(super) fn file(&self) -> Result<PathBuf> {
        let image = self.address()?.image;
        Ok(snapshot_of(&image, &HostEntry::look_up).map_or(image, |(file, _)| file))
    }

    /// Opens the volume for reading.
    pub(super) fn open(&self, registry: &Registry) -> Result<Volume> {
        let address = self.address()?;
        let opened = opened(&address, registry)?.volume(address.part.as_ref());
        opened.map_err(not_opened)
    }

    /// Returns the command that mounts the image at `at`. `obento` is the obento program.
    pub(super) fn mount_command(
        &self,
        at: &Path,
        obento: &Path,
        registry: &Registry,
    ) -> Result<MountCommand> {
        let at = at.display().to_string();
        if self.reader != Reader::Kernel {
            let options = [self.options.as_str(), for_others()].join(",");
            let options = options.trim_matches(',');
            let mut arguments = vec!["mount".to_owned(), "-r".to_owned()];
            if !options.is_empty() {
                arguments.extend(["-o".to_owned(), options.to_owned()]);
            }
            arguments.extend(["--".to_owned(), self.image.clone(), at]);
            return Ok(MountCommand { program: obento.to_owned(), arguments, by: Some(obento.to_owned()) });
        }
        needs_root(self)?;
        let (kinds, options): (Vec<&str>, Vec<&str>) =
            self.options.split(',').filter(|option| !option.is_empty()).partition(|option| is_type(option));
        let kind = kinds.iter().filter_map(|option| option.strip_prefix(TYPE)).next_back();
        // The last options are effective: the loop device is read-only too, so that no journal is replayed. A disk also
        // has a loop device.
        let mut options: Vec<String> = options.into_iter().chain(["ro", "loop"]).map(str::to_owned).collect();
        if let Some(range) = self.range(registry)? {
            options.push(format!("offset={}", range.start));
            options.push(format!("sizelimit={}", range.end - range.start));
        }
        // With -i, mount(8) calls no helper: the helper of NTFS would mount through FUSE.
        let mut arguments = vec!["-i".to_owned(), "-o".to_owned(), options.join(",")];
        if let Some(kind) = kind {
            arguments.extend(["-t".to_owned(), kind.to_owned()]);
        }
        arguments.extend(["--".to_owned(), self.file()?.display().to_string(), at]);
        Ok(MountCommand { program: "mount".into(), arguments, by: None })
    }

    /// Returns the bytes of the volume in the image, or `None` for the whole image. Fails with `Absent` for an image
    /// that the kernel cannot mount.
    fn range(&self, registry: &Registry) -> Result<Option<Range<u64>>> {
        let address = self.address()?;
        let image = opened(&address, registry)?;
        if let Some(layer) = image.layers().first() {
            return Err(BenchError::Absent(format!(
                "{self} is not possible: the kernel mounts no {layer} image"
            )));
        }
        if let Some(PartSelector::Offset(start)) = address.part {
            return Ok(Some(start..image.device().len()).filter(|range| !range.is_empty()));
        }
        match image.volume_bytes(address.part.as_ref()) {
            Ok((_, choice)) => Ok(choice.partition.map(|partition| partition.range())),
            Err(error) if address.part.is_some() => Err(not_opened(error)),
            // The kernel may support a type that obento does not recognise.
            Err(_) => Ok(None),
        }
    }
}

fn opened(address: &Address, registry: &Registry) -> Result<Image> {
    let options = Options { io: IoBackend::Auto, ..Options::default() };
    Image::builder().registry(registry.clone()).options(options).open(&address.image).map_err(not_opened)
}

fn not_opened(error: OpenError) -> BenchError {
    BenchError::Image(error.to_string())
}

/// The option of a target that names the type.
const TYPE: &str = "fstype=";

fn is_type(option: &str) -> bool {
    option.starts_with(TYPE)
}

impl fmt::Display for StoredImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reader = match self.reader {
            Reader::Driver => "image",
            Reader::Fuse => "fuse",
            Reader::Kernel => "kernel",
        };
        write!(f, "{reader}:{}", self.image)?;
        if self.options.is_empty() { Ok(()) } else { write!(f, ",{}", self.options) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn stored(text: &str) -> Option<StoredImage> {
        match text.parse() {
            Ok(Target::Stored(stored)) => Some(stored),
            _ => None,
        }
    }

    #[test]
    fn an_image_and_a_type_are_distinguished_by_the_text_alone() {
        for (text, image, options) in [
            ("image:./ext4", "./ext4", ""),
            ("image:win.ntfs", "win.ntfs", ""),
            ("image:disk@2", "disk@2", ""),
            ("image:a.img,b", "a.img,b", ""),
            ("fuse:/dev/sdb1", "/dev/sdb1", ""),
            ("fuse:a.img,uid=1,gid=2", "a.img", "uid=1,gid=2"),
            ("kernel:disk.img@label=root,fstype=ntfs3", "disk.img@label=root", "fstype=ntfs3"),
        ] {
            let found = stored(text).unwrap();
            assert_eq!((found.image.as_str(), found.options.as_str()), (image, options), "{text}");
            assert_eq!(found.to_string(), text);
        }
        for text in [
            "image:ext4",
            "image:ext4,provenance",
            "fuse:sshfs host:/a.b",
            "kernel:ext4,journal_path=/dev/sda",
        ] {
            assert_eq!(stored(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_in_an_image_and_a_server_are_not_images() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::fs::write(&path, "").unwrap();
        let error = |text: String| stored(&text).unwrap().address().unwrap_err().to_string();
        assert!(error(format!("image:{}:/etc", path.display())).contains("a path inside an image"));
        assert!(error("image:nfs://host/a".to_owned()).contains("a server is not an image"));
        assert!(error(format!("image:{}.none", path.display())).contains("a.img.none"));
        assert_eq!(stored(&format!("fuse:{},ro", path.display())).unwrap().file().unwrap(), path);
    }

    #[test]
    fn a_mount_of_the_kernel_is_read_only_whatever_the_options_are() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::fs::write(&path, [0; 4096]).unwrap();
        let stored = stored(&format!("kernel:{},rw,fstype=ntfs3,nosuid", path.display())).unwrap();
        let command = stored.mount_command("/mnt".as_ref(), "obento".as_ref(), &Registry::default()).unwrap();
        let path = path.display().to_string();
        assert_eq!(
            command.arguments,
            ["-i", "-o", "rw,nosuid,ro,loop", "-t", "ntfs3", "--", path.as_str(), "/mnt"]
        );
    }
}
