//! The failures that a published stress test of Bento's file systems found, each as a load that must pass here. No
//! request hangs or fails, the volume is clean afterwards, and untouched files keep their bytes.
//!
//! Each load runs with a small size; `cargo xtask stress` runs them at full size, with `OBENTO_STRESS=whole`.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::Disk;

/// The size of a load: `small`, or `whole` in a campaign.
pub fn scale(small: usize, whole: usize) -> usize {
    if std::env::var("OBENTO_STRESS").is_ok_and(|value| value == "whole") { whole } else { small }
}

/// A mounted disk: of 8 GiB in a campaign.
pub fn disk() -> Option<Disk> {
    let size = if scale(0, 1) == 1 { "8G" } else { "512M" };
    let inodes = if scale(0, 1) == 1 { "1200000" } else { "65536" };
    let disk = Disk::sized(size, &["-N", inodes])?;
    disk.mount("rw");
    Some(disk)
}

/// Numbers that look random and are the same in each run (Knuth's MMIX generator).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// The bytes of file `number`: 1 to 16 KiB.
pub fn bytes(number: usize) -> Vec<u8> {
    let mut numbers = Numbers(number as u64);
    let len = 1024 + numbers.below(15 << 10);
    (0..len).map(|_| numbers.below(256) as u8).collect()
}

/// Writes a tree that stays unchanged.
pub fn witnesses(disk: &Disk) {
    for number in 0..50 {
        let folder = disk.path(&format!("witness/{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), bytes(number)).unwrap();
    }
}

/// Compares the tree by name, by listing and by bytes.
#[track_caller]
fn expect_witnesses(disk: &Disk) {
    for number in 0..50 {
        let path = disk.path(&format!("witness/{}/{number}", number % 7));
        assert!(fs::read(&path).unwrap() == bytes(number), "{}", path.display());
    }
    let listed: usize =
        (0..7).map(|folder| fs::read_dir(disk.path(&format!("witness/{folder}"))).unwrap().count()).sum();
    assert_eq!(listed, 50);
}

/// The end of each load: the volume is unmounted, clean, and unchanged in the next mount.
#[track_caller]
pub fn finish(disk: &Disk) {
    expect_witnesses(disk);
    disk.umount();
    disk.fsck();
    disk.mount("ro");
    expect_witnesses(disk);
    disk.umount();
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    fs::read(path).unwrap().hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_large_directory_is_filled_listed_and_removed() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let mut count = scale(5_000, 50_000);
    while count <= scale(5_000, 800_000) {
        let folder = disk.path("many");
        fs::create_dir(&folder).unwrap();
        let begin = Instant::now();
        (0..count).for_each(|number| drop(File::create(folder.join(format!("{number:08}"))).unwrap()));
        let created = begin.elapsed();
        let mut listed: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), count);
        let begin = Instant::now();
        fs::remove_dir_all(&folder).unwrap();
        println!("{count} files: created in {created:?}, removed in {:?}", begin.elapsed());
        count *= 2;
    }
    finish(&disk);
}

#[test]
fn clones_of_a_repository_are_complete_beside_attributes_and_sync() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    if !require(&[Oracle::Program("git")]) {
        return finish(&disk);
    }
    let origin = disk.path("origin");
    let git = |folder: &Path, args: &[&str]| {
        let name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        run(program("git").args(["-C"]).arg(folder).args(name).args(args)).unwrap();
    };
    fs::create_dir(&origin).unwrap();
    git(&origin, &["init", "-q"]);
    for number in 0..200 {
        fs::write(origin.join(format!("f{number}")), bytes(number)).unwrap();
    }
    git(&origin, &["add", "."]);
    git(&origin, &["commit", "-q", "-m", "all"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = disk.path("witness");
            let folder = File::open(&path).unwrap();
            for number in 0_usize.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let value = number.to_string();
                rustix::fs::setxattr(&path, "user.n", value.as_bytes(), rustix::fs::XattrFlags::empty())
                    .unwrap();
                rustix::fs::syncfs(&folder).unwrap();
            }
        });
        for number in 0..scale(2, 20) {
            let clone = disk.path(&format!("clone{number}"));
            git(&disk.at(), &["clone", "-q", "--no-hardlinks", "origin", clone.to_str().unwrap()]);
            git(&clone, &["fsck", "--full", "--strict"]);
            git(&clone, &["diff", "--quiet", "HEAD"]);
        }
        done.store(true, Ordering::Relaxed);
    });
    finish(&disk);
}

