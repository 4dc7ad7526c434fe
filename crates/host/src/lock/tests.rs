//! Locks between opens, threads and processes. A second process is this test again, with its role in the
//! environment.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use obento_testkit::oracle::{LoopMount, call};
use obento_testkit::{Oracle, require};

use super::*;
use crate::FileDevice;

const ROLE: &str = "OBENTO_TEST_LOCK_ROLE";
const IMAGE: &str = "OBENTO_TEST_LOCK_IMAGE";
/// A user and group without privileges.
const OTHER_USER: u32 = 65534;

fn image() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    file
}

fn open(path: &Path, purpose: Purpose) -> Result<FileDevice, HostError> {
    FileDevice::open_locked(path, purpose)
}

/// Runs `test` in a separate process as `role`. Returns its output after `>`.
fn start(test: &str, role: &str, image: &Path, user: Option<u32>) -> (Child, String) {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("obento").args(["--exact", &format!("lock::tests::{test}")]);
    command.args(["--test-threads=1", "--nocapture"]);
    command.env(ROLE, role).env(IMAGE, image).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let said = lines.find_map(|line| line.split_once('>').map(|(_, said)| said.to_owned()));
    (child, said.expect("the other process says something"))
}

/// Returns the role of this process, if it is the second one.
fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(IMAGE)?.into()))
}

