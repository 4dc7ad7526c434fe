//! A kernel with the module and a test program as its first process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use obento_linux_wire::registers;
use xshell::{Shell, cmd};

use super::stock::Stock;

/// The program in the guest ends its output with this.
const LAST: &str = "obento-guest: ";
/// How many times longer a case may take on a processor that is emulated.
const SLOWER: u32 = 10;

/// A guest that can be started.
pub struct Guest {
    initrd: PathBuf,
    /// Folder of the console, and of the files of user-mode-linux.
    folder: PathBuf,
    /// The stock kernel; user-mode-linux without one.
    stock: Option<Stock>,
    /// Folder of the program, and of the judge of [`GuestProgram::Hosts`].
    pub programs: PathBuf,
}

/// The program of a guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum GuestProgram {
    /// The cases of this folder.
    Cases,
    /// Also the cases of `obento_testkit::hosts`, which catch panics.
    Hosts,
}

impl GuestProgram {
    /// Builds the program, and returns the folder that contains it.
    fn build(self, shell: &Shell) -> Result<PathBuf> {
        let _flags = shell.push_env("RUSTFLAGS", "-C target-feature=+crt-static");
        let folder = shell.current_dir().join("target/kernel/guest");
        let profile = if self == Self::Hosts { "try" } else { "agent" };
        let features: &[&str] = if self == Self::Hosts { &["--features", "hosts"] } else { &[] };
        let target = ["--target", "x86_64-unknown-linux-gnu"];
        cmd!(
            shell,
            "cargo build --quiet --locked -p obento-kernel-guest {features...} --profile {profile} {target...} --target-dir {folder}"
        )
        .run()?;
        Ok(folder.join("x86_64-unknown-linux-gnu").join(profile))
    }
}

/// How to start a guest.
#[derive(Clone)]
pub struct Start<'a> {
    /// The case to run.
    pub case: &'a str,
    /// Further words of the kernel command line: `obento.type=obento-fat`.
    pub words: Vec<String>,
    /// Memory in MiB.
    pub memory: u32,
    pub disks: Vec<PathBuf>,
    pub limit: Duration,
    /// Whether the clock of the stock kernel counts instructions.
    pub counts: bool,
    /// The file to which QEMU writes the log of the first disk's writes.
    pub log: Option<PathBuf>,
}

impl<'a> Start<'a> {
    pub fn new(case: &'a str, disks: &[&Path]) -> Self {
        let disks = disks.iter().map(|&disk| disk.to_owned()).collect();
        Self {
            case,
            words: Vec::new(),
            memory: 256,
            disks,
            limit: Duration::from_secs(300),
            counts: false,
            log: None,
        }
    }

    #[must_use]
    pub fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }
}

