//! All loads at once on one mount. No load gets an error or bytes of another load, and the memory of the server does
//! not grow.
//!
//! In the short form each load runs twice; `cargo xtask stress` runs the loads for half an hour.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::stress::{Numbers, bytes, disk, finish, scale, witnesses};
use crate::support::Disk;

/// One round of a load in a folder of its own, which is empty afterwards.
type Load = fn(&Path, usize);

const LOADS: [(&str, Load); 9] = [
    ("names", names),
    ("archives", archives),
    ("clones", clones),
    ("log", log),
    ("sequence", sequence),
    ("places", places),
    ("truncation", truncation),
    ("tables", tables),
    ("attributes", attributes),
];

/// The duration: a time, or a number of rounds of each load.
#[derive(Clone, Copy)]
enum End {
    At(Instant),
    After(usize),
}

/// At least one round for each third.
const ROUNDS: usize = 3;

impl End {
    fn is_there(self, rounds: usize) -> bool {
        match self {
            Self::At(instant) => Instant::now() >= instant,
            Self::After(most) => rounds >= most,
        }
    }
}

/// Returns the memory of the server in KiB.
fn memory(disk: &Disk) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", disk.server().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn all_loads_together_have_no_error_and_memory_does_not_grow() {
    let Some(disk) = disk() else { return };
    if !require(&[Oracle::Program("git"), Oracle::Program("tar")]) {
        return finish(&disk);
    }
    witnesses(&disk);
    let minutes =
        std::env::var("OBENTO_STRESS_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let length = Duration::from_secs(60 * minutes);
    let begin = Instant::now();
    let end = if scale(0, 1) == 1 { End::At(begin + length) } else { End::After(ROUNDS) };
    // The peak memory of the server in each third of the time, or of the rounds.
    let peaks = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for (name, load) in LOADS {
            let (disk, peaks) = (&disk, &peaks);
            scope.spawn(move || {
                let folder = disk.path(name);
                fs::create_dir(&folder).unwrap();
                let mut rounds = 0;
                while !end.is_there(rounds) {
                    load(&folder, rounds);
                    rounds += 1;
                    let third = match end {
                        End::At(_) => (begin.elapsed().as_millis() * 3 / length.as_millis()) as usize,
                        End::After(most) => (rounds - 1) * 3 / most,
                    };
                    peaks[third.min(2)].fetch_max(memory(disk), Ordering::Relaxed);
                }
                fs::remove_dir(&folder).unwrap();
                println!("{name}: {rounds} rounds");
            });
        }
    });
    let [first, second, third] = peaks.map(AtomicU64::into_inner);
    assert!(third > 0, "no sample was taken in the last third");
    println!("the server had {first}, {second} and {third} KiB at most in each third of the time");
    assert!(third <= first + first / 4 + 32 * 1024, "{third} KiB after {first}");
    finish(&disk);
}

/// Creates and removes files of one directory, and lists it between.
fn names(folder: &Path, _round: usize) {
    let count = scale(500, 20_000);
    (0..count).for_each(|number| drop(File::create(folder.join(number.to_string())).unwrap()));
    assert_eq!(fs::read_dir(folder).unwrap().count(), count);
    (0..count).for_each(|number| fs::remove_file(folder.join(number.to_string())).unwrap());
}

/// Packs a tree, unpacks it, compares the trees, and removes both.
pub fn archives(folder: &Path, round: usize) {
    let (source, out, archive) = (folder.join("source"), folder.join("out"), folder.join("a.tar.gz"));
    fs::create_dir(&out).unwrap();
    for number in 0..scale(50, 2_000) {
        let folder = source.join((number % 13).to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), bytes(round + number)).unwrap();
    }
    run(program("tar").arg("-czf").arg(&archive).arg("-C").arg(&source).arg(".")).unwrap();
    run(program("tar").arg("-xzf").arg(&archive).arg("-C").arg(&out)).unwrap();
    run(program("diff").arg("-r").arg(&source).arg(&out)).unwrap();
    fs::remove_dir_all(&source).unwrap();
    fs::remove_dir_all(&out).unwrap();
    fs::remove_file(&archive).unwrap();
}

