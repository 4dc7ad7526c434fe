//! The promises of a mount besides names and bytes: times, flags, options, files without a name.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};

use crate::support::{Disk, text, wait_until};

const PERMITTED: Result<(), ErrorKind> = Ok(());
const REFUSED: Result<(), ErrorKind> = Err(ErrorKind::PermissionDenied);

fn kind<T>(result: std::io::Result<T>) -> Result<(), ErrorKind> {
    result.map(drop).map_err(|error| error.kind())
}

/// `chattr`, whose requests go through the mount.
fn chattr(flags: &str, path: &Path) {
    run(program("chattr").arg(flags).arg(path)).unwrap();
}

/// Writes `bytes` at `offset`, and waits until the server has them.
fn overwrite(path: &Path, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(bytes, offset)?;
    file.sync_all()
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

type Times = [i64; 4];

fn times(path: &Path) -> Times {
    let found = fs::metadata(path).unwrap();
    [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()]
}

#[test]
fn times_are_unchanged_after_another_mount() {
    for options in ["data=ordered", "data=journal", "no_writeback_cache"] {
        let Some(disk) = Disk::mounted(options) else { return };
        for number in 0..40 {
            fs::write(disk.path(&format!("made{number}")), vec![7; 1000 * number]).unwrap();
        }
        for number in 0..20 {
            append(&disk.path(&format!("made{number}")), b"more").unwrap();
        }
        overwrite(&disk.path("made21"), 10, b"other").unwrap();
        File::options().write(true).open(disk.path("made22")).unwrap().set_len(9).unwrap();
        fs::set_permissions(disk.path("made23"), Permissions::from_mode(0o600)).unwrap();
        let old = UNIX_EPOCH - Duration::new(5, 250);
        File::options().write(true).open(disk.path("made24")).unwrap().set_modified(old).unwrap();
        let seen: Vec<_> = (0..40).map(|number| times(&disk.path(&format!("made{number}")))).collect();
        assert_eq!(fs::metadata(disk.path("made24")).unwrap().modified().unwrap(), old);
        disk.umount();
        disk.mount("ro");
        for (number, seen) in seen.iter().enumerate() {
            assert_eq!(times(&disk.path(&format!("made{number}"))), *seen, "{options}, file {number}");
        }
        disk.umount();
    }
}

/// With the write-back cache, the kernel shows its own times: docs/mount.md.
#[test]
fn without_the_write_back_cache_the_time_of_chattr_and_the_nearest_stored_time_are_seen_at_once() {
    if !require(&[Oracle::LoopMount, Oracle::Program("chattr")]) {
        return;
    }
    let change = |path: &Path| {
        fs::write(path, "x").unwrap();
        let before = fs::metadata(path).unwrap();
        // File systems take the time from a clock with ticks.
        wait_until("the next tick", || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
            (now.tv_sec, now.tv_nsec) > (before.ctime(), before.ctime_nsec())
        });
        chattr("+d", path);
        let changed = fs::metadata(path).unwrap();
        assert!((changed.ctime(), changed.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        let long_ago = UNIX_EPOCH - Duration::from_secs(10_000_000_000);
        File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(fs::metadata(path).unwrap().mtime(), i64::from(i32::MIN));
    };
    let [Some(disk), Some(other)] = [Disk::mounted("no_writeback_cache"), Disk::new(&[])] else { return };
    change(&disk.path("f"));
    disk.umount();
    let kernel = LoopMount::new(&other.image(), "").unwrap();
    change(&kernel.path().join("f"));
    kernel.unmount().unwrap();
}

#[test]
fn an_immutable_file_is_unchanged_until_the_flag_is_cleared() {
    let Some(disk) = Some(()).filter(|()| require(&[Oracle::Root])).and_then(|()| Disk::mounted("rw")) else {
        return;
    };
    let file = disk.path("f");
    fs::write(&file, "as it is").unwrap();
    chattr("+i", &file);
    assert!(overwrite(&file, 0, b"changed").is_err());
    assert!(append(&file, b"more").is_err());
    let refused = [
        kind(File::create(&file)),
        kind(fs::remove_file(&file)),
        kind(fs::rename(&file, disk.path("g"))),
        kind(fs::hard_link(&file, disk.path("g"))),
        kind(fs::set_permissions(&file, Permissions::from_mode(0o600))),
        kind(
            rustix::fs::setxattr(&file, "user.a", b"b", rustix::fs::XattrFlags::empty()).map_err(Into::into),
        ),
    ];
    assert_eq!(refused, [REFUSED; 6]);
    disk.umount();
    disk.mount("rw");
    assert_eq!(fs::read(&file).unwrap(), b"as it is");
    chattr("-i", &file);
    assert_eq!(kind(overwrite(&file, 0, b"IS")), PERMITTED);
    assert_eq!(kind(fs::remove_file(&file)), PERMITTED);
    disk.umount();
}

#[test]
fn a_file_that_may_only_be_appended_to_loses_no_byte() {
    let Some(disk) = Some(()).filter(|()| require(&[Oracle::Root])).and_then(|()| Disk::mounted("rw")) else {
        return;
    };
    let file = disk.path("f");
    fs::write(&file, "first ").unwrap();
    chattr("+a", &file);
    for _ in 0..3 {
        assert_eq!(kind(append(&file, b"more ")), PERMITTED);
    }
    assert!(overwrite(&file, 3, b"x").is_err());
    assert_eq!(kind(File::create(&file)), REFUSED);
    assert_eq!(kind(fs::remove_file(&file)), REFUSED);
    disk.umount();
    disk.mount("rw");
    assert_eq!(text(&fs::read(&file).unwrap()), "first more more more ");
    chattr("-a", &file);
    assert_eq!(kind(overwrite(&file, 0, b"F")), PERMITTED);
    disk.umount();
}

/// A file in `directory` without a name.
fn nameless(directory: &Path) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    rustix::fs::open(directory, flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

#[test]
fn a_file_is_created_without_a_name_and_gets_one_when_it_is_complete() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = nameless(&disk.at());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(&[9; 100_000], 0).unwrap();
    let names =
        || fs::read_dir(disk.at()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(), ["lost+found"]);
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, &open, CWD, disk.path("whole"), AtFlags::SYMLINK_FOLLOW).unwrap();
    rustix::fs::linkat(CWD, &open, CWD, disk.path("again"), AtFlags::SYMLINK_FOLLOW).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.nlink(), found.mode() & 0o7777), (2, 0o640));
    drop(file);
    disk.umount();
    disk.mount("rw");
    assert!(fs::read(disk.path("whole")).unwrap() == [9; 100_000]);
    disk.umount();
}

