//! The file systems in which workloads run: fresh ones, and existing ones that are only read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::driver::{Access, StoredProperties};
use obento::host::IoBackend;
use obento::image::Recording;
use obento::provenance::{Actor, FixedWho, LogOptions};
use obento::{Image, Options, Registry, Volume};

use super::export::{ExportFolder, connected};
use super::mounted::{MountCommand, Mounted};
use super::zram::Zram;
use super::{Mount, Reader, Target, TargetSetup};
use crate::error::{IoContext as _, command_of, run};
use crate::files::{Files, HostFiles, ImageFiles};
use crate::{BenchError, Result};

/// A file system under test. A fresh one is removed on drop, and an existing one is only closed.
pub struct TestBed {
    target: Target,
    setup: TargetSetup,
    state: State,
    origin: Origin,
    /// The mount options that give the files to an ordinary user.
    own: String,
    zram: Option<Zram>,
}

/// The origin of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// The run creates them.
    Run,
    /// They exist, and the run only reads them.
    User,
}

enum State {
    /// A folder inside an existing directory, which the run created.
    Folder(PathBuf),
    /// An existing directory.
    Directory(PathBuf),
    Volume(Volume),
    Mounted(Mounted),
    Export(ExportFolder),
    /// Closed, between two states or after an error.
    Closed,
}

impl TestBed {
    fn closed(target: &Target, setup: &TargetSetup, origin: Origin) -> Self {
        let (target, setup, own) = (target.clone(), setup.clone(), String::new());
        Self { target, setup, state: State::Closed, origin, own, zram: None }
    }

    /// Opens the existing files of `target`, which must [have files](Target::has_files), to read them.
    pub fn existing(target: &Target, setup: &TargetSetup) -> Result<Self> {
        let mut bed = Self::closed(target, setup, Origin::User);
        bed.open()?;
        Ok(bed)
    }

    /// Creates a file system of `target` and opens it. Fails with `Absent` if that is not possible on this machine.
    pub fn fresh(target: &Target, setup: &TargetSetup) -> Result<Self> {
        let mut bed = Self::closed(target, setup, Origin::Run);
        if let Target::Path(path) = target {
            let folder = setup.within(path);
            fs::create_dir(&folder).during("create", &folder)?;
            bed.state = State::Folder(folder);
            return Ok(bed);
        }
        if let Target::Export(address) = target {
            bed.state = State::Export(ExportFolder::create(address, &setup.name().to_string_lossy())?);
            return Ok(bed);
        }
        bed.expect_writable()?;
        if setup.zram && !matches!(target, Target::Command(_)) {
            bed.zram = Some(Zram::new(setup.size, &setup.note())?);
        }
        bed.format()?;
        bed.own = bed.give_to_user()?;
        bed.open()?;
        Ok(bed)
    }