#[test]
fn archives_are_packed_and_unpacked_and_no_folder_goes_missing() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let source = disk.path("source");
    for number in 0..scale(300, 20_000) {
        let folder = source.join(format!("{}/{}", number % 13, number % 5));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), bytes(number)).unwrap();
    }
    for round in 0..scale(2, 10) {
        let (archive, out) = (disk.path("a.tar.gz"), disk.path(&format!("out{round}")));
        run(program("tar").arg("-czf").arg(&archive).arg("-C").arg(&source).arg(".")).unwrap();
        fs::create_dir(&out).unwrap();
        run(program("tar").arg("-xzf").arg(&archive).arg("-C").arg(&out)).unwrap();
        run(program("diff").arg("-r").arg(&source).arg(&out)).unwrap();
        fs::remove_dir_all(&out).unwrap();
        fs::remove_file(&archive).unwrap();
        expect_witnesses(&disk);
    }
    finish(&disk);
}

#[test]
fn threads_read_small_files_and_append_to_a_log() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let log = OpenOptions::new().append(true).create(true).open(disk.path("log")).unwrap();
    let (threads, loops) = (scale(8, 100), scale(20, 1_000));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (disk, log) = (&disk, &log);
            scope.spawn(move || {
                for round in 0..loops {
                    for number in 0..10 {
                        let number = (thread + round + number) % 50;
                        let path = disk.path(&format!("witness/{}/{number}", number % 7));
                        assert!(fs::read(path).unwrap() == bytes(number));
                    }
                    std::io::Write::write_all(&mut &*log, &[thread as u8; 1024]).unwrap();
                }
            });
        }
    });
    assert_eq!(log.metadata().unwrap().len(), (threads * loops * 1024) as u64);
    drop(log);
    finish(&disk);
}

#[test]
fn an_unmount_right_after_writing_loses_nothing() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    for round in 0..scale(5, 100) {
        for number in 0..20 {
            fs::write(disk.path(&format!("f{number}")), bytes(round * 20 + number)).unwrap();
        }
        disk.umount();
        disk.mount("rw");
        for number in 0..20 {
            assert!(fs::read(disk.path(&format!("f{number}"))).unwrap() == bytes(round * 20 + number));
        }
    }
    finish(&disk);
}

#[test]
fn files_are_written_in_sequence_again_and_again_in_every_size() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let total = scale(8 << 20, 1 << 30);
    for round in 0..scale(2, 10) {
        for size in [4 << 10, 32 << 10, 128 << 10, 1 << 20] {
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).truncate(true).open(disk.path("big")).unwrap();
            for place in (0..total).step_by(size) {
                file.write_all_at(&vec![(place / size + round) as u8; size], place as u64).unwrap();
            }
            let mut found = vec![0; size];
            for place in (0..total).step_by(size * 7) {
                file.read_exact_at(&mut found, place as u64).unwrap();
                assert!(found.iter().all(|&byte| byte == (place / size + round) as u8));
            }
        }
    }
    finish(&disk);
}

#[test]
fn readers_beside_a_truncation_see_bytes_or_the_end() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let len = scale(16 << 20, 4 << 30) as u64;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(disk.path("f")).unwrap();
    let step = vec![7; 1 << 20];
    (0..len).step_by(step.len()).for_each(|place| file.write_all_at(&step, place).unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = vec![0; 1 << 20];
            for place in (0..len).step_by(found.len()) {
                let got = file.read_at(&mut found, place).unwrap();
                assert!(found[..got].iter().all(|&byte| byte == 7 || byte == 0));
            }
        });
        for cut in 1..32 {
            file.set_len(len - len / 64 * cut).unwrap();
        }
        reader.join().unwrap();
    });
    drop(file);
    finish(&disk);
}