#[test]
fn a_file_that_never_got_a_name_is_gone_after_the_last_close_or_a_crash() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = nameless(&disk.at());
    file.write_all_at(&[9; 100_000], 0).unwrap();
    drop(file);
    disk.umount();
    disk.fsck();
    disk.mount("rw");
    let file = nameless(&disk.at());
    file.write_all_at(&[9; 100_000], 0).unwrap();
    file.sync_all().unwrap();
    disk.kill();
    drop(file);
    disk.mount_after_kill();
    disk.umount();
}

#[test]
fn reading_stamps_access_times_as_the_mount_option_says() {
    // One file was read an hour before it was written to, the other one after.
    for (options, due) in
        [("noatime", [false, false]), ("relatime", [true, false]), ("strictatime", [true, true])]
    {
        let Some(disk) = Disk::mounted("rw") else { return };
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
        let files = ["before", "after"].map(|name| disk.path(name));
        for (file, read) in files.iter().zip([now - 10_000, now + 10_000]) {
            fs::write(file, "text").unwrap();
            let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
            let times = Timestamps { last_access: time(read), last_modification: time(now - 5000) };
            rustix::fs::utimensat(CWD, file, &times, AtFlags::empty()).unwrap();
        }
        disk.umount();
        disk.mount(options);
        let before = files.each_ref().map(|file| fs::metadata(file).unwrap().atime());
        files.iter().for_each(|file| assert_eq!(fs::read(file).unwrap(), b"text"));
        disk.umount();
        disk.mount("ro");
        let after = files.each_ref().map(|file| fs::metadata(file).unwrap().atime());
        let stamped = [before[0] != after[0], before[1] != after[1]];
        assert_eq!(stamped, due, "{options}");
        disk.umount();
    }
}

