//! Full volumes: each call that needs space reports the lack of it, and no accepted byte is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use obento_testkit::oracle::{call, program, run};
use obento_testkit::{Oracle, require};

use super::support::{obento, server_of, transports, umount};

const MIB: usize = 1 << 20;

/// A format, the program that checks it and its arguments, and a size.
type Spec = (&'static str, &'static str, &'static [&'static str], &'static str);

/// An ext4 volume of this size.
const fn ext4(size: &'static str) -> Spec {
    ("ext4", "e2fsck", &["-f", "-n"], size)
}

/// One volume is too small for the write-back cache, one is not.
const VOLUMES: [Spec; 6] = [
    ext4("64M"),
    ("vfat", "fsck.fat", &["-n"], "64M"),
    ("exfat", "fsck.exfat", &["-n"], "64M"),
    ext4("300M"),
    ("vfat", "fsck.fat", &["-n"], "300M"),
    ("exfat", "fsck.exfat", &["-n"], "300M"),
];

/// A mounted volume in a folder of its own.
struct Volume {
    folder: tempfile::TempDir,
    check: (&'static str, &'static [&'static str]),
    /// The options of each mount.
    options: String,
}

impl Volume {
    fn mounted((kind, checker, args, size): Spec, options: &str) -> Option<Self> {
        if !require(&[Oracle::Fuse, Oracle::Program(checker)]) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("obento-full-").tempdir().unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        obento(folder.path(), &["mkfs", "-t", kind, "disk.img", size]);
        let volume = Self { folder, check: (checker, args), options: options.to_owned() };
        volume.mount();
        Some(volume)
    }

    /// Allocates `len` bytes of space for a new file.
    fn take(&self, path: &Path, len: u64) -> bool {
        let file = File::create(path).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len).is_ok()
    }

    /// Runs `test` on each volume, mounted over each transport.
    fn each(test: impl Fn(&Self)) {
        VOLUMES.into_iter().for_each(|volume| Self::each_transport(volume, "rw", &test));
    }

    /// Runs `test` on new volumes, mounted over each transport.
    fn each_transport(volume: Spec, options: &str, test: impl Fn(&Self)) {
        for transport in transports() {
            let Some(mounted) = Self::mounted(volume, &format!("{options},{transport}")) else { continue };
            println!("{volume:?} {transport}");
            test(&mounted);
            mounted.umount();
        }
    }

    /// Runs `test` on volumes that are large enough for the write-back cache, and of which `free` bytes are free.
    fn each_with_free(free: u64, test: impl Fn(&Self)) {
        Self::each_transport(ext4("1G"), "rw", |volume| {
            volume.take(&volume.path("big"), volume.free() - free);
            test(volume);
        });
    }

    fn mount(&self) {
        obento(self.folder.path(), &["mount", "-o", &self.options, "disk.img", "mnt"]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("mnt").join(name)
    }

    /// Has everything written to the image, and drops the caches of the kernel.
    fn again(&self) {
        umount(self.folder.path());
        self.mount();
    }

    fn umount(&self) {
        umount(self.folder.path());
        let (checker, args) = self.check;
        call(checker, args.iter().map(Path::new).chain([self.folder.path().join("disk.img").as_path()]))
            .unwrap();
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path("")).unwrap();
        found.f_bfree * found.f_frsize
    }

    /// Number of requests that the server has read.
    fn requests(&self) -> u64 {
        let server = server_of(&self.folder.path().join("disk.img"));
        let io = fs::read_to_string(format!("/proc/{}/io", server.as_raw_nonzero())).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
        line.parse().unwrap()
    }
}

/// Byte `at` of the file `seed`.
fn byte(seed: u64, at: usize) -> u8 {
    ((at as u64 / 7) ^ seed.wrapping_mul(31)) as u8
}

/// Writes with calls of `step` bytes until one fails or 2 GiB are written. Returns the number of accepted bytes.
fn fill(path: &Path, seed: u64, step: usize) -> usize {
    let mut file = File::create(path).unwrap();
    let mut done = 0;
    while done < 2048 * MIB {
        let bytes: Vec<u8> = (done..done + step).map(|at| byte(seed, at)).collect();
        match file.write(&bytes) {
            Ok(len) => done += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return done;
            }
        }
    }
    panic!("the volume does not fill up");
}

#[track_caller]
fn expect_accepted(path: &Path, seed: u64, len: usize) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), len, "length of {path:?}");
    let wrong = found.iter().enumerate().find(|&(at, &found)| found != byte(seed, at));
    assert_eq!(wrong, None, "{path:?}");
}

