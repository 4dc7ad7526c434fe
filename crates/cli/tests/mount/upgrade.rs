//! A mount whose server is replaced while programs use it. Nothing is interrupted. If a replacement fails at any
//! message, the old server continues to serve.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use obento_fuse::find_mount;
use obento_fuse::handover::{Claim, Connection, ConnectionError, Hello, Kind, Message, VERSION};
use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::support::{Disk, obento, server_without_a_caller, text, umount, wait_until};

/// The number of replacements; `cargo xtask upgrade` makes more.
pub fn upgrades() -> usize {
    std::env::var("OBENTO_UPGRADES").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

#[track_caller]
pub fn upgrade(disk: &Disk) {
    disk.quietly(&["mount", "--upgrade", "mnt"]);
}

fn connect(disk: &Disk) -> Connection {
    let mount = find_mount(&disk.at().canonicalize().unwrap()).unwrap();
    Connection::to_server(&mount).unwrap()
}

fn hello() -> Vec<u8> {
    Hello { build: "test".into(), is_trial: false }.encode()
}

/// Checks that the mount works, and is written to by one server.
#[track_caller]
pub fn works(disk: &Disk) {
    let file = disk.path("works");
    fs::write(&file, "yes").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"yes");
    fs::remove_file(&file).unwrap();
}

/// Appends to a file, renames it to and fro, and creates and removes a directory, until `is_over`. Returns the contents
/// that the file must have.
pub fn load(folder: &Path, is_over: &AtomicBool) -> Vec<u8> {
    fs::create_dir(folder).unwrap();
    let (one, other) = (folder.join("one"), folder.join("other"));
    let mut file = OpenOptions::new().append(true).create_new(true).open(&one).unwrap();
    let mut expected = Vec::new();
    let mut round = 0_usize;
    while !is_over.load(Ordering::Relaxed) || round.is_multiple_of(2) {
        let bytes = vec![round as u8; 1 + round * 37 % 9000];
        file.write_all(&bytes).unwrap();
        expected.extend(bytes);
        let (from, to) = if round.is_multiple_of(2) { (&one, &other) } else { (&other, &one) };
        fs::rename(from, to).unwrap();
        let dir = folder.join(format!("dir{round}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), format!("{round}")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), format!("{round}"));
        fs::remove_dir_all(&dir).unwrap();
        if round.is_multiple_of(7) {
            file.sync_all().unwrap();
        }
        // Stays small enough for the volume.
        if expected.len() > 8 << 20 {
            file.set_len(0).unwrap();
            expected.clear();
        }
        round += 1;
    }
    expected
}

/// A program that locks a file, and writes through a shared mapping of it.
const MAPPING: &str = "import fcntl, mmap, os, sys
f = open(sys.argv[1], 'w+b'); f.truncate(1 << 16)
fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)
m = mmap.mmap(f.fileno(), 1 << 16)
print('ready', flush=True)
n = 0
while not os.path.exists(sys.argv[2]):
    n += 1
    at = n * 4097 % (1 << 16)
    m[at] = n % 251
    assert m[at] == n % 251
    if n % 1000 == 0: m.flush()
m.flush()
open(sys.argv[1] + '.seen', 'wb').write(m[:])
";

pub fn mapping(disk: &Disk) -> std::process::Child {
    let (file, end) = (disk.path("mapped"), disk.folder().join("end"));
    let mut child =
        program("python3").arg("-c").arg(MAPPING).arg(file).arg(end).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    child
}

/// Checks that another process holds the locks of a file: that of fcntl(2), and that of flock(2).
#[track_caller]
fn expect_locked(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let wanted = FlockOperation::NonBlockingLockExclusive;
    assert_eq!(fcntl_lock(&file, wanted), Err(Errno::AGAIN));
    assert_eq!(flock(&file, wanted), Err(Errno::AGAIN));
}

#[test]
fn the_log_stays_the_same_open_file_and_is_not_found_by_its_path_again() {
    let Some(disk) = Disk::new(&[]) else { return };
    disk.quietly(&["mount", "--log", "log", "-o", "io_uring=off", "disk.img", "mnt"]);
    let at = |name: &str| disk.folder().join(name);
    fs::rename(at("log"), at("moved")).unwrap();
    // The second server passes the file on, too.
    for _ in 0..2 {
        let before = disk.server();
        upgrade(&disk);
        wait_until("the new server", || disk.server() != before);
        let open = fs::read_dir(format!("/proc/{}/fd", disk.server().as_raw_nonzero())).unwrap().flatten();
        let log = at("moved").canonicalize().unwrap();
        assert!(open.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == log));
        assert!(!at("log").exists());
    }
    disk.umount();
}

