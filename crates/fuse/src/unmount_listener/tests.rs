//! Servers and waiting processes in one process, each with folders of its own.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::folders::connect;
use super::server::take_over;
use super::*;
use crate::mountinfo::MountPoint;

const LONG: Duration = Duration::from_secs(60);
const EPOCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn mount(source: &str, path: &str) -> MountPoint {
    MountPoint {
        id: 1,
        device: "9999:1".into(),
        path: path.into(),
        fs_type: "fuse.obento".into(),
        source: source.into(),
        flags: String::new(),
        options: format!("rw,user_id={}", rustix::process::geteuid().as_raw()),
    }
}

fn folders(folder: &tempfile::TempDir) -> Folders {
    Folders { user: rustix::process::geteuid().as_raw(), paths: vec![folder.path().join("sockets")] }
}

fn listen(folders: &Folders, mount: &MountPoint) -> ServingListener {
    UnmountListener::listen_in(folders, mount).unwrap().attend().unwrap()
}

#[test]
fn a_waiting_process_learns_the_end_of_its_mount_while_an_earlier_server_with_its_number_still_writes() {
    let folder = tempfile::tempdir().unwrap();
    let folders = folders(&folder);
    let long = format!("/{}", "long/".repeat(40));
    let before = mount("disk.img", &format!("{long}/a"));
    for after in [mount("disk.img", &format!("{long}/b")), mount("other.img", &format!("{long}/a"))] {
        let (writes, ends) = (listen(&folders, &before), listen(&folders, &after));
        let waiting = ServerWait::connect_in(&folders, &after).unwrap();
        ends.say(None);
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
        let waiting = ServerWait::connect_in(&folders, &before).unwrap();
        writes.say(Some("no space"));
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Failed("no space".into()));
    }
}

#[test]
fn the_server_of_a_mount_is_found_after_a_directory_above_the_mount_point_was_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let folders = folders(&folder);
    let [before, after] = ["/old/mnt", "/new/mnt"].map(|path| mount("disk.img", path));
    let [other_source, other_device] = [mount("other.img", "/b"), mount("disk.img", "/c")];
    let other_device = MountPoint { device: "9999:12".into(), ..other_device };
    let ended = listen(&folders, &mount("disk.img", "/ended/mnt"));
    // The clock of a file system may not distinguish the two sockets.
    let long_ago = Timestamps { last_access: EPOCH, last_modification: EPOCH };
    for socket in std::fs::read_dir(&folders.paths[0]).unwrap() {
        rustix::fs::utimensat(CWD, socket.unwrap().path(), &long_ago, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let serves = listen(&folders, &before);
    let others = [&other_source, &other_device].map(|mount| listen(&folders, mount));
    let waiting = ServerWait::connect_in(&folders, &after).unwrap();
    ended.say(Some("an earlier mount"));
    others.into_iter().for_each(|other| other.say(Some("another file system")));
    serves.say(None);
    assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
    assert_eq!(ServerWait::connect_in(&folders, &after).unwrap_err(), NoServer::Ended);
}

#[test]
fn a_user_whose_folder_another_user_has_taken_gets_one_that_clients_find() {
    let folder = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let folders = || Folders::at(user, folder.path().join("missing/obento"), folder.path());
    // It is not private, as the folder of another user would not be.
    std::fs::create_dir(folder.path().join(format!(".obento-{user}"))).unwrap();
    let mount = mount("disk.img", "/mnt");
    let server = listen(&folders(), &mount);
    let waiting = ServerWait::connect_in(&folders(), &mount).unwrap();
    server.say(None);
    assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
    drop(listen(&folders(), &mount));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the folder is used again");
}

#[test]
fn a_file_system_that_is_mounted_on_a_folder_is_not_entered() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let mounted = folder.path().join(format!(".obento-{user}-mounted"));
    let own = folder.path().join(format!(".obento-{user}-own"));
    [&mounted, &own].into_iter().for_each(|path| rustix::fs::mkdir(path, Mode::RWXU).unwrap());
    run(program("mount").args(["-t", "tmpfs", "-o", "mode=700", "none"]).arg(&mounted)).unwrap();
    let folders = Folders::at(user, folder.path().join("missing/obento"), folder.path());
    run(program("umount").arg(&mounted)).unwrap();
    assert!(folders.paths.contains(&own) && !folders.paths.contains(&mounted), "{folders:?}");
}

