//! Images on real mount points, and their checks.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// An image, and a folder to mount it on. When it is dropped, it is unmounted and checked by e2fsck.
pub struct Disk(TempDir);

impl Disk {
    /// Creates a disk of 256 MiB that is not mounted; `None` if an oracle is missing.
    pub fn new(options: &[&str]) -> Option<Self> {
        Self::sized("256M", options)
    }

    /// Creates a disk of `size` that is not mounted.
    pub fn sized(size: &str, options: &[&str]) -> Option<Self> {
        let needed = [Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Fuse];
        if !require(&needed) {
            return None;
        }
        let disk = Self(tempfile::Builder::new().prefix("obento-mount-").tempdir().unwrap());
        fs::create_dir(disk.at()).unwrap();
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(disk.image()).arg(size))
            .unwrap();
        Some(disk)
    }

    /// Creates a disk that is mounted.
    pub fn mounted(options: &str) -> Option<Self> {
        let disk = Self::new(&[])?;
        disk.mount(options);
        Some(disk)
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn image(&self) -> PathBuf {
        self.0.path().join("disk.img")
    }

    pub fn at(&self) -> PathBuf {
        self.0.path().join("mnt")
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.at().join(path)
    }

    pub fn obento(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    pub fn quietly(&self, args: &[&str]) {
        let output = self.obento(args);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args:?}");
    }

    #[track_caller]
    pub fn mount(&self, options: &str) {
        self.quietly(&["mount", "-o", options, "disk.img", "mnt"]);
    }

    /// Mounts the disk after its server was killed.
    #[track_caller]
    pub fn mount_after_kill(&self) {
        self.mount_after_kill_with("rw");
    }

    /// Mounts the disk after its server was killed, with these options.
    #[track_caller]
    pub fn mount_after_kill_with(&self, options: &str) {
        let output = self.obento(&["mount", "-o", options, "disk.img", "mnt"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }

    /// Unmounts the disk, of which this test has no file open.
    #[track_caller]
    pub fn umount(&self) {
        umount(self.folder());
    }

    /// Kills the server, and clears its mount.
    #[track_caller]
    pub fn kill(&self) {
        rustix::process::kill_process(self.server(), rustix::process::Signal::KILL).unwrap();
        self.clear_killed();
    }

    /// Clears the mount of a server that was killed.
    #[track_caller]
    pub fn clear_killed(&self) {
        wait_until("the end of the server", || fs::metadata(self.at()).is_err());
        // A process that is killed on a busy machine uses the mount until its last thread is gone.
        wait_until("the unmount", || {
            self.obento(&["umount", "--lazy", "mnt"]);
            !self.is_mounted()
        });
    }

    #[track_caller]
    pub fn fsck(&self) {
        let checked = run(program("e2fsck").args(["-f", "-n"]).arg(self.image()));
        assert!(checked.is_ok(), "{checked:?}");
    }

    pub fn is_mounted(&self) -> bool {
        let at = self.at().canonicalize().unwrap_or(self.at());
        obento_fuse::find_mount(&at).is_some()
    }

    /// Returns the process that serves the mount.
    pub fn server(&self) -> rustix::process::Pid {
        server_of(&self.image())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = self.obento(&["umount", "--lazy", "mnt"]);
            return;
        }
        if !std::thread::panicking() {
            self.fsck();
        }
    }
}

/// A server that is started with `args` in `folder`, and whose caller has ended: nothing reads its message that the mount
/// exists.
pub fn server_without_a_caller(folder: &Path, args: &[&str]) -> Command {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(["mount", "--detached"]).args(args);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    command
}

/// Unmounts `mnt` in `folder`, of which this test has no file open. A program that another test starts
/// inherits all files of this process until its exec(2), including those of this mount. Measured on a tmpfs:
/// umount(2) was then busy 37 times in 300, and never without such programs.
#[track_caller]
pub fn umount(folder: &Path) {
    wait_until("the unmount", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output =
            command.current_dir(folder).args(["umount", "mnt"]).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        let is_busy = output.status.code() == Some(1) && said.contains("a process uses the mount");
        assert!(is_busy || (output.status.code(), said.as_str()) == (Some(0), ""), "{output:?}");
        !is_busy
    });
}

/// Returns whether the kernel offers rings to new mounts. Root decides this.
pub fn offers_rings() -> bool {
    let offer = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    offer.trim() == "Y"
}

/// Returns the mount option of each transport for requests that the kernel offers.
pub fn transports() -> &'static [&'static str] {
    if offers_rings() { &["io_uring=off", "io_uring=on"] } else { &["io_uring=off"] }
}

/// Returns the process that has the image open.
pub fn server_of(path: &Path) -> rustix::process::Pid {
    let image = fs::metadata(path).unwrap().ino();
    let path = path.canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
            .any(|fd| fs::metadata(fd.path()).is_ok_and(|file| file.ino() == image))
    });
    rustix::process::Pid::from_raw(found.expect("a process has the image open")).unwrap()
}

/// Runs `obento` in `folder` and returns its output. Panics if it fails.
pub fn obento(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `is_so` returns true, for a minute at most, for conditions without an event.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60, "{what} did not come");
        std::thread::yield_now();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