/// Creates a repository and a clone of it.
pub fn clones(folder: &Path, round: usize) {
    let (origin, clone) = (folder.join("origin"), folder.join("clone"));
    let git = |folder: &Path, args: &[&str]| {
        let settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        run(program("git").arg("-C").arg(folder).args(settings).args(args)).unwrap();
    };
    fs::create_dir(&origin).unwrap();
    git(&origin, &["init", "-q"]);
    for number in 0..50 {
        fs::write(origin.join(format!("f{number}")), bytes(round + number)).unwrap();
    }
    git(&origin, &["add", "."]);
    git(&origin, &["commit", "-q", "-m", "all"]);
    git(folder, &["clone", "-q", "--no-hardlinks", "origin", "clone"]);
    git(&clone, &["fsck", "--full", "--strict"]);
    git(&clone, &["diff", "--quiet", "HEAD"]);
    fs::remove_dir_all(&origin).unwrap();
    fs::remove_dir_all(&clone).unwrap();
}

/// Appends to one file from four threads, and syncs now and then.
fn log(folder: &Path, _round: usize) {
    const THREADS: usize = 4;
    let (path, lines) = (folder.join("log"), scale(50, 2_000));
    let log = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut log = &log;
            scope.spawn(move || {
                for line in 0..lines {
                    log.write_all(&[thread as u8; 100]).unwrap();
                    if line % 50 == 0 {
                        log.sync_all().unwrap();
                    }
                }
            });
        }
    });
    let found = fs::read(&path).unwrap();
    assert_eq!(found.len(), THREADS * lines * 100);
    assert!(found.chunks(100).all(|line| line.iter().all(|&byte| byte == line[0])));
    fs::remove_file(&path).unwrap();
}

/// Writes a file from its start to its end, and reads it in the same order.
fn sequence(folder: &Path, round: usize) {
    let (path, total) = (folder.join("f"), scale(4 << 20, 256 << 20));
    let size = [4 << 10, 32 << 10, 128 << 10, 1 << 20][round % 4];
    let mut file = File::create_new(&path).unwrap();
    for part in 0..total / size {
        file.write_all(&vec![(part + round) as u8; size]).unwrap();
    }
    drop(file);
    let (file, mut found) = (File::open(&path).unwrap(), vec![0; size]);
    for part in 0..total / size {
        file.read_exact_at(&mut found, (part * size) as u64).unwrap();
        assert!(found.iter().all(|&byte| byte == (part + round) as u8));
    }
    fs::remove_file(&path).unwrap();
}

/// Writes at random offsets, some of which were holes, and reads everything.
fn places(folder: &Path, round: usize) {
    let (path, len) = (folder.join("f"), scale(1 << 20, 32 << 20));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(len as u64).unwrap();
    let (mut model, mut numbers) = (vec![0_u8; len], Numbers(round as u64));
    for step in 0..scale(100, 5_000) {
        let (place, size) = (numbers.below(len - 9000), 1 + numbers.below(9000));
        let byte = step as u8 | 1;
        file.write_all_at(&vec![byte; size], place as u64).unwrap();
        model[place..place + size].fill(byte);
        if step % 100 == 0 {
            file.sync_data().unwrap();
        }
    }
    assert!(fs::read(&path).unwrap() == model);
    fs::remove_file(&path).unwrap();
}

/// Reads a file while another thread truncates it step by step.
fn truncation(folder: &Path, _round: usize) {
    let (path, len) = (folder.join("f"), scale(2 << 20, 64 << 20) as u64);
    fs::write(&path, vec![7; len as usize]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut found = vec![0; 1 << 16];
            for place in (0..len).step_by(found.len()) {
                let got = file.read_at(&mut found, place).unwrap();
                assert!(found[..got].iter().all(|&byte| byte == 7 || byte == 0));
            }
        });
        (1..64).for_each(|cut| file.set_len(len - len / 64 * cut).unwrap());
    });
    fs::remove_file(&path).unwrap();
}

/// Replaces and removes synced files, as databases do with their tables.
pub fn tables(folder: &Path, round: usize) {
    let table = |number: usize| folder.join(format!("{number:06}.sst"));
    let count = scale(10, 200);
    for number in 0..count {
        let temporary = folder.join("temporary");
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&bytes(round + number)).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temporary, table(number)).unwrap();
        File::open(folder).unwrap().sync_all().unwrap();
    }
    for number in 0..count {
        assert!(fs::read(table(number)).unwrap() == bytes(round + number));
        fs::remove_file(table(number)).unwrap();
    }
}

/// Sets attributes of the folder itself, and syncs the volume.
fn attributes(folder: &Path, round: usize) {
    let opened = File::open(folder).unwrap();
    for number in 0..scale(10, 100) {
        let value = format!("{round} {number}");
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(folder, "user.n", value.as_bytes(), none).unwrap();
        rustix::fs::syncfs(&opened).unwrap();
        let mut found = [0; 64];
        let len = rustix::fs::getxattr(folder, "user.n", &mut found).unwrap();
        assert_eq!(&found[..len], value.as_bytes());
    }
}