#[test]
fn after_the_end_of_a_mount_the_same_mount_is_possible_and_old_sockets_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/again"));
    for _ in 0..3 {
        let server = listen(&folders, &mount);
        let waiting = ServerWait::connect_in(&folders, &mount).unwrap();
        server.say(None);
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
        assert_eq!(ServerWait::connect_in(&folders, &mount).unwrap_err(), NoServer::Ended);
        drop(UnmountListener::listen_in(&folders, &mount).unwrap());
    }
    folders.sweep();
    assert_eq!(std::fs::read_dir(&folders.paths[0]).unwrap().count(), 0);
}

#[test]
fn a_waiting_process_receives_the_end_from_the_server_that_took_over_the_mount() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/passed"));
    let first = listen(&folders, &mount);
    let before = ServerWait::connect_in(&folders, &mount).unwrap();
    let paused = first.pause();
    let meanwhile = ServerWait::connect_in(&folders, &mount).unwrap();
    let (listener, waiting) = paused.descriptors();
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let second = UnmountListener::adopt(own(listener), waiting.into_iter().map(own).collect());
    let second = second.unwrap().attend().unwrap();
    let after = ServerWait::connect_in(&folders, &mount).unwrap();
    second.say(None);
    drop(paused);
    for waiting in [before, meanwhile, after] {
        assert!(matches!(waiting.finish(LONG, LONG), Outcome::Durable | Outcome::Gone));
    }
}

#[test]
fn the_process_that_took_over_the_mount_last_is_reported() {
    const IS_OTHER: &str = "OBENTO_TEST_TAKES_OVER";
    if std::env::var_os(IS_OTHER).is_some() {
        // This is the other process. Its standard input is the socket.
        take_over(std::io::stdin());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/named"));
    let first = UnmountListener::listen_in(&folders, &mount).unwrap();
    let reported = || ServerWait::connect_in(&folders, &mount).unwrap().process();
    let this = std::process::id().cast_signed();
    assert_eq!(reported(), Some(this));
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::the_process_that_took_over_the_mount_last_is_reported");
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", &test]).env(IS_OTHER, "1").stdout(Stdio::null());
    let mut other = other.stdin(first.listener.as_fd().try_clone_to_owned().unwrap()).spawn().unwrap();
    let process = other.id().cast_signed();
    assert!(other.wait().unwrap().success());
    assert_eq!(reported(), Some(process));
    first.take_over();
    assert_eq!(reported(), Some(this));
}

#[test]
fn many_connections_neither_fill_the_queue_nor_keep_a_waiting_process_from_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/flood"));
    let server = listen(&folders, &mount);
    let waiting = ServerWait::connect_in(&folders, &mount).unwrap();
    for _ in 0..1000 {
        drop(ServerWait::connect_in(&folders, &mount).unwrap());
    }
    let idle: Vec<_> = (0..300).map(|_| ServerWait::connect_in(&folders, &mount).unwrap()).collect();
    server.say(None);
    assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
    assert!(idle.into_iter().any(|idle| idle.finish(LONG, LONG) == Outcome::Gone));
}

#[test]
fn a_server_that_does_not_accept_is_reported_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/full"));
    let _server = UnmountListener::listen_in(&folders, &mount).unwrap();
    let path = folders.paths[0].join(name(&mount));
    let mut queue = Vec::new();
    while let Ok(stream) = connect(&path, Duration::ZERO) {
        queue.push(stream);
    }
    assert_eq!(connect(&path, Duration::from_millis(1)).unwrap_err(), Errno::AGAIN);
    // The wait for a server that does not respond ends, too.
    let waiting = ServerWait(queue.pop().unwrap());
    waiting.0.set_nonblocking(false).unwrap();
    assert_eq!(waiting.finish(LONG, Duration::from_millis(1)), Outcome::Silent);
}

