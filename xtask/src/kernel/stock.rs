//! Debian's stock kernel in QEMU, without KVM: its image and modules come from the package of the same version as the headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use super::guest::Start;
use crate::packages::{self, Package};

const QEMU: &[Package] = &[("/usr/bin/qemu-system-x86_64", "qemu-system-x86"), ("/usr/bin/kmod", "kmod")];
/// The modules of the kernel that a guest loads before the module under test: its disks, the checksums of the processor,
/// and the kernel's own ext4, with which results are compared.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_intel", "ext4"];
/// The folders of modules that contain these, and what they depend on.
const PARTS: [&str; 6] = ["arch", "crypto", "lib", "fs", "drivers/block", "drivers/virtio"];
/// MiB that this kernel, its modules and the initial RAM disk need more than user-mode-linux.
const MORE_MEMORY: u32 = 80;

/// An image that QEMU starts.
pub struct Stock {
    image: PathBuf,
    /// The modules to load, in this order.
    pub modules: Vec<PathBuf>,
}

impl Stock {
    /// Fetches the kernel `release` into `folder`, unless it is there.
    pub fn new(shell: &Shell, folder: &Path, release: &str, module: &Path) -> Result<Self> {
        packages::ensure(shell, QEMU)?;
        let here = folder.join(release);
        if !here.join("ready").exists() {
            fetch(shell, &here, release)?;
            fs::write(here.join("ready"), "")?;
        }
        let depends = cmd!(shell, "/sbin/modinfo -F depends {module}").quiet().read()?;
        let mut modules = Vec::new();
        for name in MODULES.into_iter().chain(depends.split(',').filter(|name| !name.is_empty())) {
            let lines = cmd!(shell, "/sbin/modprobe -d {here} -S {release} -D {name}").quiet().read()?;
            modules.extend(insertions(&lines));
        }
        Ok(Self { image: here.join("boot").join(format!("vmlinuz-{release}")), modules: first_of(modules) })
    }

    /// The command that starts the kernel. QEMU ends when the guest ends or crashes.
    pub fn command(&self, initrd: &Path, start: &Start<'_>) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        // A processor that is emulated moves single bytes as fast as words: strings are moved by words, as everywhere else.
        command.args(["-cpu", "max,-erms,-fsrm", "-m", &(start.memory + MORE_MEMORY).to_string()]);
        if start.counts {
            // One processor whose clock advances by a nanosecond per instruction.
            command.args(["-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=0,sleep=off"]);
        } else {
            command.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
        }
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(initrd);
        for (number, disk) in start.disks.iter().enumerate() {
            // The image outlives the guest, not the machine: QEMU need not sync it.
            let file = disk.display();
            match start.log.as_ref().filter(|_| number == 0) {
                Some(log) => {
                    let log = format!("log.driver=file,log.filename={},log-sector-size=512", log.display());
                    let logged = format!("driver=blklogwrites,file.driver=file,file.filename={file},{log}");
                    command.arg("-blockdev").arg(format!("node-name=d{number},{logged}"));
                }
                None => {
                    let drive = format!("if=none,id=d{number},format=raw,cache=unsafe,file={file}");
                    command.arg("-drive").arg(drive);
                }
            }
            command.arg("-device").arg(format!("virtio-blk-pci,drive=d{number}"));
        }
        // The clock of the processor is exact then, which the kernel cannot know.
        // Otherwise, each allocation is checked for use after its end, and for writes past its bounds.
        let more = if start.counts { "tsc=reliable" } else { "slub_debug=FZPU" };
        let words = format!("{more} obento.case={} {}", start.case, start.words.join(" "));
        // On a busy machine, the emulated timer is late, and the kernel would report it as broken.
        command.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 oops=panic no_timer_check {words}"));
        command
    }
}

/// Unpacks the image and the modules that a guest may need, and lists what the modules depend on.
fn fetch(shell: &Shell, here: &Path, release: &str) -> Result<()> {
    let version = cmd!(shell, "dpkg-query -W -f '${Version}' linux-headers-{release}").read()?;
    shell.remove_path(here)?;
    shell.create_dir(here)?;
    let _folder = shell.push_dir(here);
    cmd!(shell, "apt-get download -qq linux-image-{release}={version}").ignore_stderr().run()?;
    let package =
        shell.read_dir(".")?.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package
        .with_context(|| format!("linux-image-{release}={version} cannot be downloaded: apt-get update"))?;
    let modules = format!("./lib/modules/{release}");
    let parts = PARTS.iter().map(|part| format!("{modules}/kernel/{part}"));
    let files = [format!("./boot/vmlinuz-{release}")].into_iter().chain(parts);
    let script = "dpkg --fsys-tarfile \"$0\" | tar -x --wildcards \"$@\"";
    cmd!(shell, "sh -c {script} {package} {files...} {modules}/modules.*").run()?;
    shell.remove_path(package)?;
    cmd!(shell, "/sbin/depmod -b . {release}").run()?;
    Ok(())
}

/// The paths in the output of `modprobe --show-depends`: `insmod /lib/modules/6.1.0/kernel/fs/ext4/ext4.ko`.
fn insertions(lines: &str) -> impl Iterator<Item = PathBuf> {
    lines.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|path| PathBuf::from(path.trim()))
}

/// The list without repetitions.
fn first_of(modules: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = std::collections::BTreeSet::new();
    modules.into_iter().filter(|module| seen.insert(module.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_once_and_after_the_modules_that_they_need() {
        let one = "insmod /m/virtio.ko \ninsmod /m/virtio_ring.ko \ninsmod /m/virtio_pci.ko \n";
        let two = "builtin scsi\ninsmod /m/virtio.ko \ninsmod /m/virtio_blk.ko \n";
        let modules = first_of(insertions(one).chain(insertions(two)).collect());
        let names: Vec<_> = modules.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_pci", "virtio_blk"]);
    }
}