/// Opens the image for its role, prints the result, and holds the image until standard input is closed.
fn play(role: &str, image: &Path) {
    let purpose = if role == "change" { Purpose::Change } else { Purpose::Read };
    let opened = open(image, purpose);
    println!(">{}", opened.as_ref().map_or_else(ToString::to_string, |_| "opened".to_owned()));
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn several_readers_are_allowed_and_no_writer_meanwhile() {
    let image = image();
    let readers: Vec<_> = (0..4).map(|_| open(image.path(), Purpose::Read).unwrap()).collect();
    let error = open(image.path(), Purpose::Change).unwrap_err();
    assert!(matches!(error, HostError::InUse { user: User::Ourselves, .. }), "{error}");
    drop(readers);
    open(image.path(), Purpose::Change).unwrap();
}

#[test]
fn a_file_is_replaced_while_others_read_it_and_not_while_one_changes_it() {
    let image = image();
    let reader = open(image.path(), Purpose::Read).unwrap();
    let replaced = ReplacedFile::lock(image.path()).unwrap();
    assert!(replaced.is_some() && open(image.path(), Purpose::Change).is_err());
    open(image.path(), Purpose::Read).unwrap();
    drop((reader, replaced));
    let writer = open(image.path(), Purpose::Change).unwrap();
    let error = ReplacedFile::lock(image.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot replace '") && error.contains("it is in use by this process"),
        "{error}"
    );
    drop(writer);
    // A virtual machine that writes.
    let machine = std::fs::File::options().read(true).write(true).open(image.path()).unwrap();
    set_lock(&machine, libc::F_RDLCK, &QEMU_WRITES).unwrap();
    ReplacedFile::lock(image.path()).unwrap_err();
    assert!(ReplacedFile::lock(image.path().parent().unwrap()).unwrap().is_none());
    assert!(ReplacedFile::lock(Path::new("/nonexistent")).unwrap().is_none());
}

#[test]
fn one_writer_excludes_all_readers_and_writers_in_all_threads() {
    let image = image();
    let writer = open(image.path(), Purpose::Change).unwrap();
    assert!(writer.lock_notices().is_empty());
    for purpose in [Purpose::Read, Purpose::Change] {
        let error = std::thread::scope(|scope| scope.spawn(|| open(image.path(), purpose)).join().unwrap());
        let error = error.unwrap_err().to_string();
        let what = match purpose {
            Purpose::Read => ("read", "being changed"),
            Purpose::Change | Purpose::Replace => ("change", "in use"),
        };
        let (verb, state) = what;
        let image = image.path().display();
        assert_eq!(error, format!("cannot {verb} '{image}': it is {state} by this process"));
    }
    // A process that requests no lock can always read.
    FileDevice::open(image.path()).unwrap();
    drop(writer);
    open(image.path(), Purpose::Read).unwrap();
}

#[test]
fn another_process_is_named_and_its_lock_ends_with_it_however_it_ends() {
    if let Some((role, image)) = role() {
        return play(&role, &image);
    }
    let image = image();
    let test = "another_process_is_named_and_its_lock_ends_with_it_however_it_ends";
    let (mut child, said) = start(test, "change", image.path(), None);
    assert_eq!(said, "opened");
    let error = open(image.path(), Purpose::Read).unwrap_err();
    let HostError::InUse { user: User::Process { pid, name }, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, child.id());
    assert_eq!(name, "obento");
    child.kill().unwrap();
    child.wait().unwrap();
    open(image.path(), Purpose::Change).unwrap();
}

#[test]
fn a_server_that_ends_is_waited_for_until_its_lock_is_gone_too() {
    // What is found of the holder at each attempt, and how many retries follow. The lock is free at the
    // third.
    let tried = |seen: &[Option<bool>]| {
        let (tries, looks) = (Cell::new(0), Cell::new(0));
        let attempt = || {
            tries.set(tries.get() + 1);
            if tries.get() <= TRIES + 3 { Err(Errno::AGAIN) } else { Ok(()) }
        };
        let look = || {
            looks.set(looks.get() + 1);
            seen.get(looks.get() - 1).copied().flatten()
        };
        (outlast(attempt, look), tries.get() - TRIES - 1)
    };
    assert_eq!(tried(&[Some(true), Some(true), None]), (Ok(()), 3));
    assert_eq!(tried(&[None, None, None]), (Ok(()), 3));
    assert_eq!(tried(&[Some(true), None, Some(false)]), (Err(Errno::AGAIN), 2));
    assert_eq!(tried(&[Some(false)]), (Err(Errno::AGAIN), 0));
}

#[test]
fn a_process_that_may_not_look_into_others_is_refused_all_the_same() {
    if let Some((role, image)) = role() {
        return play(&role, &image);
    }
    if !require(&[Oracle::Root]) {
        return;
    }
    let image = image();
    std::os::unix::fs::chown(image.path(), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    let test = "a_process_that_may_not_look_into_others_is_refused_all_the_same";
    let writer = open(image.path(), Purpose::Change).unwrap();
    let (mut child, said) = start(test, "change", image.path(), Some(OTHER_USER));
    let text = "it is in use by an unknown process, perhaps of another user or PID namespace";
    assert!(said.ends_with(text), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(writer);
    let (mut child, said) = start(test, "change", image.path(), Some(OTHER_USER));
    assert_eq!(said, "opened");
    let error = open(image.path(), Purpose::Change).unwrap_err();
    assert!(matches!(&error, HostError::InUse { user: User::Process { pid, .. }, .. } if *pid == child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_writing_virtual_machine_is_reported_to_readers_and_prevents_changes() {
    let image = image();
    let machine = std::fs::File::options().read(true).write(true).open(image.path()).unwrap();
    set_lock(&machine, libc::F_RDLCK, &QEMU_WRITES).unwrap();
    let reader = open(image.path(), Purpose::Read).unwrap();
    assert_eq!(reader.lock_notices(), [LockNotice::Unprotected(User::Ourselves)]);
    assert!(open(image.path(), Purpose::Change).is_err());
    drop(machine);
    // QEMU does not treat a reader as a user.
    assert_eq!(
        would_block(FileDevice::open(image.path()).unwrap().host_file(), libc::F_WRLCK, &(100..300)),
        None
    );
}

#[test]
fn a_lock_of_the_older_kind_names_its_process() {
    let image = image();
    let script = format!(
        "import fcntl,sys; f=open({:?},'r+b'); fcntl.lockf(f,fcntl.LOCK_EX); print('>',flush=True); sys.stdin.read()",
        image.path()
    );
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let mut child = Command::new("python3");
    let child = child.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let error = open(image.path(), Purpose::Read).unwrap_err();
    assert!(
        matches!(&error, HostError::InUse { user: User::Process { pid, .. }, .. } if *pid == child.id()),
        "{error}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_mounted_image_is_refused_for_change_by_any_path_and_reported_to_readers() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a.img"), folder.path().join("b.img"));
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    call("mke2fs", ["-q".as_ref(), path.as_os_str()]).unwrap();
    std::fs::hard_link(&path, &other).unwrap();
    let mount = LoopMount::new(&path, "").unwrap();
    let point = mount.path().to_owned();
    let error = open(&other, Purpose::Change).unwrap_err();
    let HostError::InUse { user: User::Loop { device, mount: Some(at) }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*at, point);
    assert!(matches!(
        open(&other, Purpose::Read).unwrap().lock_notices(),
        [LockNotice::Unprotected(User::Loop { .. })]
    ));
    // The device itself: the kernel refuses, and the mount is reported.
    let error = open(device, Purpose::Change).unwrap_err();
    assert!(matches!(&error, HostError::InUse { user: User::Mount(at), .. } if *at == point), "{error}");
    assert_eq!(
        open(device, Purpose::Read).unwrap().lock_notices(),
        [LockNotice::Unprotected(User::Mount(point))]
    );
    mount.unmount().unwrap();
    open(&path, Purpose::Change).unwrap();
    let mount = LoopMount::new(&path, "ro").unwrap();
    assert!(open(&path, Purpose::Change).is_err());
    assert_eq!(open(&path, Purpose::Read).unwrap().lock_notices(), [], "no process changes it");
    mount.unmount().unwrap();
}

#[test]
fn an_image_that_is_attached_to_a_loop_device_is_refused_for_change_and_read_without_a_word() {
    if !require(&[Oracle::LoopMount]) {
        return;
    }
    let image = image();
    let output = call("losetup", ["-f".as_ref(), "--show".as_ref(), image.path().as_os_str()]).unwrap();
    let node = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let (changing, reading) = (open(image.path(), Purpose::Change), open(image.path(), Purpose::Read));
    let whole = open(Path::new(&node), Purpose::Change).map(drop);
    call("losetup", ["-d", &node]).unwrap();
    assert_eq!(
        changing.unwrap_err().to_string(),
        format!("cannot change '{}': it is in use by the loop device {node}", image.path().display())
    );
    assert!(reading.unwrap().lock_notices().is_empty());
    whole.unwrap();
}

/// A loop device with partitions, and their mounts, until it is dropped.
struct Attached {
    node: String,
    folder: tempfile::TempDir,
}

impl Attached {
    fn new(image: &Path) -> Self {
        let arguments = ["-f".as_ref(), "--show".as_ref(), "-P".as_ref(), image.as_os_str()];
        let output = call("losetup", arguments).unwrap();
        let node = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self { node, folder: tempfile::tempdir().unwrap() }
    }

    fn partition(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}p{number}", self.node))
    }

    fn mount(&self, number: u32) -> PathBuf {
        let point = self.folder.path().to_owned();
        call("mount", [self.partition(number).as_os_str(), point.as_os_str()]).unwrap();
        point
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = call("umount", [self.folder.path()]);
        let _ = call("losetup", ["-d", &self.node]);
    }
}

#[test]
fn a_device_is_refused_for_change_while_a_loop_device_above_or_below_it_is_mounted() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(4 << 20).unwrap();
    call("mke2fs", ["-q".as_ref(), "-F".as_ref(), image.path().as_os_str()]).unwrap();
    let lower = Attached::new(image.path());
    let upper = Attached::new(Path::new(&lower.node));
    let top = Attached::new(Path::new(&upper.node));
    let is_mount = |path: &Path, at: &Path| {
        let error = open(path, Purpose::Change).unwrap_err();
        let HostError::InUse { user, .. } = &error else { panic!("{error}") };
        match user {
            User::Mount(point) => assert_eq!(point, at),
            User::Loop { mount, .. } => assert_eq!(mount.as_deref(), Some(at)),
            user => panic!("{user:?}"),
        }
    };
    for mounted in [&lower, &upper, &top] {
        let at = mounted.folder.path();
        call("mount", [mounted.node.as_ref(), at.as_os_str()]).unwrap();
        for path in [image.path(), lower.node.as_ref(), upper.node.as_ref(), top.node.as_ref()] {
            is_mount(path, at);
        }
        call("umount", [at]).unwrap();
    }
    // A device that nothing is attached to, and that is attached to devices without another use.
    open(Path::new(&top.node), Purpose::Change).unwrap();
    let error = open(Path::new(&lower.node), Purpose::Change).unwrap_err();
    assert!(matches!(&error, HostError::InUse { user: User::Loop { mount: None, .. }, .. }), "{error}");
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused_and_its_other_partitions_are_not() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("sgdisk")]) {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(16 << 20).unwrap();
    let arguments = ["-n", "1:2048:+4M", "-n", "2:0:+4M"].map(OsStr::new);
    call("sgdisk", arguments.into_iter().chain([image.path().as_os_str()])).unwrap();
    let disk = Attached::new(image.path());
    let (whole, first, second) = (PathBuf::from(&disk.node), disk.partition(1), disk.partition(2));
    if !second.exists() {
        eprintln!("skipped: the kernel makes no nodes for partitions here");
        return;
    }
    call("mke2fs", ["-q".as_ref(), first.as_os_str()]).unwrap();
    let point = disk.mount(1);
    for device in [&whole, &first] {
        let error = open(device, Purpose::Change).unwrap_err();
        assert!(matches!(&error, HostError::InUse { user: User::Mount(at), .. } if *at == point), "{error}");
        let notices = open(device, Purpose::Read).unwrap();
        assert_eq!(notices.lock_notices(), [LockNotice::Unprotected(User::Mount(point.clone()))]);
    }
    let error = open(image.path(), Purpose::Change).unwrap_err();
    let HostError::InUse { user: User::Loop { device, mount }, .. } = &error else { panic!("{error}") };
    assert_eq!((device, mount.as_ref()), (&whole, Some(&point)));
    // The other partition can be changed meanwhile, which prevents changing the disk.
    let changing = open(&second, Purpose::Change).unwrap();
    assert!(changing.lock_notices().is_empty());
    call("umount", [&point]).unwrap();
    let error = open(&whole, Purpose::Change).unwrap_err();
    assert!(matches!(error, HostError::InUse { user: User::Ourselves, .. }), "{error}");
    drop(changing);
    open(&whole, Purpose::Change).unwrap();
}

#[test]
fn an_image_with_a_mounted_part_is_refused_for_change() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(8 << 20).unwrap();
    let arguments = ["-q", "-F", "-E", "offset=1048576"].map(OsStr::new);
    call("mke2fs", arguments.into_iter().chain([image.path().as_os_str(), "4M".as_ref()])).unwrap();
    let mount = LoopMount::new(image.path(), "offset=1048576").unwrap();
    let error = open(image.path(), Purpose::Change).unwrap_err();
    let HostError::InUse { user: User::Loop { mount: at, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!(at.as_deref(), Some(mount.path()));
    mount.unmount().unwrap();
}

/// Forbids open file description locks in this thread, like a file system without a lock manager.
fn forbid_locks() {
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };
    let operation = u64::try_from(libc::F_OFD_SETLK).unwrap();
    let is_lock = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, operation).unwrap();
    let rules = [(libc::SYS_fcntl, vec![SeccompRule::new(vec![is_lock]).unwrap()])].into();
    let refuse = SeccompAction::Errno(libc::ENOLCK.unsigned_abs());
    let arch = seccompiler::TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn a_file_system_without_locks_is_reported_and_not_refused() {
    let image = image();
    let opened = std::thread::scope(|scope| {
        let without_locks = || {
            forbid_locks();
            [Purpose::Read, Purpose::Change].map(|purpose| open(image.path(), purpose).unwrap())
        };
        scope.spawn(without_locks).join().unwrap()
    });
    for device in opened {
        assert_eq!(device.lock_notices(), [LockNotice::NoLocks(Errno::NOLCK)]);
    }
    let notice = LockNotice::NoLocks(Errno::NOLCK).to_string();
    assert_eq!(
        notice,
        "the image cannot be locked: no locks available; ensure that no other process changes it"
    );
}
