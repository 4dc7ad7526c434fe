//! Damaged volumes: each is mounted, walked, changed and unmounted. Any error is an answer; a bug of the kernel is not.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rustix::mount::MountFlags;

use crate::machine::{Machine, check_log, mount_as, umount};
use crate::tree;

/// Goes through all disks, or those of `obento.disks`.
pub fn all(machine: &Machine) -> Result<()> {
    let count: u8 = machine.value("disks").parse()?;
    for number in 0..count {
        for flags in [MountFlags::RDONLY, MountFlags::empty()] {
            let kind = if flags.is_empty() { "rw" } else { "ro" };
            match mount_as(machine.kind(), number, "/m", flags, "") {
                Ok(()) => {
                    let seen = tree::read(Path::new("/m")).map_or(0, |tree| tree.len());
                    let changed = if flags.is_empty() { change() } else { 0 };
                    umount("/m")?;
                    println!("disk {number} {kind}: {seen} files seen, {changed} changes");
                }
                Err(error) => println!("disk {number} {kind}: {error:#}"),
            }
            check_log()?;
        }
    }
    Ok(())
}

/// Changes what can be changed, in the root and in the first directories. Returns how many changes succeeded.
fn change() -> usize {
    let mut done = 0;
    let mut folders = vec![Path::new("/m").to_owned()];
    folders.extend(
        fs::read_dir("/m")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .take(20),
    );
    for folder in folders {
        let file = folder.join("obento-file");
        let moved = folder.join("obento-moved");
        done += usize::from(fs::write(&file, vec![7; 30_000]).is_ok());
        done += usize::from(fs::rename(&file, &moved).is_ok());
        done += usize::from(fs::create_dir(folder.join("obento-dir")).is_ok());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(50) {
            let path = entry.path();
            if fs::symlink_metadata(&path).is_ok_and(|stat| stat.is_file()) {
                let appended = fs::OpenOptions::new().append(true).open(&path);
                let appended = appended.and_then(|mut file| std::io::Write::write_all(&mut file, &[5; 9000]));
                done += usize::from(appended.is_ok());
                if let Ok(file) = fs::OpenOptions::new().write(true).open(&path) {
                    done += usize::from(file.set_len(100).is_ok());
                    done += usize::from(file.sync_all().is_ok());
                }
            }
        }
        done += usize::from(fs::remove_file(&moved).is_ok());
    }
    rustix::fs::sync();
    done
}
