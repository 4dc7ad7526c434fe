//! Other implementations of formats that the kernel of this machine may lack: exfat-fuse, and Linux as a process (User
//! Mode Linux) with its FAT driver.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use obento_linux_wire::registers;

use crate::oracle::{Oracle, call, program, require, run};

/// Returns whether exFAT volumes can be mounted.
pub fn has_exfat() -> bool {
    let programs = [Oracle::Program("mount.exfat-fuse"), Oracle::Program("fsck.exfat")];
    require(&[Oracle::Fuse, Oracle::LoopMount]) && require(&programs)
}

/// Mounts the exFAT volume at byte `offset` of `image` by exfat-fuse, for `look`, after `fsck.exfat` found no damage. A
/// failure is reported after the unmount. The mount uses a block device, as mount(8) does, so that partitions can be
/// mounted.
pub fn exfat(image: &Path, offset: u64, options: &str, look: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let offset = offset.to_string();
    let words = ["-f".as_ref(), "--show".as_ref(), "-o".as_ref(), OsStr::new(&offset), image.as_os_str()];
    let device = call("losetup", words).expect("a loop device").stdout;
    let device = String::from_utf8(device).expect("a path");
    let device = device.trim();
    let sound = call("fsck.exfat", ["-n", device]);
    let mounted = run(program("mount.exfat-fuse").args(["-o", options, device]).arg(folder.path()));
    let looked = mounted.map(|_| {
        let looked = catch_unwind(AssertUnwindSafe(|| look(folder.path())));
        call("umount", [folder.path()]).expect("nothing is open there");
        looked
    });
    call("losetup", ["-d", device]).expect("it is free");
    sound.expect("a sound volume");
    looked.expect("it mounts").unwrap_or_else(|panic| resume_unwind(panic));
}

/// Returns whether Linux can run as a process.
pub fn has_linux() -> bool {
    require(&[Oracle::Root, Oracle::Program("linux.uml"), Oracle::Program("insmod")])
}

/// A type of volume for Linux as a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestType {
    /// FAT.
    Fat,
    /// ext4, with quota files.
    Ext4,
}

impl GuestType {
    fn name(self) -> &'static str {
        match self {
            Self::Fat => "vfat",
            Self::Ext4 => "ext4",
        }
    }

    /// The kernel modules that the type requires, below `kernel/fs`, each after its dependencies.
    fn modules(self) -> &'static str {
        match self {
            Self::Fat => "nls/nls_ascii nls/nls_cp437 fat/fat fat/vfat",
            Self::Ext4 => "quota/quota_tree quota/quota_v2",
        }
    }
}

/// Boots Linux as a process, which mounts the FAT volume in `image` with `options` and runs `script` there, as
/// [`linux_with`] does.
pub fn linux(image: &Path, options: &str, folder: &Path, script: &str) -> Result<String> {
    linux_with(GuestType::Fat, image, options, folder, script)
}

/// Boots Linux as a process, which mounts the volume in `image` with `options` and runs `script` there. The shell's `$WORK`
/// is `folder` of this machine. The rest of this machine is read-only to it. Fails with the message of the script or of
/// the mount.
pub fn linux_with(
    kind: GuestType,
    image: &Path,
    options: &str,
    folder: &Path,
    script: &str,
) -> Result<String> {
    let (name, modules) = (kind.name(), kind.modules());
    let at = |name: &str| folder.join(name);
    fs::write(at("script"), script)?;
    let init = format!(
        "#!/bin/sh
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
         mount -t proc none /proc
         # Many kernels have done this already.
         mount -t devtmpfs none /dev 2> /dev/null
         mount -t tmpfs none /mnt
         mkdir /mnt/work /mnt/volume && mount -t hostfs -o {folder} none /mnt/work
         (   set -e
             for module in {modules}; do insmod /usr/lib/uml/modules/$(uname -r)/kernel/fs/$module.ko; done
             mount -t {name} -o {options} /dev/ubda /mnt/volume
             cd /mnt/volume && WORK=/mnt/work sh -e /mnt/work/script
             cd / && umount /mnt/volume
             touch /mnt/work/done
         ) > /mnt/work/said 2>&1
         echo o > /proc/sysrq-trigger
         sleep 60
         ",
        folder = folder.display()
    );
    fs::write(at("init"), init)?;
    fs::set_permissions(at("init"), fs::Permissions::from_mode(0o755))?;
    let mut kernel = program("linux.uml");
    kernel.args(registers::exceed_kernel().then_some(registers::BASELINE));
    // Nothing is left in the user's home.
    kernel.env("HOME", folder).env("TMPDIR", folder).stdin(Stdio::null());
    kernel.args(["mem=128M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]);
    kernel.args(["con=null", "con0=null,fd:1", &format!("ubd0={}", image.display())]);
    let booted = registers::on_limited_thread(|| run(kernel.arg(format!("init={}", at("init").display()))))?;
    let said = fs::read_to_string(at("said"));
    let said = said.with_context(|| String::from_utf8_lossy(&booted.stdout).into_owned())?;
    ensure!(at("done").exists(), "Linux: {said}");
    Ok(said)
}
