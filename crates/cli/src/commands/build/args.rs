//! The command line of `obento build`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento::build::{BuildSettings, BuildSource, Pipes};
use obento::convert::{ConvertFormat, Qcow2Version};
use obento::host::{Publish, UnpackLimits};

use super::volume::VolumeArgs;
use crate::parse::image_format::{ImageFormat, unknown_format};
use crate::parse::time::source_date_epoch;
use crate::report::Report;

const OUT_FIRST: &str = "name the image first: obento build OUT --from SRC...";
const AFTER_HELP: &str = "\
Sources are directories, tar archives, OCI image layouts, and - for an archive on standard input. An archive may be compressed with bzip2, gzip, \
lzma, xz or zstd. A prefix selects the type: dir:PATH, tar:PATH, layer:PATH (a tar archive with whiteouts), oci:PATH (a layout or \
the output of docker save, as a directory or archive), mtree:PATH, dump:PATH (composefs). Later sources replace files of earlier \
ones, and --add comes last.

Host directories provide modes, times, links and holes. Their files belong to root, unless --owner is given, and have no \
extended attributes, unless --xattrs is given. Archives and manifests provide all attributes. No privileges are needed.

The same sources and options produce the same bytes. The sources and options determine the UUID and the \
seeds. The time of the volume is SOURCE_DATE_EPOCH, or the time of the newest file. Files that are newer \
than SOURCE_DATE_EPOCH get this time. An archive produces the same bytes from a pipe and from a file.

The extension of OUT selects a disk image format, as in 'obento convert': .qcow2, .vhd, .vmdk, .vdi, .simg (Android sparse), .gz, .xz or \
.zst. Extensions of other image and archive formats, such as .vhdx or .zip, require --format. With any \
other extension, the image is raw.

The files of an archive from a pipe are stored in an unnamed file beside OUT until the archive ends. With --stream they are written \
directly to ext4, ext3 and ext2 volumes, in the order of the archive. Such an image is larger, and differs from an image that is built \
from a file.";

/// Build an image from directories, archives and manifests
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, override_usage = "obento build [OPTIONS] <OUT> --from <SRC>...\n       obento build [OPTIONS] <OUT> --disk <FILE>")]
pub struct Args {
    /// Output image (created only on success)
    #[arg(value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Build a disk with partitions, as the layout file FILE describes, or - for standard input; see 'obento help layout'
    #[arg(long, value_name = "FILE", conflicts_with = "VolumeArgs")]
    pub disk: Option<PathBuf>,
    /// Write the root hash of the dm-verity tree to FILE, in hexadecimal digits; the disk must have exactly
    /// one tree
    #[arg(long, value_name = "FILE", requires = "disk")]
    pub root_hash: Option<PathBuf>,
    /// Print the layout of the existing disk IMAGE for --disk, with empty partitions, and build nothing
    #[arg(long, value_name = "IMAGE", conflicts_with = "VolumeArgs")]
    pub print_layout: Option<std::ffi::OsString>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Format of OUT; by default, the extension of OUT selects the format, or the image is raw
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<ImageFormat>,
    /// Compress the clusters of a qcow2 image
    #[arg(long)]
    pub compress: bool,
    /// Overwrite OUT if it exists
    #[arg(short, long, short_alias = 'F')]
    pub force: bool,
    /// Build twice and compare the bytes, check the image, and compare its files with the sources
    #[arg(long)]
    pub verify: bool,
    /// Write the files of an archive from a pipe directly to the image, in the order of the archive
    #[arg(long, conflicts_with = "disk")]
    pub stream: bool,
    /// Record the source of each file in the image, for 'obento prov'; the image then contains the names of the sources
    #[arg(long, conflicts_with_all = ["disk", "stream"])]
    pub provenance: bool,
    /// Do not print a summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Number of threads that move data
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    pub threads: usize,
}

impl Args {
    /// Returns the arguments with OUT, which may also be the last name after `--from`.
    ///
    /// # Errors
    ///
    /// - OUT is missing.
    /// - The last name after `--from` exists, so that it may be a source.
    pub fn settle(&self) -> Result<Self, Report> {
        let mut args = self.clone();
        if args.out.is_some() {
            return Ok(args);
        }
        let from = &mut args.volume.from;
        let Some(last) = from.pop().filter(|_| !from.is_empty()) else {
            return Err(Report::new("cannot build", "missing operand OUT").help(OUT_FIRST));
        };
        if std::fs::symlink_metadata(&last).is_ok() {
            let cause = "missing operand OUT: the last SRC exists, so it may be a source";
            return Err(Report::on("cannot build", last.as_bytes(), cause).help(OUT_FIRST));
        }
        args.out = Some(last.into());
        Ok(args)
    }

    /// The image.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// Returns what happens if the image exists.
    pub fn publish(&self) -> Publish {
        if self.force { Publish::Replace } else { Publish::Keep }
    }

    /// Returns the format of the image.
    ///
    /// # Errors
    ///
    /// - The extension is that of a compressed image that is not raw.
    /// - An option does not apply to the format.
    pub fn container(&self) -> Result<ConvertFormat, Report> {
        let shown = self.out().as_os_str().as_bytes();
        let format = self.format.or_else(|| ImageFormat::of_name_or_raw(self.out()));
        let format = format.ok_or_else(|| unknown_format("cannot build", self.out()))?;
        if format != ImageFormat::Qcow2 && self.compress {
            return Err(Report::on("cannot build", shown, "--compress requires the format qcow2"));
        }
        Ok(format.with(Qcow2Version::V3, self.compress))
    }

    /// Returns the sources and the settings of one file system. Fails if a source or a value is invalid.
    pub fn volume(&self, unpack: UnpackLimits) -> Result<(Vec<BuildSource>, BuildSettings), Report> {
        let volume = &self.volume;
        if volume.from.is_empty() && volume.add.is_empty() {
            let report = Report::new("cannot build", "no source given");
            return Err(report.help("name a source: obento build root.img --from rootfs/"));
        }
        let sources = volume.sources(Path::new(""))?;
        let mut settings = volume.settings().map_err(|bad| bad.report())?;
        settings.epoch = source_date_epoch()?;
        settings.container = self.container()?;
        settings.publish = self.publish();
        settings.unpack = unpack;
        settings.threads = self.threads;
        settings.provenance = self.provenance;
        settings.pipes = if self.stream { Pipes::Stream } else { Pipes::Spool };
        Ok((sources, settings))
    }
}