#[test]
fn open_files_mappings_locks_and_a_nameless_file_survive_twenty_replacements_under_load() {
    if let Some(disk) = mounted("io_uring=off") {
        survives(&disk, upgrades());
    }
}

#[test]
fn a_mount_whose_history_is_recorded_survives_replacements_under_load_without_a_lost_record() {
    let Some(disk) = mounted("provenance,io_uring=off") else { return };
    survives(&disk, upgrades().div_ceil(4));
    // Fails if a record may be missing.
    let listed = disk.obento(&["prov", "disk.img", "--changed-since", "1"]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
}

fn mounted(options: &str) -> Option<Disk> {
    Some(()).filter(|()| require(&[Oracle::Program("python3")])).and_then(|()| Disk::mounted(options))
}

/// Replaces the server of a mount `count` times while programs use it, and unmounts it.
fn survives(disk: &Disk, count: usize) {
    let mut nameless =
        File::options().read(true).write(true).create_new(true).open(disk.path("gone")).unwrap();
    nameless.write_all(b"begin").unwrap();
    fs::remove_file(disk.path("gone")).unwrap();
    fs::create_dir(disk.path("cwd")).unwrap();
    let mut sleeper = Command::new("sleep").arg("1000").current_dir(disk.path("cwd")).spawn().unwrap();
    fs::remove_dir(disk.path("cwd")).unwrap();
    let mut mapped = mapping(disk);
    let is_over = AtomicBool::new(false);
    let mut server = serving(disk.folder());
    let expected: Vec<_> = std::thread::scope(|threads| {
        let start = |number| {
            let (folder, is_over) = (disk.path(&format!("load{number}")), &is_over);
            threads.spawn(move || load(&folder, is_over))
        };
        let loads: Vec<_> = (0..2).map(start).collect();
        let end = End(&is_over);
        for round in 0..count {
            upgrade(disk);
            nameless.write_all(format!("{round},").as_bytes()).unwrap();
            let before = std::mem::replace(&mut server, serving(disk.folder()));
            assert_ne!(before, server, "another process serves");
            expect_locked(&disk.path("mapped"));
        }
        drop(end);
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    fs::write(disk.folder().join("end"), "").unwrap();
    assert!(mapped.wait().unwrap().success());
    let seen = [disk.path("mapped"), disk.path("mapped.seen")].map(|path| fs::read(path).unwrap());
    assert!(seen[0] == seen[1]);
    let mut contents = String::new();
    nameless.seek(SeekFrom::Start(0)).unwrap();
    nameless.read_to_string(&mut contents).unwrap();
    let rounds: String = (0..count).map(|round| format!("{round},")).collect();
    assert_eq!(contents, format!("begin{rounds}"));
    assert_eq!(nameless.metadata().unwrap().nlink(), 0);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    drop(nameless);
    let status = text(&disk.obento(&["mount", "--status", "mnt"]).stdout);
    assert!(status.contains(&format!("replacements: {count}")), "{status}");
    disk.umount();
    disk.fsck();
    disk.mount("ro");
    for (number, expected) in expected.iter().enumerate() {
        let (one, other) = ["one", "other"].map(|name| disk.path(&format!("load{number}/{name}"))).into();
        let found = fs::read(if one.exists() { one } else { other }).unwrap();
        assert!(found == *expected, "{} {}", found.len(), expected.len());
    }
    assert!(fs::read(disk.path("mapped")).unwrap() == seen[0]);
    disk.umount();
}

/// Ends the loads, also when the test fails: they would run forever.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the process that serves `mnt` in `folder`. The one before may not have left the list of processes yet.
pub fn serving(folder: &Path) -> String {
    let mut status = String::new();
    // A server that was killed can still accept the connection.
    wait_until("a server that responds", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output =
            command.current_dir(folder).args(["mount", "--status", "mnt", "--json"]).output().unwrap();
        status = text(&output.stdout);
        output.status.success()
    });
    let (_, pid) = status.split_once("\"pid\":").unwrap();
    pid.split(',').next().unwrap().to_owned()
}

/// The steps of a new server, of which a test performs the first ones.
fn steps(connection: &Connection, count: usize) -> Result<Option<Message>, ConnectionError> {
    steps_with(connection, count, &Claim::new().unwrap())
}

fn steps_with(
    connection: &Connection,
    count: usize,
    claim: &Claim,
) -> Result<Option<Message>, ConnectionError> {
    let mut state = None;
    let steps: [&mut dyn FnMut() -> Result<(), ConnectionError>; 6] = [
        &mut || connection.send(Kind::Hello, &hello(), &[]),
        &mut || connection.expect(Kind::Offer).map(drop),
        &mut || connection.send(Kind::Ready, &[], &[]),
        &mut || connection.expect(Kind::State).map(|message| state = Some(message)),
        &mut || connection.send(Kind::Taken, &[], &[claim.as_fd()]),
        &mut || connection.expect(Kind::Go).map(drop),
    ];
    steps.into_iter().take(count).try_for_each(|step| step())?;
    Ok(state)
}

#[test]
fn a_new_server_that_ends_after_any_message_leaves_the_mount_to_the_old_one() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let open = File::options().read(true).write(true).create_new(true).open(disk.path("open")).unwrap();
    fs::remove_file(disk.path("open")).unwrap();
    let server = disk.server();
    for count in 0..=6 {
        let connection = connect(&disk);
        let state = steps(&connection, count).unwrap();
        assert_eq!(state.is_some(), count >= 4, "{count}");
        drop((state, connection));
        works(&disk);
        open.write_all_at(&[count as u8; 5000], 5000 * count as u64).unwrap();
        assert_eq!(disk.server(), server, "{count}");
    }
    upgrade(&disk);
    let mut byte = [0];
    open.read_exact_at(&mut byte, 30_001).unwrap();
    assert_eq!(byte, [6]);
    drop(open);
    disk.umount();
}

#[test]
fn a_new_server_that_is_silent_refuses_or_sends_other_messages_leaves_the_mount_to_the_old_one() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let server = disk.server();
    let version = |major: u64| {
        let fields = obento_fuse::handover::Fields::default().with_number(1, major).with_number(2, 0);
        fields.with(3, obento_fuse::handover::Need::Optional, b"").with_number(16, 0).into_bytes()
    };
    // Another major version, no fields, a message that is not due.
    for fields in [version(u64::from(VERSION.0) + 1), version(u64::MAX), Vec::new()] {
        let connection = connect(&disk);
        connection.send(Kind::Hello, &fields, &[]).unwrap();
        let refused = connection.expect(Kind::Offer).unwrap_err();
        assert!(matches!(refused, ConnectionError::Refused(_)), "{refused}");
        works(&disk);
    }
    for kind in [Kind::Taken, Kind::Started, Kind::State] {
        let connection = connect(&disk);
        connection.send(kind, &[], &[]).unwrap();
        assert_eq!(connection.expect(Kind::Offer).unwrap_err(), ConnectionError::Ended);
    }
    // Instead of each answer: a refusal, a message that is not due, silence.
    for count in [2, 4] {
        let connection = connect(&disk);
        steps(&connection, count).unwrap();
        connection.refuse("no");
        works(&disk);
        let connection = connect(&disk);
        steps(&connection, count).unwrap();
        connection.send(Kind::Started, &[], &[]).unwrap();
        works(&disk);
    }
    // The old server continues after its time limit.
    for count in [4, 6] {
        let (connection, claim) = (connect(&disk), Claim::new().unwrap());
        steps_with(&connection, count, &claim).unwrap();
        works(&disk);
        assert_eq!(claim.take(), count == 4, "after {count} messages");
    }
    // A server without a claim.
    let connection = connect(&disk);
    steps(&connection, 4).unwrap();
    connection.send(Kind::Taken, &[], &[]).unwrap();
    works(&disk);
    drop(connection);
    assert_eq!(disk.server(), server);
    disk.umount();
}