#[test]
fn threads_remove_files_and_the_unmount_follows_at_once() {
    for threads in [18, 40].into_iter().cycle().take(scale(2, 40)) {
        let Some(disk) = disk() else { return };
        witnesses(&disk);
        let count = scale(2_000, 55_000);
        for number in 0..count {
            let folder = disk.path(&format!("d{}", number % 100));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(number.to_string()), "x").unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let disk = &disk;
                scope.spawn(move || {
                    for number in (thread..count).step_by(threads) {
                        fs::remove_file(disk.path(&format!("d{}/{number}", number % 100))).unwrap();
                    }
                });
            }
        });
        disk.umount();
        disk.fsck();
        disk.mount("ro");
        assert!(
            (0..100).all(|folder| fs::read_dir(disk.path(&format!("d{folder}"))).unwrap().next().is_none())
        );
        expect_witnesses(&disk);
        disk.umount();
    }
}

#[test]
fn random_reads_of_holes_allocated_space_and_bytes_return_the_written_contents() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let len = scale(4 << 20, 256 << 20);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(disk.path("f")).unwrap();
    let mut model = vec![0_u8; len];
    file.set_len(len as u64).unwrap();
    let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, len as u64 / 4, len as u64 / 4).unwrap();
    let mut numbers = Numbers(10);
    for round in 1..=scale(200, 20_000) {
        let (place, size) = (numbers.below(len - 5000), 1 + numbers.below(5000));
        let byte = round as u8 | 1;
        file.write_all_at(&vec![byte; size], place as u64).unwrap();
        model[place..place + size].fill(byte);
    }
    let mut check = |file: &File| {
        for _ in 0..scale(500, 50_000) {
            let size = [512, 4096][numbers.below(2)];
            let place = numbers.below(len / size - 1) * size;
            let mut found = vec![0; size];
            file.read_exact_at(&mut found, place as u64).unwrap();
            assert!(found == model[place..place + size], "{size} bytes at {place}");
        }
    };
    check(&file);
    drop(file);
    disk.umount();
    disk.mount("rw");
    check(&File::open(disk.path("f")).unwrap());
    finish(&disk);
}

#[test]
fn tables_come_and_go_in_a_folder_over_ten_mounts() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    fs::create_dir(disk.path("folder")).unwrap();
    let table = |number: usize| disk.path(&format!("folder/{number:06}.sst"));
    for mount in 0..scale(3, 10) {
        for number in mount * 100..mount * 100 + scale(30, 100) {
            let temporary = disk.path("folder/temporary");
            fs::write(&temporary, bytes(number)).unwrap();
            File::open(&temporary).unwrap().sync_all().unwrap();
            fs::rename(&temporary, table(number)).unwrap();
            assert!(fs::read_dir(disk.at()).unwrap().any(|entry| entry.unwrap().file_name() == "folder"));
            if number % 3 == 0 {
                fs::remove_file(table(number)).unwrap();
            }
        }
        disk.umount();
        disk.mount("rw");
        for number in (mount * 100..mount * 100 + scale(30, 100)).filter(|number| number % 3 != 0) {
            assert!(fs::read(table(number)).unwrap() == bytes(number));
        }
    }
    finish(&disk);
}

#[test]
fn files_of_the_first_run_are_intact_after_the_second() {
    let Some(disk) = disk() else { return };
    witnesses(&disk);
    let mut known = Vec::new();
    for run in 0..scale(2, 5) {
        for number in 0..scale(500, 20_000) {
            let path = disk.path(&format!("run{run}-{number}"));
            fs::write(&path, bytes(number)).unwrap();
            if number % 10 == 0 {
                known.push((hash(&path), path));
            }
        }
        disk.umount();
        disk.mount("rw");
        assert!(known.iter().all(|(expected, path)| hash(path) == *expected));
    }
    finish(&disk);
}
