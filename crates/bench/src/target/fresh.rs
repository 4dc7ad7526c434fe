//! A fresh file system of a target, to run a workload in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::driver::Keeps;
use obento::{Image, Options, Registry, Volume};

use super::mounted::{Mounted, is_mount_point};
use super::zram::Zram;
use super::{Mount, Target};
use crate::error::{During as _, command_of, run};
use crate::files::{Files, HostFiles, ImageFiles};
use crate::{BenchError, Result};

/// Where fresh file systems lie.
#[derive(Clone, Debug)]
pub struct Ground {
    /// A folder of the host with room for the images.
    pub folder: PathBuf,
    /// Bytes of each file system.
    pub size: u64,
    /// The command obento.
    pub obento: PathBuf,
    /// The drivers of targets that are images.
    pub registry: Registry,
    /// Whether images are disks of zram in place of files of the folder.
    pub zram: bool,
}

impl Ground {
    fn image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    fn at(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Names the disk of zram that is there.
    fn note(&self) -> PathBuf {
        self.folder.join("zram")
    }

    /// The folder of its own in a directory that was there before.
    fn within(&self, path: &Path) -> PathBuf {
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        // The folder of the images may lie in the same directory.
        name.push("-files");
        path.join(name)
    }

    /// Takes away what a run left that was killed.
    pub fn clear(&self, target: &str) {
        if let Ok(Target::Path(path)) = target.parse() {
            let _ = fs::remove_dir_all(self.within(&path));
        }
        if is_mount_point(&self.at()).unwrap_or(true) {
            // Whoever still uses it is not waited for.
            let _ = run(command_of("umount").arg("-l").arg(self.at()));
        }
        let _ = fs::remove_file(self.image());
        Zram::clear(&self.note());
    }
}

/// A file system under test. It is taken away when this is dropped.
pub struct Bed {
    target: Target,
    ground: Ground,
    state: State,
    /// The options of a mount by which an ordinary user owns its files.
    own: String,
    zram: Option<Zram>,
}

enum State {
    /// A folder of its own in a directory that was there before.
    Folder(PathBuf),
    Volume(Volume),
    Mounted(Mounted),
    /// Between two states, or after an error.
    Closed,
}

impl Bed {
    /// Makes a file system of `target` and opens it. Errors: Absent if that is not possible on this machine.
    pub fn fresh(target: &Target, ground: &Ground) -> Result<Self> {
        let mut bed = Self {
            target: target.clone(),
            ground: ground.clone(),
            state: State::Closed,
            own: String::new(),
            zram: None,
        };
        if let Target::Path(path) = target {
            let folder = ground.within(path);
            fs::create_dir(&folder).during("create", &folder)?;
            bed.state = State::Folder(folder);
            return Ok(bed);
        }
        if ground.zram && !matches!(target, Target::Command(_)) {
            bed.zram = Some(Zram::new(ground.size, &ground.note())?);
        }
        bed.format()?;
        bed.own = bed.give_to_user()?;
        bed.open()?;
        Ok(bed)
    }

    /// The image: a file, or a disk.
    fn image(&self) -> PathBuf {
        self.zram.as_ref().map_or_else(|| self.ground.image(), Zram::path)
    }

    fn format(&self) -> Result<()> {
        let image = self.image();
        let make = |program: &Path, arguments: &[&str]| {
            if self.zram.is_none() {
                let file = File::create(&image).during("create", &image)?;
                file.set_len(self.ground.size).during("set the length of", &image)?;
            }
            run(command_of(program).args(arguments).arg(&image)).map(drop)
        };
        match &self.target {
            Target::Path(_) | Target::Command(_) => Ok(()),
            // What the driver measures is its own; the layout is mke2fs' byte for byte.
            Target::Image(Mount { kind, .. }) | Target::Fuse(Mount { kind, .. }) => {
                make(&self.ground.obento, &["mkfs", "-t", kind, "-q"])
            }
            Target::Kernel(Mount { kind, .. }) if kind.starts_with("ext") => {
                make("mke2fs".as_ref(), &mke2fs(kind))
            }
            Target::Fuse2fs => make("mke2fs".as_ref(), &mke2fs("ext4")),
            Target::Kernel(Mount { kind, .. }) => make(format!("mkfs.{kind}").as_ref(), &[]),
        }
    }

