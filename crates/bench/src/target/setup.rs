//! The place of the file systems under test, and what a killed run leaves there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use obento::Registry;

use super::Target;
use super::export::ExportFolder;
use super::mounted::is_mount_point;
use super::zram::Zram;
use crate::error::{command_of, run};

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
    /// Returns the path of the image of a fresh file system.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    /// Returns the mount point.
    pub(super) fn at(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Returns the path of the file that contains the name of the zram disk.
    pub(super) fn note(&self) -> PathBuf {
        self.folder.join("zram")
    }

    /// Returns the name of the folder of a target that is an existing directory.
    pub(super) fn name(&self) -> OsString {
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        // The folder of the images may be in the same directory.
        name.push("-files");
        name
    }

    /// Returns the folder of a `path:` target, inside the given directory.
    pub(super) fn within(&self, path: &Path) -> PathBuf {
        path.join(self.name())
    }

    /// Removes the mount and the image that a killed run left.
    pub fn clear(&self) {
        if is_mount_point(&self.at()).unwrap_or(true) {
            // The unmount does not wait for processes that still use the mount.
            let _ = run(command_of("umount").arg("-l").arg(self.at()));
        }
        let _ = fs::remove_file(self.image());
        Zram::clear(&self.note());
    }

    /// Removes the folder that a killed run left in the existing directory or export of `target`.
    pub fn clear_folder(&self, target: &str) {
        match target.parse() {
            Ok(Target::Path(path)) => {
                let _ = fs::remove_dir_all(self.within(&path));
            }
            Ok(Target::Export(address)) => {
                let _ = ExportFolder::remove(&address, &self.name().to_string_lossy());
            }
            _ => {}
        }
    }
}
