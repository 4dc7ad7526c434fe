//! A fault at each message between the two servers of a replacement. A process between both cuts a message, changes it, or
//! kills a server. The mount stays with one server, or is as after a crash.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use obento_fuse::find_mount;
use obento_fuse::handover::{Connection, Fields, Kind, Message, Offer, VERSION};
use obento_testkit::{Oracle, require};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Disk, text};
use crate::upgrade::works;

/// The messages in their order. The first one is of the new server, and then both send in turn.
const MESSAGES: [Kind; 7] =
    [Kind::Hello, Kind::Offer, Kind::Ready, Kind::State, Kind::Taken, Kind::Go, Kind::Started];
/// The longest wait for a message: a bound against hangs.
const SOON: Duration = Duration::from_secs(30);

/// A fault in place of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Half of the message arrives.
    Cut,
    /// A byte is changed.
    Checksum,
    /// The sender has another major version.
    Version,
    /// The sender names another volume.
    Volume,
    /// The new server is killed before the message arrives or is sent.
    KillNew,
    /// The old server is killed before the message arrives.
    KillOld,
}

/// The place between both servers: the socket of the old one has another name meanwhile.
struct Between {
    old: Pid,
    usual: PathBuf,
    hidden: PathBuf,
    listener: UnixListener,
}

impl Between {
    fn new(disk: &Disk) -> Self {
        let (old, usual) = (disk.server(), control_socket(disk));
        let hidden = usual.with_extension("hidden");
        fs::rename(&usual, &hidden).unwrap();
        Self { old, listener: UnixListener::bind(&usual).unwrap(), usual, hidden }
    }

    /// Waits for the new server: its stream, its connection and its first message. Other processes only try whether a
    /// server listens, and end their connection.
    fn accept(&self) -> ((UnixStream, Connection), Option<Message>) {
        loop {
            let (stream, _) = self.listener.accept().unwrap();
            let connection = Connection::of_stream(stream.try_clone().unwrap()).unwrap();
            if let Ok(hello) = connection.expect_within(MESSAGES[0], Some(SOON)) {
                return ((stream, connection), Some(hello));
            }
        }
    }

    /// Passes messages on until message `at`, in whose place `fault` happens. Both connections are closed then.
    fn disturb(&self, new: &mut Child, at: usize, fault: Fault) {
        let (of_new, mut hello) = self.accept();
        let of_old = UnixStream::connect(&self.hidden).unwrap();
        let raw = [&of_old, &of_new.0].map(|stream| stream.try_clone().unwrap());
        let connections = [of_new.1, Connection::of_stream(of_old).unwrap()];
        for (number, kind) in MESSAGES.into_iter().enumerate() {
            let (from, to) = (&connections[number % 2], &connections[1 - number % 2]);
            let received = hello.take().map_or_else(|| from.expect_within(kind, Some(SOON)), Ok);
            let message = match received {
                Ok(message) => message,
                // The new server has noticed the other volume.
                Err(error) => return assert_eq!(fault, Fault::Volume, "{error}"),
            };
            if number != at {
                let descriptors: Vec<_> = message.descriptors.iter().map(|fd| fd.as_fd()).collect();
                to.send(kind, &message.fields, &descriptors).unwrap();
                continue;
            }
            match fault {
                Fault::Volume => {
                    // The new server compares it with the volume in the image, which it gets later.
                    send_changed(&raw[number % 2], &message, fault);
                    continue;
                }
                Fault::KillNew => drop((new.kill().unwrap(), new.wait().unwrap())),
                Fault::KillOld => kill_process(self.old, Signal::KILL).unwrap(),
                _ => send_changed(&raw[number % 2], &message, fault),
            }
            return;
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        let _ = fs::rename(&self.hidden, &self.usual);
    }
}

/// Returns the newest control socket for the device number of the mount.
fn control_socket(disk: &Disk) -> PathBuf {
    let device = find_mount(&disk.at().canonicalize().unwrap()).unwrap().device;
    let is_meant = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&format!("{device}-")) && name.ends_with("-control")
    };
    let entries = fs::read_dir("/run/obento").unwrap().map(|entry| entry.unwrap().path());
    let sockets = entries.filter(|path| is_meant(path));
    sockets.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
}