#[test]
fn an_old_server_ends_if_the_new_one_has_the_claim_and_is_silent() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    fs::write(disk.path("synced"), "before").unwrap();
    File::open(disk.path("synced")).unwrap().sync_all().unwrap();
    let (connection, claim) = (connect(&disk), Claim::new().unwrap());
    let state = steps_with(&connection, 6, &claim).unwrap();
    assert!(claim.take());
    assert_eq!(connection.receive(None).unwrap_err(), ConnectionError::Ended);
    // This process, which has the mount now, ends it without a write.
    drop(state);
    disk.clear_killed();
    disk.mount_after_kill();
    assert_eq!(fs::read_to_string(disk.path("synced")).unwrap(), "before");
    disk.umount();
}

/// The environment variable with the mount point for [`a_process_that_stops_before_it_claims_a_mount`].
const MOUNT: &str = "OBENTO_TEST_MOUNT";

/// The name of that test, and of the line that it prints.
const STOPS: &str = "upgrade::a_process_that_stops_before_it_claims_a_mount";

/// Takes the place of a new server, with an open file whose data the kernel has gathered. Then it waits to be killed.
#[test]
#[ignore = "a process of another test"]
fn a_process_that_stops_before_it_claims_a_mount() {
    let Some(at) = std::env::var_os(MOUNT).map(PathBuf::from) else { return };
    let mut open = File::create(at.join("open")).unwrap();
    open.write_all(&[7; 5000]).unwrap();
    let connection = Connection::to_server(&find_mount(&at).unwrap()).unwrap();
    let _state = steps(&connection, 6).unwrap();
    println!("\n{STOPS}");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_new_server_that_is_killed_with_an_open_file_of_the_mount_leaves_the_mount_to_the_old_one() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let server = disk.server();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", STOPS, "--include-ignored", "--nocapture"]);
    command.env(MOUNT, disk.at().canonicalize().unwrap()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == STOPS));
    process.kill().unwrap();
    works(&disk);
    process.wait().unwrap();
    assert_eq!(disk.server(), server);
    assert_eq!(fs::read(disk.path("open")).unwrap(), [7; 5000]);
    upgrade(&disk);
    disk.umount();
}

