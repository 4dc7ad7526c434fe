//! The options of `mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::driver::VolumeOptions;
use obento_fuse::options::{MountOptions, ReadWrite};

use crate::report::Report;

/// The options of `-o`, with their meaning.
const MOUNT_OPTIONS: &str = "\
Mount options:
  ro, rw                  read-only, or writable; the default is writable if the
                          image, its format and the driver can be written
  noatime, relatime, strictatime
                          when a read updates the access time; the default is
                          relatime
  sync                    each system call that changes the volume returns
                          when the change is durable
  data=MODE, commit=SECONDS, barrier=0|1
                          as for ext4; MODE is ordered (the default), journal or
                          writeback
  norecovery              ignore the journal; requires ro
  sb=N                    use the super block in block N
  allow_other             let other users use the mount
  fakeroot                give the user who mounts the volume the rights of root
                          on it
  suid, dev, exec         as for mount(8), also nosuid, nodev and noexec
  uid=, gid=, umask=, fmask=, dmask=, codepage=, iocharset=utf8, tz=UTC,
  time_offset=MINUTES     as for vfat, on volumes that store no owners,
                          permissions or time zone
  usrquota, grpquota, prjquota
                          enforce the limits of users, groups, projects
  discard                 FAT and exFAT: discard freed space
  keep_last_dots          exFAT: names may end with dots
  streams=user|none       NTFS: show alternate data streams as attributes
                          user.NAME (the default), or hide them
  subvolid=N              Btrfs, bcachefs: mount subvolume N
  provenance              record which process reads and changes which file
  show_provenance         like provenance, and show the log as read-only files
  failover[=N]            start another server if the server fails, except after
                          N failures within ten seconds (the default is 3)
  failover=systemd        with --foreground, in a service: systemd starts the
                          other server
  fsname=NAME             the name that mount(8) shows
  remount                 change ro, rw, suid, dev, exec and noatime of the mount
                          at DIR; IMAGE is ignored
  threads=N               the number of threads for requests that wait for the
                          disk; the default is 16
  no_writeback_cache      send each write to the server immediately
  io_uring=auto|on|off    whether requests arrive through io_uring";

/// Mount a volume at a directory, through FUSE
///
/// The command returns when the volume is mounted. `obento umount` ends the mount, and returns when all data
/// is on stable storage. Root mounts directly, other users through fusermount3. A FUSE server
/// (fuse:COMMAND:/) or an NFS export (nfs://HOST/EXPORT) is mounted read-only.
#[derive(clap::Args, Debug)]
#[command(after_help = MOUNT_OPTIONS)]
pub struct Args {
    /// The volume, or a file server
    #[arg(value_name = "IMAGE[@PART]", required_unless_present_any = ["upgrade", "status", "revived"])]
    image: Option<OsString>,
    /// The mount point
    #[arg(value_name = "DIR", required_unless_present_any = ["upgrade", "status", "revived"])]
    directory: Option<PathBuf>,
    /// Replace the server of the mount at DIR by this program, while programs use the mount. If this fails, the old server continues
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "directory", "options", "read_only", "status"])]
    pub upgrade: Option<PathBuf>,
    /// With --upgrade: replace nothing, and fail if the server cannot be replaced
    #[arg(long, requires = "upgrade", conflicts_with_all = ["image", "directory", "status"])]
    pub dry_run: bool,
    /// Print the state of the server of the mount at DIR, or of all mounts
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["directory", "options", "read_only", "sloppy", "log", "foreground"])]
    pub status: Option<Option<PathBuf>>,
    /// Mount options, separated by commas, from the list below
    #[arg(short, long, value_name = "LIST")]
    pub options: Vec<String>,
    /// Mount every partition of a disk that has a file system: partition 2 at DIR/2, and so on. `obento
    /// umount DIR` ends all these mounts
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
    /// Returns the first operand.
    pub fn operand(&self) -> Option<&Path> {
        self.image.as_deref().map(Path::new)
    }

    /// Returns the volume, which is required unless a mount is upgraded or examined.
    pub fn image(&self) -> &OsStr {
        self.image.as_deref().unwrap_or_default()
    }

    /// Returns the mount point, which is required as the volume is.
    pub fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new(""))
    }

    /// Returns the options of `-o` and `-r`.
    pub fn mount_options(&self, shown: VolumeOptions) -> Result<MountOptions, Report> {
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
