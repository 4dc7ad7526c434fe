//! Files that a command creates, and the files that they replace.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento::driver::Replay;
use obento::host::sandbox::Rights;
use obento::host::{FileId, HostError, ReplacedFile, UnpackLimits};
use obento::image::{ImageFile, Locking, PartitionContents};
use obento::{OpenError, Options};

use crate::context::Context;
use crate::output::{create_output, emptied, expect_no_source};
use crate::report::{Report, shell_word};

/// Checks that `out` can be created: it does not stand for standard output; it does not exist, or it is a regular
/// file that no process changes, and `is_forced` permits replacing it. Until the result is dropped, no process can
/// begin to change this file. `cannot` begins the report.
pub fn expect_replaceable(cannot: &str, out: &Path, is_forced: bool) -> Result<Option<ReplacedFile>, Report> {
    refuse_standard_output(cannot, out)?;
    let refused = |cause| Report::on(cannot, out.as_os_str().as_bytes(), cause);
    let Ok(there) = std::fs::symlink_metadata(out) else { return Ok(None) };
    if !is_forced {
        return Err(refused("file exists").help("use --force to overwrite it"));
    }
    if !there.is_file() && !there.is_symlink() {
        let report = refused("exists and is not a regular file");
        return Err(report.help("choose another name: --force overwrites only regular files"));
    }
    ReplacedFile::lock(out).map_err(Report::plain)
}

/// Fails if `out` stands for standard output. `cannot` begins the report.
pub fn refuse_standard_output(cannot: &str, out: &Path) -> Result<(), Report> {
    if out.as_os_str() != "-" {
        return Ok(());
    }
    let cause = "an image cannot be written to standard output, because its parts are not written in order";
    Err(Report::on(cannot, out.as_os_str().as_bytes(), cause)
        .help("name a file; './-' is a file with this name"))
}

/// The layers of an image that only disks have.
const DISK_FORMATS: [&str; 6] = ["qcow2", "vhd", "vhdx", "vmdk", "vdi", "android-sparse"];

/// A file of the host that a command would replace, open and not decoded yet.
///
/// A forgotten `:/` makes an image the target: `cp disk.img:/a usb.img` would replace all files of `usb.img` by one.
pub struct OldFile(ImageFile);

impl OldFile {
    /// Opens the file at `path`. Returns `None` if there is no regular file that this process can read.
    pub fn open(path: &Path) -> Option<Self> {
        path.metadata().ok().filter(|meta| meta.is_file() && meta.len() > 0)?;
        // The file is only looked at: its lock, its journal and compressed data do not matter.
        let unpack = UnpackLimits { bytes: Some(0), ..UnpackLimits::default() };
        let options = Options { locking: Locking::Skip, replay: Replay::Skip, unpack, ..Options::default() };
        ImageFile::open(path, &options).ok().map(Self)
    }

    /// Checks that the file, which the user named as `shown`, is not a disk image. `cannot` begins the report, and
    /// `force` is what the help says to a user who wants to replace an image, after `use`.
    ///
    /// # Errors
    ///
    /// The file has a partition table or a file system, or the format of a disk of a virtual machine.
    pub fn expect_no_image(
        self,
        cannot: &str,
        shown: &[u8],
        force: &str,
        context: &Context,
    ) -> Result<(), Report> {
        // The start of a compressed file shows whether the file contains an image.
        let image = match self.0.with_start_of_packed().decode(context.registry()) {
            Ok(image) => image,
            Err(OpenError::Host(
                HostError::Reference { .. }
                | HostError::Unsupported { .. }
                | HostError::WrongCounts { .. }
                | HostError::Damaged { .. },
            )) => {
                return Err(
                    Report::on(cannot, shown, "the file is a disk image").help(format!("use {force}"))
                );
            }
            Err(_) => return Ok(()),
        };
        let found = image.probe_all();
        // A compressed file is not necessarily a disk.
        let is_disk = image.layers().iter().any(|layer| DISK_FORMATS.contains(layer));
        let mut volumes =
            found.iter().filter(|content| matches!(content.holds, PartitionContents::FileSystem(_)));
        let volume = volumes.next();
        // An encrypted disk, a member of a RAID, or several signatures.
        let is_disk = is_disk || image.is_claimed();
        if volume.is_none() && image.table().is_none() && !is_disk {
            return Ok(());
        }
        let part = volume.filter(|_| volumes.next().is_some()).and_then(|volume| volume.partition.as_ref());
        let part = part.map_or_else(String::new, |partition| format!("@{}", partition.number));
        let root = shell_word([shown, part.as_bytes(), b":/"].concat());
        let root = volume.map_or_else(String::new, |_| format!("{root} for its root directory, or "));
        Err(Report::on(cannot, shown, "the file is a disk image").help(format!("use {root}{force}")))
    }
}

/// A host file that a command writes from the start, such as a report. It is open, and keeps its contents until
/// [`OutputFile::emptied`].
pub struct OutputFile {
    file: File,
    path: PathBuf,
    old: Option<OldFile>,
}

impl OutputFile {
    /// Opens the file `path`, or creates it. Fails as [`create_output`] does.
    pub fn open(path: &Path) -> Result<Self, Report> {
        let file = create_output(path)?;
        Ok(Self { file, path: path.into(), old: OldFile::open(path) })
    }

    /// Gives up all rights except to read and write open files, and to truncate them if there are `outputs`.
    pub fn seal(outputs: &[Self], context: &Context) {
        context.confine(if outputs.is_empty() { Rights::Read } else { Rights::WriteBeneath(&[]) });
    }

    /// Truncates the file. Call this after rights were given up, because it decodes the old contents.
    ///
    /// # Errors
    ///
    /// The file cannot be written, it is one of `spared`, from which images are read, or it is a disk image.
    pub fn emptied(self, spared: &[FileId], context: &Context) -> Result<File, Report> {
        expect_no_source(&self.file, &self.path, spared)?;
        if let Some(old) = self.old {
            let shown = self.path.as_os_str().as_bytes();
            old.expect_no_image("cannot write to", shown, "", context)
                .map_err(|report| report.help("name another file, or delete the image first"))?;
        }
        emptied(self.file, &self.path, spared)
    }
}
