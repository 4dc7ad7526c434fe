//! A mount whose server is a service of systemd (`-o failover=systemd`). No systemd is needed: a process of this test
//! has the part of the service manager.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, IoSliceMut, Lines, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use obento_testkit::{Oracle, require};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::support::{Disk, text, wait_until};

/// The environment variable with the folder of a disk for [`a_service_manager`].
const FOLDER: &str = "OBENTO_TEST_SERVICE";
/// The environment variable with the name of a descriptor that this manager loses once.
const LOST: &str = "OBENTO_TEST_LOST";
/// The name of that test.
const MANAGER: &str = "systemd::a_service_manager";

/// The service, as systemd sees it.
struct Managed {
    folder: PathBuf,
    socket: UnixDatagram,
    stored: BTreeMap<String, OwnedFd>,
}

impl Managed {
    /// Starts the service with the stored descriptors from number 3 on.
    fn start(&self) -> Child {
        // The shell has only these descriptors above 99, and opens none itself.
        let inherited: Vec<_> =
            self.stored.values().map(|fd| fcntl_dupfd_cloexec(fd, 100).unwrap()).collect();
        inherited.iter().for_each(|fd| fcntl_setfd(fd, FdFlags::empty()).unwrap());
        let moves = inherited.iter().zip(3..).map(|(fd, to)| format!(" {to}<&{0} {0}<&-", fd.as_raw_fd()));
        let moves: String = moves.collect();
        let script = format!("exec{moves}; export LISTEN_PID=$$; exec \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "service", env!("CARGO_BIN_EXE_obento")]);
        command.args(["mount", "--foreground", "-o", "failover=systemd", "disk.img", "mnt"]);
        command
            .env("NOTIFY_SOCKET", self.folder.join("notify"))
            .env("FDSTORE", "8")
            .current_dir(&self.folder);
        let names: Vec<_> = self.stored.keys().map(String::as_str).collect();
        if !names.is_empty() {
            command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Receives one message, if there is one.
    fn receive(&mut self, process: u32) -> bool {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let Ok(received) = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
        else {
            return false;
        };
        let mut descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptor = descriptors.next().and_then(|mut descriptors| descriptors.next());
        let message = text(&bytes[..received.bytes]);
        let value = |key: &str| message.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        match (value("FDSTORE=1"), value("FDSTOREREMOVE=1"), descriptor) {
            (Some(_), _, Some(descriptor)) => {
                assert_eq!(value("FDPOLL=").as_deref(), Some("0"));
                self.stored.insert(value("FDNAME=").unwrap(), descriptor);
            }
            (_, Some(_), _) => drop(self.stored.remove(&value("FDNAME=").unwrap())),
            // The end of the pipe of a barrier is closed here.
            _ => {}
        }
        if value("READY=1").is_some() {
            println!("\nready {process}");
        }
        true
    }
}

#[test]
#[ignore = "a process of another test"]
fn a_service_manager() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    let mut managed = Managed { folder, socket, stored: BTreeMap::new() };
    loop {
        let mut service = managed.start();
        let mut lost = std::env::var(LOST).ok().filter(|_| managed.stored.is_empty());
        let pidfd = pidfd_open(Pid::from_child(&service), PidfdFlags::empty()).unwrap();
        loop {
            let socket = managed.socket.as_fd();
            let mut polled = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
            poll(&mut polled, None).unwrap();
            let has_ended = !polled[1].revents().is_empty();
            while managed.receive(service.id()) {}
            lost.take_if(|lost| managed.stored.remove(lost).is_some());
            if has_ended {
                break;
            }
        }
        if service.wait().unwrap().success() {
            return println!("\nended with {} descriptors", managed.stored.len());
        }
    }
}

/// A running service manager.
struct Manager {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Manager {
    fn start(folder: &Path) -> Self {
        Self::losing(folder, None)
    }

    /// Starts a manager that loses a descriptor of the first service.
    fn losing(folder: &Path, name: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(name.map(|name| (LOST, name)));
        command.args(["--exact", MANAGER, "--include-ignored", "--nocapture"]);
        command.env(FOLDER, folder.canonicalize().unwrap()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for a line that begins with `word`, and returns the rest.
    #[track_caller]
    fn expect(&mut self, word: &str) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(word).map(str::to_owned)).expect(word)
    }

    fn kill_service(&mut self, service: &str) -> String {
        kill_process(Pid::from_raw(service.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        self.expect("ready ")
    }
}

fn disk() -> Option<Disk> {
    Some(()).filter(|()| require(&[Oracle::Program("bash")])).and_then(|()| Disk::new(&[]))
}

#[test]
fn a_service_that_is_killed_continues_with_its_stored_descriptors() {
    let Some(disk) = disk() else { return };
    let mut manager = Manager::start(disk.folder());
    let mut service = manager.expect("ready ");
    let mut nameless =
        File::options().read(true).write(true).create_new(true).open(disk.path("gone")).unwrap();
    nameless.write_all(b"begin").unwrap();
    fs::remove_file(disk.path("gone")).unwrap();
    for round in 0..4 {
        fs::create_dir(disk.path(&format!("dir{round}"))).unwrap();
        fs::write(disk.path(&format!("dir{round}/f")), vec![round; 50_000]).unwrap();
        let next = manager.kill_service(&service);
        assert_ne!(std::mem::replace(&mut service, next), service, "another process continues");
        for earlier in 0..=round {
            let found = fs::read(disk.path(&format!("dir{earlier}/f"))).unwrap();
            assert!(found == vec![earlier; 50_000], "{earlier}");
        }
        nameless.write_all(format!(",{round}").as_bytes()).unwrap();
    }
    let mut contents = [0; 13];
    nameless.read_exact_at(&mut contents, 0).unwrap();
    assert_eq!(&contents, b"begin,0,1,2,3");
    let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    assert!(status.contains("\"failovers\":4"), "{status}");
    assert!(status.contains(&format!("\"pid\":{service},")), "{status}");
    drop(nameless);
    disk.umount();
    assert_eq!(manager.expect("ended with "), "0 descriptors", "the image and the connection are closed");
    assert!(manager.process.wait().unwrap().success());
    disk.fsck();
    disk.mount("ro");
    assert!(fs::read(disk.path("dir3/f")).unwrap() == vec![3; 50_000]);
    disk.umount();
}

#[test]
fn a_service_whose_stored_descriptors_are_not_complete_mounts_the_volume_again() {
    for lost in ["obento-guard", "obento-image"] {
        let Some(disk) = disk() else { return };
        let mut manager = Manager::losing(disk.folder(), Some(lost));
        let service = manager.expect("ready ");
        let file = File::create(disk.path("f")).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let next = manager.kill_service(&service);
        assert_ne!(next, service);
        assert!(fs::metadata(disk.path("f")).is_ok(), "what was synced is present");
        disk.umount();
        assert_eq!(manager.expect("ended with "), "0 descriptors");
        assert!(manager.process.wait().unwrap().success());
        disk.fsck();
    }
}

#[test]
fn a_signal_ends_a_service_and_its_mount() {
    let Some(disk) = disk() else { return };
    let mut manager = Manager::start(disk.folder());
    let service = manager.expect("ready ");
    fs::write(disk.path("f"), "x").unwrap();
    kill_process(Pid::from_raw(service.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(manager.expect("ended with "), "0 descriptors");
    assert!(manager.process.wait().unwrap().success());
    wait_until("the unmount", || !disk.is_mounted());
    disk.fsck();
}

#[test]
fn without_a_service_manager_that_stores_descriptors_the_mount_is_refused() {
    let Some(disk) = Disk::new(&[]) else { return };
    let socket = UnixDatagram::bind(disk.folder().join("notify")).unwrap();
    let refused = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.arg("mount").args(words).args(["-o", "failover=systemd", "disk.img", "mnt"]);
        command.env_remove("NOTIFY_SOCKET").env_remove("FDSTORE").envs(variables.iter().copied());
        let output = command.current_dir(disk.folder()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    let said = refused(&[], &[]);
    assert!(said.contains("add --foreground"), "{said}");
    let said = refused(&["-f"], &[]);
    assert!(said.contains("NOTIFY_SOCKET is not set") && said.contains("FileDescriptorStoreMax=8"), "{said}");
    let said = refused(&["-f"], &[("NOTIFY_SOCKET", "notify"), ("FDSTORE", "2")]);
    assert!(said.contains("the service manager stores 2 of 6 descriptors"), "{said}");
    drop(socket);
    assert!(!disk.is_mounted());
}