#[test]
fn a_write_past_the_end_of_a_volume_fails_and_no_accepted_byte_is_lost() {
    Volume::each(|volume| {
        let len = fill(&volume.path("f"), 1, MIB);
        assert!(len > 32 * MIB, "{len}");
        expect_accepted(&volume.path("f"), 1, len);
        volume.again();
        expect_accepted(&volume.path("f"), 1, len);
        // Further writes do not succeed, either.
        let mut more = OpenOptions::new().append(true).open(volume.path("f")).unwrap();
        let refused = (0..32).find_map(|_| more.write_all(&[1; MIB]).err());
        assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    });
}

#[test]
fn a_shell_loop_that_appends_lines_ends_and_each_reported_line_exists() {
    Volume::each(|volume| {
        fill(&volume.path("f"), 1, MIB);
        let script = "n=0; while echo 'a line of the log' >> log; do n=$((n+1)); [ $n -lt 2000000 ] || break; done 2>/dev/null; echo $n";
        let output = run(program("sh").args(["-c", script]).current_dir(volume.path(""))).unwrap();
        let lines: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert!(lines < 2_000_000);
        volume.again();
        let found = fs::read_to_string(volume.path("log")).unwrap_or_default();
        assert_eq!(found, "a line of the log\n".repeat(lines));
    });
}

#[test]
fn files_written_until_a_volume_is_full_have_their_contents() {
    Volume::each(|volume| {
        let big = fill(&volume.path("big"), 1, MIB);
        let file = OpenOptions::new().write(true).open(volume.path("big")).unwrap();
        file.set_len((big - 24 * MIB) as u64).unwrap();
        drop(file);
        fs::create_dir(volume.path("d")).unwrap();
        let contents = |n: usize| (0..5000).map(|at| byte(n as u64, at)).collect::<Vec<_>>();
        let path = |n: usize| volume.path(&format!("d/{n}"));
        let is_written = |n: &usize| {
            let written = File::create(path(*n)).and_then(|mut file| file.write_all(&contents(*n)));
            written.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::StorageFull)).is_ok()
        };
        let count = (0..100_000).take_while(is_written).count();
        assert!(count < 100_000 && count > 500, "{count}");
        volume.again();
        (0..count).for_each(|n| assert!(fs::read(path(n)).unwrap() == contents(n), "{n}"));
    });
}

#[test]
fn two_processes_that_fill_a_volume_lose_nothing() {
    Volume::each(|volume| {
        let lens = std::thread::scope(|scope| {
            let write = |seed| {
                let path = volume.path(&format!("f{seed}"));
                scope.spawn(move || fill(&path, seed, 100_000))
            };
            let threads: Vec<_> = (0..2).map(write).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        volume.again();
        lens.iter().enumerate().for_each(|(seed, &len)| {
            expect_accepted(&volume.path(&format!("f{seed}")), seed as u64, len);
        });
    });
}

#[test]
fn a_full_volume_is_read_overwritten_truncated_and_filled_again() {
    Volume::each(|volume| {
        let len = fill(&volume.path("f"), 1, MIB);
        volume.again();
        let mut file = OpenOptions::new().read(true).write(true).open(volume.path("f")).unwrap();
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), len as u64);
        assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), len);
        // After a read to the end, as logrotate does.
        file.write_all_at(b"overwritten", 5 * MIB as u64).unwrap();
        file.set_len(20 * MIB as u64).unwrap();
        drop(file);
        let mut start = vec![0; 11];
        volume.again();
        File::open(volume.path("f")).unwrap().read_exact_at(&mut start, 5 * MIB as u64).unwrap();
        assert_eq!(start, b"overwritten");
        File::create(volume.path("f")).unwrap();
        let again = fill(&volume.path("f"), 2, MIB);
        assert!(again.abs_diff(len) <= 2 * MIB, "{again} {len}");
        volume.again();
        expect_accepted(&volume.path("f"), 2, again);
    });
}

#[test]
fn the_write_back_cache_comes_back_when_space_is_free_again() {
    // Each request is a read of the server.
    let Some(volume) = Volume::mounted(ext4("2G"), "io_uring=off") else { return };
    let requests_of_small_writes = || {
        let file = File::create(volume.path("small")).unwrap();
        let before = volume.requests();
        (0..2000).for_each(|at| file.write_all_at(&[7; 100], at * 100).unwrap());
        volume.requests() - before
    };
    let gathered = requests_of_small_writes();
    let big = File::create(volume.path("big")).unwrap();
    rustix::fs::fallocate(&big, rustix::fs::FallocateFlags::empty(), 0, volume.free() - (48 << 20)).unwrap();
    let gated = requests_of_small_writes();
    fill(&volume.path("f"), 1, MIB);
    fs::remove_file(volume.path("big")).unwrap();
    drop(big);
    // The first write after the removal finds the space.
    fs::write(volume.path("g"), "x").unwrap();
    let again = requests_of_small_writes();
    // A reader that stays awake reads more often than there are requests.
    assert!(gathered < 20_000 && again < 20_000 && gated >= 4000, "{gathered} {gated} {again}");
    println!("{gathered} {gated} {again}");
    volume.umount();
}

