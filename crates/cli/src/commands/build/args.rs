//! The command line of `obento build`, and what it means.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento::{BuildSettings, BuildSource, Pipes, Publish, UnpackLimits};

use super::volume::VolumeArgs;
use crate::commands::mkfs::args::epoch;
use crate::report::Report;

const OUT_FIRST: &str = "name the image first: obento build OUT --from SRC...";
const AFTER_HELP: &str = "\
Sources: a directory; a tar archive, plain or packed with bzip2, gzip, lzma, xz or zstd, - for standard input; an OCI image layout.
What begins so says what it is: dir:PATH tar:PATH layer:PATH (a tar with whiteouts) oci:PATH mtree:PATH dump:PATH (composefs).
oci: is a layout or the output of docker save, as a directory or a tar archive; manifests may be packed too.
Each is laid over those before it; what --add names comes last.

Directories of the host give modes, times, links and holes; their files belong to root and have no extended attributes,
unless --owner keep and --xattrs say otherwise. Archives and manifests give all that they say. No right is needed for any of it.

The same sources and options make the same bytes. UUID and seeds follow from them, times from SOURCE_DATE_EPOCH, or else from the
newest file. An archive makes the same bytes from a pipe and from a file.

The files of an archive from a pipe are kept in a file without a name beside OUT until all are known. With --stream they go straight
to their places in ext4, ext3 and ext2, in the order in which they come: the image is larger, and has other bytes than one that is
built of a file.

Examples:
  obento build root.img --from rootfs/ --size auto --free 20%
  docker export c1 | obento build root.img --from - -L root
  obento build root.img --from oci:image/ --add init:/sbin/init --chmod go-w
  obento build -t ext2 initrd.img --from tree.mtree --minimize
  obento build disk.img --disk layout.toml            docs/disk.md says what is in that file";

/// Build an image out of directories, archives and manifests
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, override_usage = "obento build [OPTIONS] <OUT> --from <SRC>...\n       obento build [OPTIONS] <OUT> --disk <FILE>")]
pub struct Args {
    /// The image; it appears when it is whole
    #[arg(value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// A whole disk: its partitions, each with sources and options of its own, as FILE says
    #[arg(long, value_name = "FILE", conflicts_with = "VolumeArgs")]
    pub disk: Option<PathBuf>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Over what has the name already
    #[arg(short = 'F', long)]
    pub force: bool,
    /// Build twice and compare the bytes, check the image, and compare its files with the sources
    #[arg(long)]
    pub verify: bool,
    /// Write the files of an archive from a pipe straight into the image, in their own order
    #[arg(long, conflicts_with = "disk")]
    pub stream: bool,
    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,
    /// Threads that move bytes
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
            return Err(Report::new("cannot build", "OUT is missing").help(OUT_FIRST));
        };
        if std::fs::symlink_metadata(&last).is_ok() {
            let cause =
                "OUT is missing, and the last SRC exists: obento does not replace what may be a source";
            return Err(Report::on("cannot build", last.as_bytes(), cause).help(OUT_FIRST));
        }
        args.out = Some(last.into());
        Ok(args)
    }

    /// The image.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// What to do where the image has its name already.
    pub fn publish(&self) -> Publish {
        if self.force { Publish::Replace } else { Publish::Keep }
    }

    /// What is built of, and how, if it is one file system. Errors: a source that is none; a value that is none.
    pub fn volume(&self, unpack: UnpackLimits) -> Result<(Vec<BuildSource>, BuildSettings), Report> {
        let volume = &self.volume;
        if volume.from.is_empty() && volume.add.is_empty() {
            let report = Report::new("cannot build", "nothing is named that should be in it");
            return Err(report.help("name it: obento build root.img --from rootfs/"));
        }
        let sources = volume.sources(Path::new(""))?;
        let mut settings = volume.settings().map_err(|bad| bad.report())?;
        settings.epoch = epoch()?;
        settings.publish = self.publish();
        settings.unpack = unpack;
        settings.threads = self.threads;
        settings.pipes = if self.stream { Pipes::Stream } else { Pipes::Spool };
        Ok((sources, settings))
    }
}
