//! Fresh file systems, in which workloads run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::driver::{Access, StoredProperties};
use obento::host::IoBackend;
use obento::image::Recording;
use obento::provenance::{Actor, FixedWho, LogOptions};
use obento::{Image, Options, Registry, Volume};

use super::export::ExportFolder;
use super::mounted::{Mounted, is_mount_point};
use super::zram::Zram;
use super::{Mount, Target};
use crate::error::{IoContext as _, command_of, run};
use crate::files::{Files, HostFiles, ImageFiles};
use crate::{BenchError, Result};

/// The place of fresh file systems.
#[derive(Clone, Debug)]
pub struct TargetSetup {
    /// A folder of the host for the images.
    pub folder: PathBuf,
    /// The size of each file system, in bytes.
    pub size: u64,
    /// The obento program.
    pub obento: PathBuf,
    /// The drivers of `image:` targets.
    pub registry: Registry,
    /// Whether images are zram disks instead of files in the folder.
    pub zram: bool,
}

impl TargetSetup {
    fn image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    fn at(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Returns the path of the file that contains the name of the zram disk.
    fn note(&self) -> PathBuf {
        self.folder.join("zram")
    }

    /// Returns the name of the folder of a target that is an existing directory.
    fn name(&self) -> OsString {
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        // The folder of the images may be in the same directory.
        name.push("-files");
        name
    }

    /// Returns the folder of a `path:` target, inside the given directory.
    fn within(&self, path: &Path) -> PathBuf {
        path.join(self.name())
    }

    /// Removes the files that a killed run left.
    pub fn clear(&self, target: &str) {
        match target.parse() {
            Ok(Target::Path(path)) => {
                let _ = fs::remove_dir_all(self.within(&path));
            }
            Ok(Target::Export(address)) => {
                let _ = ExportFolder::remove(&address, &self.name().to_string_lossy());
            }
            _ => {}
        }
        if is_mount_point(&self.at()).unwrap_or(true) {
            // The unmount does not wait for processes that still use the mount.
            let _ = run(command_of("umount").arg("-l").arg(self.at()));
        }
        let _ = fs::remove_file(self.image());
        Zram::clear(&self.note());
    }
}

/// A file system under test. It is removed on drop.
pub struct TestBed {
    target: Target,
    setup: TargetSetup,
    state: State,
    /// The mount options that give the files to an ordinary user.
    own: String,
    zram: Option<Zram>,
}

enum State {
    /// A folder inside an existing directory.
    Folder(PathBuf),
    Volume(Volume),
    Mounted(Mounted),
    Export(ExportFolder),
    /// Closed, between two states or after an error.
    Closed,
}

impl TestBed {
    /// Creates a file system of `target` and opens it. Fails with `Absent` if that is not possible on this machine.
    pub fn fresh(target: &Target, setup: &TargetSetup) -> Result<Self> {
        let mut bed = Self {
            target: target.clone(),
            setup: setup.clone(),
            state: State::Closed,
            own: String::new(),
            zram: None,
        };
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

    /// Fails with `Absent` for a driver of obento that cannot change volumes: workloads create files.
    fn expect_writable(&self) -> Result<()> {
        let (Target::Image(Mount { kind, .. }) | Target::Fuse(Mount { kind, .. })) = &self.target else {
            return Ok(());
        };
        match self.setup.registry.find(kind) {
            Some(driver) if driver.access() == Access::ReadOnly => Err(BenchError::Absent(format!(
                "obento reads {kind}, but does not write it, and workloads create files"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the path of the image: a file or a disk.
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
            Target::Path(_) | Target::Command(_) | Target::Export(_) => Ok(()),
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
        let image = self.image();
        self.state = match &self.target {
            Target::Path(_) | Target::Export(_) => return Ok(()),
            Target::Image(mount) => {
                let recording = recording(mount)?;
                State::Volume(open_volume(&image, &mount.kind, recording, &self.setup.registry)?)
            }
            target => State::Mounted(Mounted::new(
                target,
                &image,
                (&self.setup.at(), &self.own),
                &self.setup.obento,
            )?),
        };
        Ok(())
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
            State::Folder(folder) => Some(folder.clone()),
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

    /// Returns the file that contains the file system, if there is one.
    pub fn backing(&self) -> Option<PathBuf> {
        Some(self.image()).filter(|image| image.exists())
    }

    /// Unmounts, so that all changes are in the image. An existing directory stays. An export is connected again.
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
            kept @ (State::Folder(_) | State::Closed) => {
                self.state = kept;
                Ok(())
            }
        }
    }

    /// Drops the files from all caches: unmounts and mounts again if possible, and always drops the cached pages of the
    /// image. Makes the host drop its caches if this process may.
    pub fn cool(&mut self) -> Result<()> {
        self.files()?.sync().during("sync", self.target.to_string())?;
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