#[test]
fn a_file_that_is_written_through_a_mapping_has_room_in_a_volume_that_refuses_writes() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    Volume::each_transport(ext4("2G"), "rw", |volume| {
        volume.take(&volume.path("big"), volume.free() - (40 << 20));
        let script = "import mmap, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
        os.ftruncate(f, 8 << 20)\n\
        m = mmap.mmap(f, 8 << 20)\n\
        g = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)\n\
        try:\n\
        \x20   while True: os.write(g, b'g' * 100000)\n\
        except OSError as error: assert error.errno == 28, error\n\
        m[:] = b'm' * (8 << 20)\n\
        m.flush()\n";
        run(program("python3").args(["-c", script]).arg(volume.path("m")).arg(volume.path("g"))).unwrap();
        volume.again();
        assert!(fs::read(volume.path("m")).unwrap().iter().all(|&byte| byte == b'm'));
        assert!(fs::read(volume.path("g")).unwrap().iter().all(|&byte| byte == b'g'));
    });
}

#[test]
fn a_server_with_one_thread_searches_for_holes_while_data_is_written_back() {
    Volume::each_transport(ext4("1G"), "threads=1", |volume| {
        let path = volume.path("f");
        let (done, is_done) = std::sync::mpsc::channel();
        let is_written = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flush = {
            let (is_written, root) =
                (std::sync::Arc::clone(&is_written), File::open(volume.path("")).unwrap());
            move || {
                while !is_written.load(std::sync::atomic::Ordering::Relaxed) {
                    rustix::fs::syncfs(&root).unwrap();
                }
            }
        };
        let write = move || {
            let file = File::create(path).unwrap();
            for at in 0..200 {
                file.write_all_at(&vec![7; MIB], at * MIB as u64).unwrap();
                let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
                assert_eq!(hole, (at + 1) * MIB as u64);
            }
            is_written.store(true, std::sync::atomic::Ordering::Relaxed);
            done.send(()).unwrap();
        };
        let threads = [std::thread::spawn(flush), std::thread::spawn(write)];
        if is_done.recv_timeout(std::time::Duration::from_secs(120)).is_err() {
            let _ = rustix::mount::unmount(volume.path(""), rustix::mount::UnmountFlags::FORCE);
            panic!("the server hangs");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn names_do_not_take_the_space_of_accepted_data() {
    Volume::each_with_free(130 << 20, |volume| {
        let mut file = File::create(volume.path("f")).unwrap();
        (0..20).for_each(|_| file.write_all(&[7; MIB]).unwrap());
        fs::create_dir(volume.path("d")).unwrap();
        // Targets of this length take a block each.
        let target = "x".repeat(200);
        let make = |n| std::os::unix::fs::symlink(&target, volume.path(&format!("d/{n}")));
        let refused = (0..60_000).find_map(|n| make(n).err()).unwrap();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        file.sync_all().unwrap();
        drop(file);
        volume.again();
        assert!(fs::read(volume.path("f")).unwrap() == vec![7; 20 * MIB]);
    });
}

#[test]
fn the_space_of_a_removed_file_is_there_for_the_next_call() {
    for transport in transports().iter().copied().chain(["failover"]) {
        let Some(volume) = Volume::mounted(ext4("4M"), &format!("rw,{transport}")) else { continue };
        println!("{transport}");
        for round in 0..100 {
            let len = fill(&volume.path("f"), 1, 64 << 10) as u64;
            // The kernel orders its messages by their number.
            for n in 0..round % 24 {
                File::create(volume.path("empty")).unwrap();
                fs::remove_file(volume.path("empty")).unwrap_or_else(|error| panic!("{n}: {error}"));
            }
            fs::remove_file(volume.path("f")).unwrap();
            match round % 3 {
                0 => fs::write(volume.path("g"), [2; 4096]).unwrap(),
                1 => fs::create_dir(volume.path("g")).unwrap(),
                _ => {
                    assert!(volume.free() >= len, "{round}");
                    continue;
                }
            }
            fs::remove_file(volume.path("g")).or_else(|_| fs::remove_dir(volume.path("g"))).unwrap();
        }
        volume.umount();
    }
}

#[test]
fn allocations_in_parallel_do_not_take_the_space_of_accepted_data() {
    Volume::each_with_free(300 << 20, |volume| {
        let mut file = File::create(volume.path("f")).unwrap();
        (0..20).for_each(|_| file.write_all(&[7; MIB]).unwrap());
        let len = volume.free() - (1 << 20);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = volume.path(&format!("a{n}"));
                scope.spawn(move || volume.take(&path, len));
            }
        });
        file.sync_all().unwrap();
        drop(file);
        volume.again();
        assert!(fs::read(volume.path("f")).unwrap() == vec![7; 20 * MIB]);
    });
}