    /// Fails with `Absent` for a driver of obento that cannot change volumes: each fresh file system needs files.
    fn expect_writable(&self) -> Result<()> {
        let (Target::Image(Mount { kind, .. }) | Target::Fuse(Mount { kind, .. })) = &self.target else {
            return Ok(());
        };
        match self.setup.registry.find(kind) {
            Some(driver) if driver.access() == Access::ReadOnly => Err(BenchError::Absent(format!(
                "obento reads {kind}, but does not write it, and this target requires new files; use the suite \
                 'read' on an existing image: image:./IMAGE"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the path of a fresh image: a file or a disk.
    fn image(&self) -> PathBuf {
        self.zram.as_ref().map_or_else(|| self.setup.image(), Zram::path)
    }

    fn format(&self) -> Result<()> {
        let image = self.image();
        let make = |program: &Path, arguments: &[&str]| {
            if self.zram.is_none() {
                let file = File::create(&image).during("create", &image)?;
                file.set_len(self.setup.size).during("set the length of", &image)?;
            }
            run(command_of(program).args(arguments).arg(&image)).map(drop)
        };
        match &self.target {
            Target::Path(_) | Target::Command(_) | Target::Export(_) | Target::Stored(_) => Ok(()),
            // The benchmark measures the driver; mke2fs creates the same layout byte for byte.
            Target::Image(Mount { kind, .. }) | Target::Fuse(Mount { kind, .. }) => {
                make(&self.setup.obento, &["mkfs", "-t", kind, "-q"])
            }
            Target::Kernel(Mount { kind, .. }) if kind.starts_with("ext") => {
                make("mke2fs".as_ref(), &mke2fs(kind))
            }
            Target::Fuse2fs => make("mke2fs".as_ref(), &mke2fs("ext4")),
            Target::Kernel(Mount { kind, .. }) => make(format!("mkfs.{kind}").as_ref(), &[]),
        }
    }

    /// Lets an ordinary user create files in a mount of obento. Returns the mount options that this requires.
    fn give_to_user(&self) -> Result<String> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let Target::Fuse(Mount { kind, .. }) = &self.target else { return Ok(String::new()) };
        if uid == 0 {
            return Ok(String::new());
        }
        let failed = |error: &dyn std::fmt::Display| BenchError::Program {
            program: format!("giving {} to the user", self.target),
            message: error.to_string(),
        };
        let volume = open_volume(&self.image(), kind, None, &self.setup.registry)?;
        let has_owners = volume.vfs().limits().keeps.contains(StoredProperties::OWNERS);
        if has_owners {
            volume.chown("/", Some(uid), Some(gid)).map_err(|error| failed(&error))?;
        }
        volume.close().map_err(|error| failed(&error))?;
        Ok(if has_owners { String::new() } else { format!("uid={uid},gid={gid}") })
    }

    fn open(&mut self) -> Result<()> {
        let (image, at, setup) = (self.image(), self.setup.at(), &self.setup);
        let mounted = |command| Mounted::new(command, &self.target, &at).map(State::Mounted);
        self.state = match (&self.target, self.origin) {
            (Target::Path(path), Origin::User) => {
                fs::read_dir(path).map(drop).during("list", path)?;
                State::Directory(path.clone())
            }
            (Target::Export(address), Origin::User) => State::Volume(connected(address, Access::ReadOnly)?),
            // A folder of the run stays open.
            (Target::Path(_) | Target::Export(_), Origin::Run) => return Ok(()),
            (Target::Stored(stored), _) if stored.reader == Reader::Driver => {
                State::Volume(stored.open(&setup.registry)?)
            }
            (Target::Stored(stored), _) => {
                mounted(stored.mount_command(&at, &setup.obento, &setup.registry)?)?
            }
            (Target::Image(mount), _) => {
                let recording = recording(mount)?;
                State::Volume(open_volume(&image, &mount.kind, recording, &setup.registry)?)
            }
            (target, _) => mounted(MountCommand::fresh(target, &image, (&at, &self.own), &setup.obento)?)?,
        };
        Ok(())
    }

    /// Returns whether the file system is new, so that the workload creates its files.
    pub fn is_fresh(&self) -> bool {
        self.origin == Origin::Run
    }

    /// Returns the target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the files.
    pub fn files(&self) -> Result<Arc<dyn Files>> {
        match (&self.state, self.path()) {
            (State::Volume(volume), _) => Ok(Arc::new(ImageFiles::new(volume.clone()))),
            (State::Export(export), _) => {
                let (volume, folder) = export.files();
                Ok(Arc::new(ImageFiles::within(volume, folder)))
            }
            (_, Some(path)) => Ok(Arc::new(HostFiles::new(path))),
            _ => Err(BenchError::Absent(format!("{} is not open", self.target))),
        }
    }

    /// Returns the folder in which programs find the files; `None` for a driver in this process.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.state {
            State::Folder(folder) | State::Directory(folder) => Some(folder.clone()),
            State::Mounted(_) => Some(self.setup.at()),
            State::Volume(_) | State::Export(_) | State::Closed => None,
        }
    }

    /// Returns the process IDs of the servers in user space.
    pub fn servers(&self) -> &[u32] {
        match &self.state {
            State::Mounted(mounted) => &mounted.servers,
            _ => &[],
        }
    }

    /// Returns the file that contains the file system, if it is known.
    pub fn backing(&self) -> Option<PathBuf> {
        let image = match &self.target {
            Target::Stored(stored) => stored.file().ok()?,
            _ => self.image(),
        };
        Some(image).filter(|image| image.exists())
    }

    /// Writes all changes to stable storage. Existing files have no changes.
    pub fn sync(&self) -> Result<()> {
        match self.origin {
            Origin::Run => self.files()?.sync().during("sync", self.target.to_string()),
            Origin::User => Ok(()),
        }
    }

    /// Unmounts, so that all changes are in the image. A directory stays. The export of a folder is connected again.
    pub fn close(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Mounted(mounted) => mounted.end(),
            State::Volume(volume) => volume.close().map_err(|error| BenchError::Program {
                program: self.target.to_string(),
                message: error.to_string(),
            }),
            State::Export(mut export) => {
                let reopened = export.reopen();
                self.state = State::Export(export);
                reopened
            }
            kept @ (State::Folder(_) | State::Directory(_) | State::Closed) => {
                self.state = kept;
                Ok(())
            }
        }
    }

    /// Drops the files from all caches: unmounts and mounts again if possible, and always drops the cached pages of the
    /// image. Makes the host drop its caches if this process may.
    pub fn cool(&mut self) -> Result<()> {
        self.sync()?;
        self.close()?;
        if let Some(backing) = self.backing() {
            let file = File::open(&backing).during("open", &backing)?;
            file.sync_all().during("sync", &backing)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .during("drop the cached pages of", &backing)?;
        }
        // Only root may drop the caches. For other users, the caches of a directory stay as they are, and the run is
        // reported as not possible.
        if fs::write("/proc/sys/vm/drop_caches", "3").is_err() && matches!(self.target, Target::Path(_)) {
            return Err(BenchError::Absent(format!(
                "{} requires root, to drop the caches of the host",
                self.target
            )));
        }
        self.open()
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        if let State::Folder(folder) = &self.state {
            let _ = fs::remove_dir_all(folder);
        }
        self.state = State::Closed;
        // This is never the image of the user, which is outside the folder of the run.
        let _ = fs::remove_file(self.setup.image());
        if self.zram.take().is_some() {
            let _ = fs::remove_file(self.setup.note());
        }
    }
}

/// Returns the options of mke2fs that avoid background work in the mount.
fn mke2fs(kind: &str) -> [&str; 6] {
    ["-q", "-F", "-t", kind, "-E", "lazy_itable_init=0,lazy_journal_init=0"]
}

/// Returns the recorder of a volume that this process opens with the option `provenance`, the only one of `image:`.
fn recording(mount: &Mount) -> Result<Option<Recording>> {
    match mount.options.as_str() {
        "" => Ok(None),
        "provenance" => {
            let this = Actor { pid: std::process::id(), ..Actor::default() }.with_comm(b"obento");
            Ok(Some(Recording { who: Arc::new(FixedWho(this)), log: LogOptions::default() }))
        }
        _ => Err(BenchError::NoTarget(format!("image:{mount}"))),
    }
}

fn open_volume(
    image: &Path,
    kind: &str,
    recording: Option<Recording>,
    registry: &Registry,
) -> Result<Volume> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Program {
        program: format!("opening {}", image.display()),
        message: error.to_string(),
    };
    let options =
        Options { fs_type: Some(kind.to_owned()), io: IoBackend::Auto, recording, ..Options::default() }
            .for_change();
    let opened = Image::builder()
        .registry(registry.clone())
        .options(options)
        .open(image)
        .map_err(|error| failed(&error))?;
    opened.volume(None).map_err(|error| failed(&error))
}
