//! The formats of new disk images, by name and by extension.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::convert::{ConvertFormat, Qcow2Version, Stream};

use crate::report::{Report, printable, shell_word, subject};

/// The help for an extension that does not select a format.
pub const NAME_THE_FORMAT: &str =
    "name the format: --format raw, qcow2, vhd, vmdk, vdi, android-sparse, gz, xz or zst";

/// The help for a format that obento does not write.
const USE_A_FORMAT: &str =
    "use a name such as disk.qcow2, or --format raw, qcow2, vhd, vmdk, vdi, android-sparse, gz, xz or zst";

/// A format by name.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageFormat {
    /// The bytes of the disk
    #[value(aliases = ["img"])]
    Raw,
    /// QEMU copy-on-write, version 3 or 2
    Qcow2,
    /// Fixed VHD in whole MiB, as Azure requires
    #[value(aliases = ["vpc"])]
    Vhd,
    /// VMware, stream-optimised
    Vmdk,
    /// VirtualBox, dynamic
    Vdi,
    /// Android sparse image, as img2simg writes
    #[value(aliases = ["simg"])]
    AndroidSparse,
    /// Raw in gzip
    #[value(name = "gz", aliases = ["gzip"])]
    Gzip,
    /// Raw in xz
    Xz,
    /// Raw in zstd, seekable
    #[value(name = "zst", aliases = ["zstd"])]
    Zstd,
}

/// Extensions and their formats.
const EXTENSIONS: &[(&str, ImageFormat)] = &[
    ("img", ImageFormat::Raw),
    ("raw", ImageFormat::Raw),
    ("bin", ImageFormat::Raw),
    ("dd", ImageFormat::Raw),
    ("iso", ImageFormat::Raw),
    ("qcow2", ImageFormat::Qcow2),
    ("vhd", ImageFormat::Vhd),
    ("vmdk", ImageFormat::Vmdk),
    ("vdi", ImageFormat::Vdi),
    ("simg", ImageFormat::AndroidSparse),
    ("gz", ImageFormat::Gzip),
    ("xz", ImageFormat::Xz),
    ("zst", ImageFormat::Zstd),
];

/// Extensions of formats that obento does not write. A raw image with such a name would mislead its readers.
const NOT_WRITTEN: &[&str] =
    &["vhdx", "avhdx", "qcow", "qed", "dmg", "e01", "ova", "wim", "bz2", "lz4", "lzma", "zip", "7z"];

/// Returns whether `name` is the name or the extension of a format that obento does not write.
pub fn is_only_read(name: &str) -> bool {
    NOT_WRITTEN.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns the report that the name of the new image `out` does not select a format. `cannot` begins the report.
pub fn unknown_format(cannot: &str, out: &Path) -> Report {
    let last = out.extension().map(OsStr::to_string_lossy).unwrap_or_default();
    let refused = |cause: &str| Report::on(cannot, out.as_os_str().as_bytes(), cause);
    if out.is_dir() {
        return refused("is a directory").help("name a file, such as disk.qcow2");
    }
    if is_only_read(&last) {
        return refused(&format!("obento does not write {} images", last.to_ascii_lowercase()))
            .help(USE_A_FORMAT);
    }
    if let Some((disk, part)) = out.to_str().and_then(|name| name.rsplit_once('@'))
        && part.parse::<u32>().is_ok()
        && !Path::new(disk).exists()
    {
        let help = format!("create the disk first: obento part {} create gpt --size SIZE", shell_word(disk));
        return refused(&format!("no such file {}", subject(disk))).help(help);
    }
    if last.is_empty() {
        return refused("the name has no extension that selects a format").help(NAME_THE_FORMAT);
    }
    let inner = out.file_stem().map(Path::new).and_then(ImageFormat::of_name);
    let is_packed = ImageFormat::of_extension(out).is_some_and(ImageFormat::is_packed);
    if let Some(inner) = inner.filter(|_| is_packed) {
        let name = clap::ValueEnum::to_possible_value(&inner);
        let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
        return refused(&format!("a .{last} file contains a raw disk, not a {name} image"))
            .help("use a name such as disk.img.gz; --compress compresses a qcow2 image");
    }
    refused(&format!("the extension '{}' selects no format", printable(last.as_bytes())))
        .help(NAME_THE_FORMAT)
}

impl ImageFormat {
    /// Returns the format that the extension of `path` names.
    pub fn of_name(path: &Path) -> Option<Self> {
        let format = Self::of_extension(path)?;
        // A compressed image is a raw disk: `disk.qcow2.gz` would promise something else.
        let inner = path.file_stem().map(Path::new).and_then(Self::of_name);
        (!format.is_packed() || matches!(inner, None | Some(Self::Raw))).then_some(format)
    }

    /// Returns the format of a new image that is raw unless its extension names another format, or `None` if obento
    /// does not write that format or the extensions contradict each other.
    pub fn of_name_or_raw(path: &Path) -> Option<Self> {
        let last = path.extension().map(OsStr::to_ascii_lowercase).unwrap_or_default();
        let is_raw = Self::of_extension(path).is_none() && NOT_WRITTEN.iter().all(|&name| last != name);
        Self::of_name(path).or_else(|| is_raw.then_some(Self::Raw))
    }

    fn of_extension(path: &Path) -> Option<Self> {
        let last = path.extension().map(OsStr::to_ascii_lowercase)?;
        EXTENSIONS.iter().find(|(known, _)| last == *known).map(|(_, format)| *format)
    }

    fn is_packed(self) -> bool {
        matches!(self, Self::Gzip | Self::Xz | Self::Zstd)
    }

    /// Returns the format with the properties of a qcow2 image.
    pub fn with(self, version: Qcow2Version, is_compressed: bool) -> ConvertFormat {
        match self {
            Self::Raw => ConvertFormat::Raw,
            Self::Qcow2 => ConvertFormat::Qcow2 { version, is_compressed },
            Self::Vhd => ConvertFormat::Vhd,
            Self::Vmdk => ConvertFormat::Vmdk,
            Self::Vdi => ConvertFormat::Vdi,
            Self::AndroidSparse => ConvertFormat::AndroidSparse,
            Self::Gzip => ConvertFormat::Packed(Stream::Gzip),
            Self::Xz => ConvertFormat::Packed(Stream::Xz),
            Self::Zstd => ConvertFormat::Packed(Stream::Zstd),
        }
    }
}