#[test]
fn the_time_to_connect_does_not_grow_with_the_number_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (mut folders, mount) = (folders(&folder), mount("disk.img", "/many"));
    let (mut servers, mut queues) = (Vec::new(), Vec::new());
    folders.paths = (0..20).map(|number| folder.path().join(format!(".obento-{number}"))).collect();
    for path in &folders.paths {
        rustix::fs::mkdir(path, Mode::RWXU).unwrap();
        let socket = path.join(name(&mount));
        let server = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        // The shortest queue.
        rustix::net::listen(&server, 0).unwrap();
        servers.push(server);
        while let Ok(stream) = connect(&socket, Duration::ZERO) {
            queues.push(stream);
        }
    }
    let begin = Instant::now();
    let connected = folders.connect_within(&mount, "", Duration::from_secs(1));
    assert_eq!(connected.unwrap_err(), NoServer::Silent);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_server_that_is_still_writing_differs_from_one_that_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, mount) = (folders(&folder), mount("disk.img", "/slow"));
    let mut server = UnmountListener::listen_in(&folders, &mount).unwrap();
    server.every = Duration::from_millis(1);
    let server = server.attend().unwrap();
    let connect = || ServerWait::connect_in(&folders, &mount).unwrap();
    assert_eq!(connect().finish(LONG, Duration::from_millis(20)), Outcome::Silent);
    let [late, durable] = [connect(), connect()];
    assert_eq!(durable.process(), Some(std::process::id().cast_signed()));
    server.begin_closing();
    assert_eq!(late.finish(Duration::from_millis(50), LONG), Outcome::Late);
    let waits = std::thread::spawn(move || durable.finish(LONG, LONG));
    // A process that connects after the end of the mount waits, too.
    let failed = connect();
    assert_eq!(connect().finish(Duration::from_millis(50), LONG), Outcome::Late);
    server.say(Some("no space"));
    assert_eq!(waits.join().unwrap(), Outcome::Failed("no space".into()));
    assert_eq!(failed.finish(LONG, LONG), Outcome::Failed("no space".into()));
}

#[test]
fn the_state_of_another_mount_is_not_read_through_a_link_or_a_renamed_socket() {
    let folder = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let [theirs, ours] =
        ["theirs", "ours"].map(|path| Folders { user, paths: vec![folder.path().join(path)] });
    let other = MountPoint { device: "9999:2".into(), ..mount("other.img", "/other") };
    let mount = mount("disk.img", "/mnt");
    let _other = listen(&theirs, &other);
    let server = listen(&ours, &mount);
    let path = ours.paths[0].join(name(&mount));
    let connected = || ServerWait::connect_in(&ours, &mount).map(drop);
    assert_eq!(connected(), Ok(()));
    std::fs::remove_file(&path).unwrap();
    symlink(theirs.paths[0].join(name(&other)), &path).unwrap();
    assert_eq!(connected(), Err(NoServer::Ended));
    std::fs::rename(theirs.paths[0].join(name(&other)), &path).unwrap();
    assert_eq!(connected(), Err(NoServer::Ended));
    drop(server);
}

#[test]
fn a_folder_that_is_not_private_or_is_a_link_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (mut folders, mount) = (folders(&folder), mount("disk.img", "/taken"));
    let path = folders.paths[0].clone();
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(
        UnmountListener::listen_in(&folders, &mount)
            .unwrap_err()
            .to_string()
            .contains("not a private directory")
    );
    assert_eq!(ServerWait::connect_in(&folders, &mount).unwrap_err(), NoServer::Ended);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    folders.paths = vec![link];
    assert!(UnmountListener::listen_in(&folders, &mount).is_err());
    folders.paths = vec![path];
    folders.user += 1;
    assert!(UnmountListener::listen_in(&folders, &mount).is_err());
}