/// Returns the bytes of a message.
fn bytes_of(kind: Kind, fields: &[u8]) -> Vec<u8> {
    let (one, mut other) = UnixStream::pair().unwrap();
    let fields = fields.to_vec();
    let sender = std::thread::spawn(move || {
        Connection::of_stream(one).unwrap().send(kind, &fields, &[]).unwrap();
    });
    let mut bytes = Vec::new();
    other.read_to_end(&mut bytes).unwrap();
    sender.join().unwrap();
    bytes
}

fn send_changed(mut to: &UnixStream, message: &Message, fault: Fault) {
    let whole = bytes_of(message.kind, &message.fields);
    let bytes = match fault {
        Fault::Cut => whole[..whole.len() / 2].to_vec(),
        Fault::Checksum => {
            let mut changed = whole;
            *changed.last_mut().unwrap() ^= 1;
            changed
        }
        Fault::Version => {
            let major = u64::from(VERSION.0) + 1;
            bytes_of(message.kind, &Fields::default().with_number(1, major).with_number(2, 0).into_bytes())
        }
        _ => {
            let offer = Offer::decode(&message.fields).unwrap();
            let volume_id = "00000000-0000-0000-0000-000000000000".into();
            bytes_of(message.kind, &Offer { volume_id, ..offer }.encode())
        }
    };
    // The stream does not block. The messages are shorter than the buffer of the socket.
    to.write_all(&bytes).unwrap();
}

/// Starts a new server, which stays a child of this process.
fn start(disk: &Disk) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(disk.folder()).args(["mount", "--foreground", "--upgrade", "mnt"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn disk() -> Option<Disk> {
    let disk = Some(()).filter(|()| require(&[Oracle::Root])).and_then(|()| Disk::mounted("io_uring=off"))?;
    fs::write(disk.path("synced"), vec![5; 50_000]).unwrap();
    File::open(disk.path("synced")).unwrap().sync_all().unwrap();
    Some(disk)
}

#[test]
fn a_fault_at_any_message_leaves_the_mount_to_the_old_server() {
    let Some(disk) = disk() else { return };
    let mut open = File::options().append(true).create_new(true).open(disk.path("open")).unwrap();
    fs::remove_file(disk.path("open")).unwrap();
    let server = disk.server();
    let everywhere = [Fault::Cut, Fault::Checksum, Fault::KillNew];
    // The last message is not among them: then the new server has the mount.
    let places = (0..MESSAGES.len() - 1).flat_map(|at| everywhere.map(|fault| (at, fault)));
    let versions = [0, 1, 3].map(|at| (at, Fault::Version));
    for (at, fault) in places.chain(versions).chain([(1, Fault::Volume)]) {
        let between = Between::new(&disk);
        let mut new = start(&disk);
        between.disturb(&mut new, at, fault);
        let output = new.wait_with_output().unwrap();
        assert!(!output.status.success(), "{:?}, {fault:?}", MESSAGES[at]);
        if fault == Fault::Volume {
            let said = text(&output.stderr);
            assert!(said.contains("the image contains another volume"), "{said}");
        }
        drop(between);
        works(&disk);
        open.write_all(b"x").unwrap();
        assert_eq!(disk.server(), server, "{:?}, {fault:?}", MESSAGES[at]);
    }
    drop(open);
    disk.umount();
}

#[test]
fn a_changed_last_message_leaves_the_mount_to_the_new_server() {
    let Some(disk) = disk() else { return };
    let between = Between::new(&disk);
    let mut new = start(&disk);
    between.disturb(&mut new, MESSAGES.len() - 1, Fault::Checksum);
    drop(between);
    works(&disk);
    assert_eq!(disk.server().as_raw_nonzero().get(), new.id().cast_signed());
    disk.umount();
    assert!(new.wait().unwrap().success());
}

#[test]
fn a_killed_old_server_leaves_a_volume_as_after_a_crash_and_the_new_one_ends() {
    for at in [1, 3, 5] {
        let Some(disk) = disk() else { return };
        let between = Between::new(&disk);
        let mut new = start(&disk);
        between.disturb(&mut new, at, Fault::KillOld);
        assert!(!new.wait().unwrap().success(), "{:?}", MESSAGES[at]);
        drop(between);
        disk.clear_killed();
        disk.mount_after_kill();
        assert!(fs::read(disk.path("synced")).unwrap() == vec![5; 50_000], "{:?}", MESSAGES[at]);
        disk.umount();
        disk.fsck();
    }
}
