//! `obento mount`: mounts a volume at a directory of the host.
//!
//! The caller starts a server, which is this program with the same arguments. It waits until the server reports that
//! the mount exists, or ends with an error. `--foreground` is the server itself.

mod all;
mod control;
mod failover;
mod janitor;
mod keeper;
mod log;
mod remount;
mod server;
mod start;
mod status;
mod upgrade;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::{Address, VolumeOptions};
use obento_fuse::options::{MountOptions, ReadWrite};

pub use all::mounts_below;

use crate::context::Context;
use crate::output::Outcome;
use crate::report::Report;

/// The type of mounts that `obento mount` creates.
const FS_TYPE: &str = "fuse.obento";

/// Mount a volume at a directory, through FUSE
///
/// The command returns when the mount exists. `obento umount` ends it, and returns when everything is on stable storage. Root mounts
/// directly, other users through fusermount3.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume
    #[arg(value_name = "IMAGE[@PART]", required_unless_present_any = ["upgrade", "status", "revived"])]
    image: Option<OsString>,
    /// The mount point
    #[arg(value_name = "DIR", required_unless_present_any = ["upgrade", "status", "revived"])]
    directory: Option<PathBuf>,
    /// Replace the server of the mount at DIR by this program, while programs use the mount. If this fails, the old server continues
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "directory", "options", "read_only", "status"])]
    pub upgrade: Option<PathBuf>,
    /// With --upgrade: only report whether the server can be replaced
    #[arg(long, requires = "upgrade", conflicts_with_all = ["image", "directory", "status"])]
    pub dry_run: bool,
    /// Print the state of the server of the mount at DIR, or of all mounts
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["image", "directory", "options", "read_only"])]
    pub status: Option<Option<PathBuf>>,
    /// Mount options, separated by commas: ro, rw, noatime, relatime, sync, data=, commit=, allow_other, fsname=, failover, ...
    #[arg(short, long, value_name = "LIST")]
    pub options: Vec<String>,
    /// Mount every file system of a disk, partition 2 at DIR/2. `obento umount DIR` ends all these mounts
    #[arg(long, conflicts_with_all = ["upgrade", "status"])]
    pub all: bool,
    /// Mount read-only
    #[arg(short, long)]
    pub read_only: bool,
    /// Ignore unknown mount options
    #[arg(short, long)]
    pub sloppy: bool,
    /// Append the log of the server to FILE instead of standard error. OBENTO_LOG sets the level: error, warn (the default), info, debug
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Serve in this process, until the volume is unmounted or a signal arrives
    #[arg(short, long)]
    pub foreground: bool,
    /// Be the server that was started, and report when the mount exists
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Be a server with a keeper, which is connected to the standard input
    #[arg(long, hide = true)]
    pub kept: bool,
    /// Be the server that continues after another one has failed
    #[arg(long, hide = true, requires = "kept")]
    pub revived: bool,
}

impl Args {
    /// Returns the volume, which is required unless a mount is upgraded or examined.
    pub fn image(&self) -> &OsStr {
        self.image.as_deref().unwrap_or_default()
    }

    /// Returns the mount point, which is required as the volume is.
    pub fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new(""))
    }

    fn mount_options(&self, shown: VolumeOptions) -> Result<MountOptions, Report> {
        let mut options = MountOptions { shown, ..MountOptions::default() };
        for list in &self.options {
            let taken = if self.sloppy { options.take_known(list) } else { options.take(list) };
            taken.map_err(|error| Report::on("cannot mount", self.image().as_bytes(), error))?;
        }
        if self.read_only {
            options.access = Some(ReadWrite::Read);
        }
        let settled = options.settle();
        settled.map_err(|error| Report::on("cannot mount", self.image().as_bytes(), error))?;
        Ok(options)
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(directory) = &args.status {
        return status::run(directory.as_deref(), context);
    }
    if let Some(directory) = &args.upgrade {
        let done = match (args.dry_run, args.foreground || args.detached) {
            (true, _) => upgrade::try_out(directory, context),
            (false, true) => upgrade::take(args, directory, context),
            (false, false) => start::start(args, context),
        };
        if let Err(report) = done {
            context.warn(&report);
        }
        return Ok(());
    }
    if args.revived {
        if let Err(report) = failover::revive(context) {
            context.warn(&report);
        }
        return Ok(());
    }
    let options = args.mount_options(context.options().shown())?;
    if options.remount {
        return remount::run(args).map_err(Into::into);
    }
    let address = Address::parse(args.image()).map_err(Report::plain)?;
    if obento::server_of(&address.image).is_some() {
        return Err(crate::open::needs_image(&address.image).into());
    }
    if address.place.is_some() {
        let report = Report::on("cannot mount", args.image().as_bytes(), "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    let done = match args.foreground || args.detached {
        true if args.all => all::serve(args, &address, &options, context),
        true if !args.kept && options.failover.is_some() => keeper::run(args, options.failover, context),
        true => server::serve(args, &address, options, context),
        false => start::start(args, context),
    };
    if let Err(report) = done {
        context.warn(&report);
    }
    Ok(())
}
