//! Fast commits, which the kernel's own ext4 writes, and which the module replays.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::MountFlags;

use crate::machine::{Machine, check_log, disk, mount_as, power_off, umount};

/// Changes files through the kernel's own ext4, and ends without unmounting. The changes are in fast commits only.
pub fn write() -> Result<()> {
    mount_as("ext4", 0, "/m", MountFlags::empty(), "")?;
    for number in 0..20 {
        fs::write(format!("/m/old{number}"), vec![1; 60_000])?;
    }
    fs::create_dir("/m/dir")?;
    rustix::fs::sync();
    for number in 0..10 {
        fs::remove_file(format!("/m/old{number}"))?;
        fs::write(format!("/m/dir/new{number}"), vec![2; 5000])?;
    }
    fs::rename("/m/old10", "/m/dir/moved")?;
    OpenOptions::new().write(true).open("/m/old11")?.set_len(10)?;
    for name in ["old11", "dir/new0", "dir/new9", "dir/moved"] {
        File::open(format!("/m/{name}"))?.sync_all()?;
    }
    let name = disk(0);
    let info = fs::read_to_string(format!("/proc/fs/ext4/{}/fc_info", name.trim_start_matches("/dev/")))?;
    let commits =
        info.lines().find_map(|line| line.strip_suffix(" commits")).context("no count of commits")?;
    ensure!(commits != "0", "no fast commit was written:\n{info}");
    check_log()?;
    println!("obento-guest: ok");
    power_off()
}

/// Opens the volume of [`write()`].
pub fn replay(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "")?;
    for number in 0..10 {
        ensure!(!Path::new(&format!("/m/old{number}")).exists(), "old{number} exists again");
    }
    ensure!(fs::read("/m/dir/new0")? == vec![2; 5000], "a synced file changed");
    ensure!(fs::read("/m/dir/moved")? == vec![1; 60_000], "a moved file changed");
    ensure!(fs::read("/m/old11")? == [1; 10], "a truncated file changed");
    umount("/m")
}