    /// Lets an ordinary user create files in a mount of obento's. Returns the options of the mount that are needed for that.
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
        let volume = open_volume(&self.image(), kind, &self.ground.registry)?;
        let has_owners = volume.file_system().limits().keeps.contains(Keeps::OWNERS);
        if has_owners {
            volume.chown("/", Some(uid), Some(gid)).map_err(|error| failed(&error))?;
        }
        volume.close().map_err(|error| failed(&error))?;
        Ok(if has_owners { String::new() } else { format!("uid={uid},gid={gid}") })
    }

    fn open(&mut self) -> Result<()> {
        let image = self.image();
        self.state = match &self.target {
            Target::Path(_) => return Ok(()),
            Target::Image(mount) => State::Volume(open_volume(&image, &mount.kind, &self.ground.registry)?),
            target => State::Mounted(Mounted::new(
                target,
                &image,
                (&self.ground.at(), &self.own),
                &self.ground.obento,
            )?),
        };
        Ok(())
    }

    /// What is measured.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Its files.
    pub fn files(&self) -> Result<Arc<dyn Files>> {
        match (&self.state, self.path()) {
            (State::Volume(volume), _) => Ok(Arc::new(ImageFiles::new(volume.clone()))),
            (_, Some(path)) => Ok(Arc::new(HostFiles::new(path))),
            _ => Err(BenchError::Absent(format!("{} is not open", self.target))),
        }
    }

    /// The folder at which programs find its files; a driver in process has none.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.state {
            State::Folder(folder) => Some(folder.clone()),
            State::Mounted(_) => Some(self.ground.at()),
            State::Volume(_) | State::Closed => None,
        }
    }

    /// The servers in user space.
    pub fn servers(&self) -> &[u32] {
        match &self.state {
            State::Mounted(mounted) => &mounted.servers,
            _ => &[],
        }
    }

    /// The file that the file system lies in, if it has one.
    pub fn backing(&self) -> Option<PathBuf> {
        Some(self.image()).filter(|image| image.exists())
    }

    /// Unmounts, so that everything is in the image. A directory that was there before stays.
    pub fn close(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Mounted(mounted) => mounted.end(),
            State::Volume(volume) => volume.close().map_err(|error| BenchError::Program {
                program: self.target.to_string(),
                message: error.to_string(),
            }),
            kept @ (State::Folder(_) | State::Closed) => {
                self.state = kept;
                Ok(())
            }
        }
    }

    /// Leaves nothing of the files in memory: what can be unmounted is, and opened again; the host forgets its pages where
    /// it may be told to, and the image in any case.
    pub fn cool(&mut self) -> Result<()> {
        self.files()?.sync().during("sync", self.target.to_string())?;
        self.close()?;
        if let Some(backing) = self.backing() {
            let file = File::open(&backing).during("open", &backing)?;
            file.sync_all().during("sync", &backing)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .during("let go of", &backing)?;
        }
        // Only root may; for others the caches of a directory stay as they are, and the result says so.
        if fs::write("/proc/sys/vm/drop_caches", "3").is_err() && matches!(self.target, Target::Path(_)) {
            return Err(BenchError::Absent(format!(
                "{} needs root, to drop the caches of the host",
                self.target
            )));
        }
        self.open()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let State::Folder(folder) = &self.state {
            let _ = fs::remove_dir_all(folder);
        }
        self.state = State::Closed;
        let _ = fs::remove_file(self.ground.image());
        if self.zram.take().is_some() {
            let _ = fs::remove_file(self.ground.note());
        }
    }
}

/// Nothing is left to be done in the background of a mount.
fn mke2fs(kind: &str) -> [&str; 6] {
    ["-q", "-F", "-t", kind, "-E", "lazy_itable_init=0,lazy_journal_init=0"]
}

fn open_volume(image: &Path, kind: &str, registry: &Registry) -> Result<Volume> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Program {
        program: format!("opening {}", image.display()),
        message: error.to_string(),
    };
    let options = Options { fs_type: Some(kind.to_owned()), ..Options::default() }.for_change();
    let opened = Image::open(image, registry, &options).map_err(|error| failed(&error))?;
    opened.volume(None).map_err(|error| failed(&error))
}