impl Guest {
    /// Builds the program, and packs it with the module, what the kernel needs before it, and modules with drivers.
    pub fn new(
        shell: &Shell,
        module: &Path,
        drivers: &[PathBuf],
        target: &Path,
        stock: Option<Stock>,
        program: GuestProgram,
    ) -> Result<Self> {
        let programs = program.build(shell)?;
        let mut archive = Vec::new();
        for folder in ["dev", "proc", "sys", "tmp", "m", "n", "modules", "drivers"] {
            entry(&mut archive, folder, 0o040_755, &[]);
        }
        entry(&mut archive, "init", 0o100_755, &fs::read(programs.join("obento-kernel-guest"))?);
        entry(&mut archive, "obento.ko", 0o100_644, &fs::read(module)?);
        for driver in drivers {
            let name = driver.file_name().unwrap_or_default().to_string_lossy();
            entry(&mut archive, &format!("drivers/{name}"), 0o100_644, &fs::read(driver)?);
        }
        for (number, module) in stock.iter().flat_map(|stock| &stock.modules).enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            entry(&mut archive, &format!("modules/{number:02}-{name}"), 0o100_644, &fs::read(module)?);
        }
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        fs::create_dir_all(target)?;
        let initrd = target.join("initrd");
        fs::write(&initrd, archive)?;
        let folder = target.join("run");
        fs::create_dir_all(&folder)?;
        Ok(Self { initrd, folder, stock, programs })
    }

    /// Runs a case, and returns its output. Fails if the case fails, or if the kernel crashes or hangs.
    pub fn run(&self, start: &Start<'_>) -> Result<String> {
        let (output, reason) = self.output(start)?;
        match reason {
            None => Ok(output),
            Some(reason) => {
                eprintln!("{output}");
                bail!("{}: {reason}", start.case)
            }
        }
    }

    /// Runs a case, and returns its output and the reason of a failure.
    pub fn output(&self, start: &Start<'_>) -> Result<(String, Option<String>)> {
        let log = self.folder.join("console");
        let mut command = match &self.stock {
            Some(stock) => stock.command(&self.initrd, start),
            None => self.uml(start),
        };
        command.stdin(Stdio::null()).stdout(File::create(&log)?).stderr(Stdio::null());
        let started = registers::on_limited_thread(|| command.spawn());
        let mut child =
            started.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let limit = start.limit * if self.stock.is_some() { SLOWER } else { 1 };
        let began = Instant::now();
        let ended = loop {
            if child.try_wait()?.is_some() {
                break true;
            }
            if began.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                break false;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let last = output.lines().rev().find_map(|line| line.trim().strip_prefix(LAST));
        let reason = match last {
            Some("ok") => None,
            Some(reason) => Some(reason.to_owned()),
            None if ended => Some("the kernel ended without an outcome".to_owned()),
            None => Some(format!("no end after {} seconds", limit.as_secs())),
        };
        Ok((output, reason))
    }

    /// The command that starts user-mode-linux.
    pub fn uml(&self, start: &Start<'_>) -> Command {
        let mut command = Command::new("linux.uml");
        command.arg(format!("mem={}M", start.memory)).arg(format!("initrd={}", self.initrd.display()));
        command.arg(format!("uml_dir={}/", self.folder.display()));
        command.args(["con=null", "con0=null,fd:1", "quiet", "panic=-1", "oops=panic", "pty.legacy_count=0"]);
        // Self-tests of the kernel that take longer than a case.
        command.arg("initcall_blacklist=raid6_select_algo,strp_dev_init,init_zswap,init_hostfs");
        let disks = start.disks.iter().zip('a'..);
        command.args(disks.map(|(disk, letter)| format!("ubd{}={}", letter as u8 - b'a', disk.display())));
        command.arg(format!("obento.case={}", start.case)).args(&start.words);
        command.args(registers::exceed_kernel().then_some(registers::BASELINE));
        // A container often has 64 MiB there, and a guest that exceeds them ends with SIGBUS.
        let memory = Path::new("/dev/shm");
        let has_room = free_bytes(memory) > u64::from(start.memory) << 20;
        command.env("TMPDIR", if has_room { memory } else { &self.folder });
        command
    }
}

/// Appends a file to an archive of the kernel's format. Source: Documentation/driver-api/early-userspace/buffer-format.rst.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) {
    let pad = |archive: &mut Vec<u8>| archive.resize(archive.len().next_multiple_of(4), 0);
    let links = if mode & 0o040_000 != 0 { 2 } else { 1 };
    let (number, len) = (archive.len(), bytes.len());
    let name_len = name.len() + 1;
    let fields = [number, mode as usize, 0, 0, links, 0, len, 0, 0, 0, 0, name_len, 0];
    archive.extend(b"070701");
    fields.iter().for_each(|field| archive.extend(format!("{field:08X}").bytes()));
    archive.extend(name.bytes().chain([0]));
    pad(archive);
    archive.extend(bytes);
    pad(archive);
}

/// Creates an empty file of `mib` MiB.
pub fn empty(path: &Path, mib: u64) -> Result<()> {
    Ok(File::create(path)?.set_len(mib << 20)?)
}

/// Fails unless `e2fsck` finds nothing.
pub fn e2fsck(shell: &Shell, image: &Path) -> Result<()> {
    let output = cmd!(shell, "e2fsck -fn {image}").quiet().ignore_status().output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "e2fsck of {}:\n{text}", image.display());
    Ok(())
}

/// Returns the free space of the file system of `folder`, or 0 if it is unknown.
fn free_bytes(folder: &Path) -> u64 {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_lists_the_entries_of_an_archive() {
        let mut archive = Vec::new();
        entry(&mut archive, "dir", 0o040_755, &[]);
        entry(&mut archive, "dir/file", 0o100_644, b"hello");
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        assert_eq!(archive.len() % 4, 0);
        assert!(archive.starts_with(b"07070100000000000041ED"));
        let second = &archive[archive.windows(8).position(|part| part == b"dir/file").unwrap() - 110..];
        assert!(second.starts_with(b"070701"));
        assert_eq!(&second[54..62], b"00000005");
    }
}