#[test]
fn with_sync_a_change_is_durable_before_it_is_answered() {
    let Some(disk) = Disk::mounted("sync") else { return };
    fs::create_dir(disk.path("d")).unwrap();
    fs::write(disk.path("d/f"), "there").unwrap();
    disk.kill();
    disk.mount_after_kill();
    assert_eq!(fs::read(disk.path("d/f")).unwrap(), b"there");
    disk.umount();
}

#[test]
fn bytes_go_through_the_journal_only_with_data_journal() {
    for (options, expected) in [("data=ordered", false), ("data=writeback", false), ("data=journal", true)] {
        let Some(disk) = Disk::mounted(options) else { return };
        let mark = [b"what is looked for ".as_slice(), options.as_bytes()].concat();
        let bytes: Vec<u8> = mark.iter().copied().cycle().take(64 << 10).collect();
        overwrite_new(&disk.path("f"), &bytes);
        disk.kill();
        let log = disk.folder().join("log");
        let dump = format!("dump <8> {}", log.display());
        run(program("debugfs").arg("-R").arg(dump).arg(disk.image())).unwrap();
        let journal = fs::read(log).unwrap();
        let found = journal.windows(mark.len()).any(|window| window == mark);
        assert_eq!(found, expected, "{options}");
        disk.mount_after_kill();
        assert!(fs::read(disk.path("f")).unwrap() == bytes);
        disk.umount();
    }
}

fn overwrite_new(path: &Path, bytes: &[u8]) {
    let file = File::create_new(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn every_thread_of_a_server_has_given_up_its_rights() {
    let Some(disk) = Disk::mounted("rw") else { return };
    // Each thread has something to do.
    std::thread::scope(|scope| {
        for number in 0..32 {
            let disk = &disk;
            scope.spawn(move || overwrite_new(&disk.path(&format!("f{number}")), &[1; 70_000]));
        }
    });
    let tasks = format!("/proc/{}/task", disk.server().as_raw_nonzero());
    let states: Vec<_> = fs::read_dir(tasks)
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .collect();
    assert!(states.len() > 16, "{} threads", states.len());
    for state in states {
        let has = |line: &str| state.lines().any(|other| other == line);
        assert!(has("NoNewPrivs:\t1") && has("Seccomp:\t2"), "{state}");
    }
    disk.umount();
}

#[test]
fn the_thread_that_commits_begins_after_rights_were_given_up() {
    let Some(disk) = Disk::new(&[]) else { return };
    // A thread that has ended is left out.
    let threads = || -> Vec<(String, String)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", disk.server().as_raw_nonzero())).unwrap();
        let read = |task: &Path, name: &str| fs::read_to_string(task.join(name)).ok();
        let rights =
            |status: String| status.lines().find(|line| line.starts_with("CapEff:")).map(str::to_owned);
        let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
        tasks.filter_map(|task| Some((read(&task, "comm")?, rights(read(&task, "status")?)?))).collect()
    };
    for fs_type in ["vfat", "exfat", "ext4"] {
        for options in ["rw", "provenance"] {
            disk.quietly(&["mkfs", "-q", "-F", "-t", fs_type, "disk.img"]);
            disk.mount(options);
            let commits =
                |threads: &[(String, String)]| threads.iter().any(|(name, _)| name == "obento-commit\n");
            let before = threads();
            assert!(!commits(&before) || options == "provenance", "{fs_type}: {before:?}");
            overwrite_new(&disk.path("f"), &[1; 10]);
            // A new thread has the name of the thread that started it, until it sets its own.
            let mut after = Vec::new();
            wait_until(&format!("{fs_type}, {options}: a thread commits"), || {
                after = threads();
                commits(&after)
            });
            for (name, rights) in before.iter().chain(&after) {
                assert_eq!(rights.trim_end_matches('0'), "CapEff:\t", "{fs_type}, {options}: {name}");
            }
            disk.quietly(&["umount", "mnt"]);
        }
    }
}