#[test]
fn a_new_server_whose_caller_has_ended_leaves_the_mount_to_the_old_one() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let old = disk.server();
    let ended = server_without_a_caller(disk.folder(), &["--upgrade", "mnt"]).status().unwrap();
    assert_eq!(ended.code(), Some(1));
    works(&disk);
    assert_eq!(disk.server(), old);
    disk.umount();
}

#[test]
fn a_server_that_is_killed_while_it_passes_the_mount_leaves_a_volume_as_after_a_crash() {
    for count in [1, 2, 3, 4, 5, 6] {
        let Some(disk) = Disk::mounted("io_uring=off") else { return };
        fs::write(disk.path("synced"), vec![5; 50_000]).unwrap();
        File::open(disk.path("synced")).unwrap().sync_all().unwrap();
        let connection = connect(&disk);
        let state = steps(&connection, count).unwrap();
        drop(state);
        rustix::process::kill_process(disk.server(), rustix::process::Signal::KILL).unwrap();
        // The state may wait in the socket, and with it the connection to the kernel.
        drop(connection);
        disk.clear_killed();
        disk.mount_after_kill();
        assert!(fs::read(disk.path("synced")).unwrap() == vec![5; 50_000], "{count}");
        disk.umount();
        disk.fsck();
    }
}

