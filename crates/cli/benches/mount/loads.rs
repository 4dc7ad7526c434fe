//! The loads.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{program, run};

type Step = fn(&Path) -> Result<()>;

/// Returns whether the image is in the memory of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Warm,
    Cold,
}

/// The steps of a load, and the parts that are measured.
pub struct Load {
    pub name: &'static str,
    /// Done by the kernel, and not measured.
    pub before: Option<Step>,
    pub start: Start,
    /// Work of the measured side that is not measured.
    pub warm: Option<Step>,
    pub run: Step,
    pub also_fuse2fs: bool,
    /// The file is read only from the page cache.
    pub stays_cached: bool,
    /// The maximum ratio of the time to that of the kernel, ordered and journal, and the minimum ratio of the
    /// time of fuse2fs to it.
    pub aims: [Option<f64>; 3],
}

impl Load {
    /// The target in words.
    pub fn aim(&self) -> String {
        let [ordered, journal, fuse2fs] = self.aims;
        let parts = [
            ordered.map(|aim| format!("<= {aim:.2} ordered")),
            journal.map(|aim| format!("<= {aim:.2} journal")),
            fuse2fs.map(|aim| format!("{aim:.0} x fuse2fs")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

const BASE: Load = Load {
    name: "",
    before: None,
    start: Start::Warm,
    warm: None,
    run: |_| Ok(()),
    also_fuse2fs: true,
    stays_cached: false,
    aims: [None; 3],
};

/// The target: at least 0.7 of the rate of `ordered`, and 1.5 of `journal`.
const WRITES: [Option<f64>; 3] = [Some(1.43), Some(0.67), None];
const NAMES: [Option<f64>; 3] = [Some(2.5), None, Some(20.0)];

pub const LOADS: &[Load] = &[
    Load { name: "create", run: create, aims: NAMES, ..BASE },
    Load { name: "remove", before: Some(create), run: remove, aims: NAMES, ..BASE },
    Load {
        name: "find-cold",
        before: Some(many),
        start: Start::Cold,
        run: find,
        aims: [Some(2.0), None, None],
        ..BASE
    },
    Load { name: "find-again", before: Some(many), warm: Some(find), run: find, ..BASE },
    Load {
        name: "read-cached",
        before: Some(large),
        warm: Some(read),
        run: |at| (0..8).try_for_each(|_| read(at)),
        stays_cached: true,
        aims: [Some(1.05), None, None],
        ..BASE
    },
    Load { name: "write-4k", run: |at| write(at, 4 << 10), aims: WRITES, ..BASE },
    Load { name: "write-32k", run: |at| write(at, 32 << 10), aims: WRITES, ..BASE },
    Load { name: "write-128k", run: |at| write(at, 128 << 10), aims: WRITES, ..BASE },
    Load { name: "write-1m", run: |at| write(at, 1 << 20), aims: WRITES, ..BASE },
    Load { name: "random-4k", before: Some(large), run: |at| random(at, 4 << 10), aims: WRITES, ..BASE },
    Load { name: "random-32k", before: Some(large), run: |at| random(at, 32 << 10), aims: WRITES, ..BASE },
    Load { name: "random-128k", before: Some(large), run: |at| random(at, 128 << 10), aims: WRITES, ..BASE },
    Load { name: "random-1m", before: Some(large), run: |at| random(at, 1 << 20), aims: WRITES, ..BASE },
    Load { name: "varmail", run: varmail, aims: [None, Some(1.0), None], ..BASE },
    Load { name: "tar-x", run: unpack, also_fuse2fs: false, aims: [Some(2.0), None, None], ..BASE },
    Load {
        name: "tar-c",
        before: Some(unpack),
        start: Start::Cold,
        run: pack,
        also_fuse2fs: false,
        aims: [Some(2.0), None, None],
        ..BASE
    },
];

const FILES: usize = 20_000;
const MANY: usize = 100_000;
const LARGE: usize = 512 << 20;
pub const LARGE_NAME: &str = "large";

/// 20,000 files of 1 KiB in 20 directories.
fn create(at: &Path) -> Result<()> {
    fill(at, FILES, 20, &[b'x'; 1024])
}

/// 100,000 files without bytes in 100 directories.
fn many(at: &Path) -> Result<()> {
    fill(at, MANY, 100, &[])
}

fn fill(at: &Path, files: usize, directories: usize, bytes: &[u8]) -> Result<()> {
    for directory in 0..directories {
        let directory = at.join(format!("d{directory}"));
        fs::create_dir(&directory)?;
        for number in 0..files / directories {
            let mut file = File::create(directory.join(format!("{number:08}")))?;
            if !bytes.is_empty() {
                file.write_all(bytes)?;
            }
        }
    }
    Ok(())
}

fn remove(at: &Path) -> Result<()> {
    (0..20).try_for_each(|directory| Ok(fs::remove_dir_all(at.join(format!("d{directory}")))?))
}

fn find(at: &Path) -> Result<()> {
    let output = run(program("find").arg(at).arg("-ls"))?;
    let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
    ensure!(lines > MANY, "{lines} lines");
    Ok(())
}

fn large(at: &Path) -> Result<()> {
    write(at, 1 << 20)
}

/// 512 MiB in sequence, made durable.
fn write(at: &Path, size: usize) -> Result<()> {
    let file = File::create(at.join(LARGE_NAME))?;
    let bytes = vec![b'x'; size];
    (0..LARGE).step_by(size).try_for_each(|place| file.write_all_at(&bytes, place as u64))?;
    Ok(file.sync_all()?)
}

/// A quarter of 512 MiB at offsets that look random, made durable.
fn random(at: &Path, size: usize) -> Result<()> {
    let file = File::options().write(true).open(at.join(LARGE_NAME))?;
    let (mut place, bytes) = (1_usize, vec![b'y'; size]);
    for _ in 0..LARGE / 4 / size {
        // Knuth's MMIX generator.
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.write_all_at(&bytes, ((place >> 33) % (LARGE / size) * size) as u64)?;
    }
    Ok(file.sync_all()?)
}

fn read(at: &Path) -> Result<()> {
    let file = File::open(at.join(LARGE_NAME))?;
    let mut bytes = vec![0; 1 << 20];
    (0..LARGE).step_by(bytes.len()).try_for_each(|place| Ok(file.read_exact_at(&mut bytes, place as u64)?))
}

/// That of Filebench: 16 threads, each 100 times: remove; create, append 16 KiB, fsync; read, append 16 KiB,
/// fsync; read.
fn varmail(at: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..16).map(|thread| scope.spawn(move || mails(at, thread))).collect::<Vec<_>>();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

fn mails(at: &Path, thread: usize) -> Result<()> {
    let mail = [b'm'; 16 << 10];
    for round in 0..100 {
        let path = at.join(format!("{thread}-{round}"));
        if round >= 10 {
            fs::remove_file(at.join(format!("{thread}-{}", round - 10)))?;
        }
        let append = |file: &mut File| -> Result<()> {
            file.write_all(&mail)?;
            Ok(file.sync_all()?)
        };
        append(&mut File::create_new(&path)?)?;
        ensure!(fs::read(&path)?.len() == mail.len());
        append(&mut File::options().append(true).open(&path)?)?;
        ensure!(fs::read(&path)?.len() == 2 * mail.len());
    }
    Ok(())
}

/// The archive of a Linux source tree (Debian: linux-source-6.1), unpacked from xz once.
fn archive() -> Result<PathBuf> {
    let packed = Path::new("/usr/src/linux-source-6.1.tar.xz");
    ensure!(packed.exists(), "needs Debian's package linux-source-6.1");
    let folder = std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let archive = folder.join("obento-bench-linux.tar");
    if !archive.exists() {
        let unfinished = archive.with_extension("unfinished");
        let status =
            Command::new("xz").args(["-dck"]).arg(packed).stdout(File::create(&unfinished)?).status()?;
        ensure!(status.success(), "xz: {status}");
        fs::rename(unfinished, &archive)?;
    }
    Ok(archive)
}

fn unpack(at: &Path) -> Result<()> {
    run(program("tar").arg("-xf").arg(archive()?).arg("-C").arg(at)).context("tar -x").map(drop)
}

/// Through a pipe, because GNU tar reads no contents if it writes to /dev/null.
fn pack(at: &Path) -> Result<()> {
    let mut tar = program("sh");
    tar.args(["-c", "tar -cf - -C \"$1\" . | cat > /dev/null", "sh"]).arg(at);
    run(&mut tar).context("tar -c").map(drop)
}
