//! How fast the command is, as ratios: against the kernel's loop mount of the same image (mount and unmount counted),
//! against cp(1) of a file of the host, and against `fstool` where it is installed.
//!
//! `cargo bench -p obento-cli`. Takes root, for the mounts, and some 12 GiB in the folder of temporary files; the
//! image is in the page cache. Each figure is the best of three runs that take turns, because noise only ever adds.
//! `OBENTO_BENCH_FILES` and `OBENTO_BENCH_MIB` make it smaller.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use obento_testkit::oracle::{Oracle, call, program, require, run};

const ROUNDS: usize = 3;
const DIRECTORIES: u64 = 1000;

/// What one run took.
#[derive(Clone, Copy)]
struct Taken {
    time: Duration,
    /// Peak resident memory in KiB, as far as it was seen.
    memory: u64,
}

fn main() -> Result<()> {
    // `cargo test` builds and starts benchmarks too.
    if !std::env::args().any(|argument| argument == "--bench")
        || !require(&[Oracle::Program("mke2fs"), Oracle::LoopMount])
    {
        return Ok(());
    }
    let bench = Bench { folder: tempfile::tempdir()? };
    let files = setting("OBENTO_BENCH_FILES", 100_000)?;
    let mib = setting("OBENTO_BENCH_MIB", 4096)?;
    println!("{files} files in {DIRECTORIES} directories, and a file of {mib} MiB");
    bench.many_files(files)?;
    bench.one_file(mib)
}

fn setting(name: &str, default: u64) -> Result<u64> {
    std::env::var(name).map_or(Ok(default), |text| text.parse().with_context(|| name.to_string()))
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An image filled from the folder `tree`, which is removed.
    fn image(&self, name: &str, tree: &Path, inodes: u64, mib: u64) -> Result<PathBuf> {
        let image = self.path(name);
        File::create(&image)?.set_len(mib << 20)?;
        let mut mke2fs = program("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", &inodes.to_string(), "-d"]);
        run(mke2fs.arg(tree).arg(&image))?;
        fs::remove_dir_all(tree)?;
        Ok(image)
    }

    fn many_files(&self, files: u64) -> Result<()> {
        let tree = self.path("tree");
        let bytes: Vec<u8> = (0..16_384_u32).map(|n| (n % 251) as u8 + 1).collect();
        for directory in 0..DIRECTORIES {
            let directory = tree.join(format!("directory-{directory:04}"));
            fs::create_dir_all(&directory)?;
            for file in 0..files / DIRECTORIES {
                let len = [0, 90, 700, 3000, 9000][usize::try_from(file % 5)?];
                fs::write(directory.join(format!("file-{file:05}")), &bytes[..len])?;
            }
        }
        let image = self.image("many.img", &tree, files + 2 * DIRECTORIES, files / 32 + 256)?;
        let image = image.to_str().context("a temporary folder in UTF-8")?;
        let (mount, out) = (self.path("mount"), self.path("out"));
        fs::create_dir(&mount)?;
        let mounted = |then: &str| {
            let mount = mount.display();
            format!(
                "set -e; mount -o loop,ro '{image}' '{mount}'; {} umount '{mount}'",
                then.replace("MNT", &mount.to_string())
            )
        };
        let (root, to) = (format!("{image}:/"), out.display().to_string());
        self.compare(
            "ls -lR, against the kernel",
            0.5,
            obento(&["ls", "-lR", &root]),
            shell(&mounted("ls -lR 'MNT' > /dev/null;")),
        )?;
        self.compare(
            "cp -a of the tree, against the kernel",
            1.0,
            obento(&["cp", "-a", &root, &to]),
            shell(&mounted(&format!("cp -a 'MNT' '{to}';"))),
        )?;
        if require(&[Oracle::Program("fstool")]) {
            let tar = self.path("out/tree.tar").display().to_string();
            let other = move || {
                let mut command = program("fstool");
                command.args(["repack", image, &tar]);
                command
            };
            let tar = self.path("out/tree.tar").display().to_string();
            self.compare(
                "to a tar archive, against fstool",
                1.0,
                obento(&["export", image, "-o", &tar]),
                other,
            )?;
        }
        fs::remove_file(image)?;
        Ok(())
    }

    fn one_file(&self, mib: u64) -> Result<()> {
        let tree = self.path("tree");
        fs::create_dir(&tree)?;
        let mut file = File::create(tree.join("file"))?;
        let chunk: Vec<u8> =
            (0..1 << 20_u32).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        (0..mib).try_for_each(|_| file.write_all(&chunk))?;
        drop(file);
        call("cp", [tree.join("file"), self.path("plain")])?;
        let image = self.image("one.img", &tree, 1000, mib + mib / 16 + 64)?;
        let (from, plain) = (format!("{}:/file", image.display()), self.path("plain").display().to_string());
        let (to, copy) =
            (self.path("out/file").display().to_string(), self.path("out/copy").display().to_string());
        fs::create_dir_all(self.path("out"))?;
        self.compare(
            "cp of one file, against cp of a host file",
            1.0 / 0.9,
            obento(&["cp", &from, &to]),
            shell(&format!("cp '{plain}' '{copy}'")),
        )
    }

    /// Measures both in turns and prints what came out.
    fn compare(
        &self,
        what: &str,
        goal: f64,
        ours: impl Fn() -> Command,
        other: impl Fn() -> Command,
    ) -> Result<()> {
        let (mut best, mut best_other) = (self.measure(&ours)?, self.measure(&other)?);
        for _ in 1..ROUNDS {
            let (taken, other) = (self.measure(&ours)?, self.measure(&other)?);
            best.memory = best.memory.max(taken.memory);
            best.time = best.time.min(taken.time);
            best_other.time = best_other.time.min(other.time);
        }
        let (time, other) = (best.time.as_secs_f64(), best_other.time.as_secs_f64());
        let (ratio, mib) = (time / other, best.memory / 1024);
        println!(
            "{what:42} {time:7.3} s / {other:7.3} s = {ratio:.2} (goal: {goal:.2}), {mib} MiB (goal: 128)"
        );
        Ok(())
    }

    /// Runs a command once, with an empty folder `out` and nothing left to write.
    fn measure(&self, command: &impl Fn() -> Command) -> Result<Taken> {
        let out = self.path("out");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        fs::create_dir(&out)?;
        rustix::fs::sync();
        let start = Instant::now();
        let mut child = command().stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut memory = 0;
        // A look costs some microseconds; the kernel keeps the peak, so that rare ones are enough.
        let status = loop {
            memory = peak(child.id()).unwrap_or(memory);
            match child.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let time = start.elapsed();
        ensure!(status.success(), "{:?} failed", command());
        Ok(Taken { time, memory })
    }
}

/// The command that is measured, as it was built with this benchmark.
fn obento(arguments: &[&str]) -> impl Fn() -> Command {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.args(&arguments);
        command
    }
}

fn shell(script: &str) -> impl Fn() -> Command {
    let script = script.to_owned();
    move || {
        let mut command = program("sh");
        command.args(["-c", &script]);
        command
    }
}

/// `VmHWM` of a process, in KiB.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