#[test]
fn another_user_cannot_replace_a_server_nor_read_its_state() {
    let Some(disk) = Some(())
        .filter(|()| require(&[Oracle::Root]))
        .and_then(|()| Disk::mounted("allow_other,io_uring=off"))
    else {
        return;
    };
    let server = disk.server();
    let copy = std::env::temp_dir().join(format!("obento-of-another-user-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_obento"), &copy).unwrap();
    run(program("chmod").args(["-R", "a+rX"]).arg(disk.folder())).unwrap();
    for option in ["--upgrade", "--status"] {
        let mut command = Command::new(&copy);
        let output = command.uid(65534).gid(65534).args(["mount", option]).arg(disk.at()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    fs::remove_file(copy).unwrap();
    assert_eq!(disk.server(), server);
    works(&disk);
    disk.umount();
}

#[test]
fn root_does_not_take_or_change_the_mount_of_another_user() {
    if !require(&[Oracle::Root, Oracle::Fuse, Oracle::Program("fusermount3")]) {
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        return println!("skipped: /dev/fuse is closed to users");
    }
    let folder = tempfile::Builder::new().prefix("obento-mount-").tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    obento(folder.path(), &["mkfs", "-q", "disk.img", "8M"]);
    fs::create_dir(at("mnt")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_obento"), at("obento")).unwrap();
    run(program("chown").args(["-R", "65534"]).arg(folder.path())).unwrap();
    let user = |words: &[&str]| {
        let mut command = Command::new(at("obento"));
        let output = command.uid(65534).gid(65534).current_dir(folder.path()).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    };
    user(&["mount", "-o", "io_uring=off", "disk.img", "mnt"]);
    // Its server would name the arguments of a new one, and its flags protect this user.
    for words in [&["--upgrade"][..], &["--dry-run", "--upgrade"], &["-o", "remount,suid", "disk.img"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.arg("mount").args(words).arg(at("mnt")).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("belongs to user 65534"), "{said}");
    }
    user(&["mount", "--upgrade", "mnt"]);
    user(&["umount", "mnt"]);
}

#[test]
fn a_dry_run_and_the_status_change_nothing() {
    let Some(disk) = Disk::mounted("noatime,io_uring=off") else { return };
    let server = disk.server();
    let tried = disk.obento(&["mount", "--upgrade", "mnt", "--dry-run"]);
    assert_eq!(
        (text(&tried.stdout).as_str(), text(&tried.stderr).as_str()),
        ("mnt: the server can be replaced\n", "")
    );
    let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    for part in ["\"kind\":\"mount\"", "\"upgrades\":0", "\"file_system\":\"ext4\"", "\"upgradable\":true"] {
        assert!(status.contains(part), "{status}");
    }
    assert!(text(&disk.obento(&["mount", "--status"]).stdout).contains("disk.img"));
    let outside = disk.obento(&["mount", "--upgrade", "."]);
    assert!(text(&outside.stderr).contains("it is not a mount of obento"), "{outside:?}");
    assert_eq!(disk.server(), server);
    disk.umount();
}

#[test]
fn umount_that_waits_learns_the_end_from_the_new_server_and_options_stay() {
    let Some(disk) = Disk::mounted("noatime,sync,io_uring=off") else { return };
    fs::write(disk.path("f"), "x").unwrap();
    let accessed = fs::metadata(disk.path("f")).unwrap().atime_nsec();
    upgrade(&disk);
    assert_eq!(fs::read(disk.path("f")).unwrap(), b"x");
    upgrade(&disk);
    assert_eq!(fs::metadata(disk.path("f")).unwrap().atime_nsec(), accessed);
    disk.umount();
    disk.fsck();
}

#[test]
fn a_lock_of_a_file_is_held_until_it_is_released_after_replacements() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let [holder, other] = [(); 2].map(|()| File::create(disk.path("f")).unwrap());
    let lock = |file: &File| rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    lock(&holder).unwrap();
    for _ in 0..2 {
        upgrade(&disk);
        assert_eq!(lock(&other), Err(rustix::io::Errno::WOULDBLOCK));
    }
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::Unlock).unwrap();
    lock(&other).unwrap();
    drop((holder, other));
    disk.umount();
}

/// An image of a type that obento formats, mounted.
pub fn formatted(fs_type: &str, image: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    if !require(&[Oracle::Fuse]) {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("obento-upgrade-").tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    obento(folder.path(), &["mkfs", "-t", fs_type, image, "64M"]);
    obento(folder.path(), &["mount", "-o", "io_uring=off", image, "mnt"]);
    let at = folder.path().join("mnt");
    Some((folder, at))
}

#[test]
fn mounts_of_other_types_are_passed_on_with_a_nameless_and_a_moved_file() {
    for fs_type in ["xv6", "vfat", "exfat"] {
        let Some((folder, at)) = formatted(fs_type, "disk.img") else { return };
        let create =
            |name: &str| File::options().read(true).write(true).create_new(true).open(at.join(name)).unwrap();
        let (mut file, mut moved) = (create("f"), create("moved"));
        file.write_all(&[1; 3000]).unwrap();
        fs::remove_file(at.join("f")).unwrap();
        moved.write_all(&[3; 3000]).unwrap();
        fs::create_dir(at.join("dir")).unwrap();
        fs::rename(at.join("moved"), at.join("dir/moved")).unwrap();
        let number = moved.metadata().unwrap().ino();
        let server = serving(folder.path());
        obento(folder.path(), &["mount", "--upgrade", "mnt"]);
        let second = serving(folder.path());
        assert_ne!(second, server);
        for (file, byte) in [(&mut file, 2), (&mut moved, 4)] {
            file.write_all(&[byte; 3000]).unwrap();
            let mut contents = [0; 6000];
            file.read_exact_at(&mut contents, 0).unwrap();
            assert_eq!((contents[2999], contents[3000]), (byte - 1, byte));
        }
        obento(folder.path(), &["mount", "--upgrade", "mnt"]);
        assert_ne!(serving(folder.path()), second);
        assert_eq!(fs::metadata(at.join("dir/moved")).unwrap().ino(), number);
        drop((file, moved));
        assert_eq!(fs::read(at.join("dir/moved")).unwrap().len(), 6000);
        umount(folder.path());
        obento(folder.path(), &["check", "disk.img"]);
    }
}

#[test]
fn a_volume_that_the_kernel_engine_opened_is_refused_by_name() {
    if !require(&[Oracle::Fuse, Oracle::Program("linux.uml"), Oracle::Program("mkfs.btrfs")]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-upgrade-").tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    File::create(folder.path().join("disk.img")).unwrap().set_len(130 << 20).unwrap();
    run(program("mkfs.btrfs").arg("-q").arg(folder.path().join("disk.img"))).unwrap();
    obento(folder.path(), &["mount", "-o", "io_uring=off", "disk.img", "mnt"]);
    for words in [&["--upgrade", "mnt"][..], &["--upgrade", "mnt", "--dry-run"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(folder.path()).arg("mount").args(words).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("the kernel engine"), "{said}");
    }
    fs::write(folder.path().join("mnt/works"), "yes").unwrap();
    umount(folder.path());
}

/// Requests the free space, which the server answers each time, until `is_over`. Returns the longest wait.
fn longest_wait(at: &Path, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        rustix::fs::statvfs(at).unwrap();
        longest = longest.max(begin.elapsed());
    }
    longest
}

#[test]
#[ignore = "a measurement: cargo xtask upgrade-bench"]
fn the_longest_wait_of_a_program_is_measured() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let mut waits: Vec<_> = (0..upgrades())
        .map(|round| {
            fs::write(disk.path(&format!("f{}", round % 10)), vec![round as u8; 100_000]).unwrap();
            let is_over = AtomicBool::new(false);
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| longest_wait(&disk.at(), &is_over));
                upgrade(&disk);
                is_over.store(true, Ordering::Relaxed);
                waiting.join().unwrap()
            })
        })
        .collect();
    waits.sort_unstable();
    let part = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    let [least, half, most_of_all, nearly_all, all] = [0, 50, 90, 99, 100].map(part);
    println!("longest wait for one request during a replacement, of {} replacements, in ms:", waits.len());
    println!("Bento: 15 ms for one replacement (FAST '21)");
    println!("  min {least:.2}, median {half:.2}, 90 % {most_of_all:.2}, 99 % {nearly_all:.2}, max {all:.2}");
    disk.umount();
}
