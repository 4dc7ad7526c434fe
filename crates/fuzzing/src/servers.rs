//! Targets for the clients of file servers: the fuzzer's bytes are the replies of a server.
//!
//! The input consists of replies, each after two bytes of length. Without further bytes, the server closes the
//! connection.

use std::io::Read as _;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento_driver::{
    Access, Cookie, FileSystem, LayoutLock, NewNode, RenameFlags, SetAttr, TimeChange, WritableFileSystem,
};
use obento_nfs_source::Export;
use obento_testkit::walk::walk;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::seeds::Seeds;

/// A server that reads a request answers at once, so that only a client that waits without a reason needs this time.
const DEADLINE: Duration = Duration::from_secs(20);
/// The greatest number of replies.
const REPLIES: usize = 300;

/// Takes a reply from the input.
fn reply<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&[low, high], rest) = data.split_first_chunk()?;
    let (found, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([low, high]).into()));
    *data = rest;
    Some(found)
}

/// Returns the bytes of an input with these replies.
fn input(replies: &[Vec<u8>]) -> Vec<u8> {
    let of = |reply: &Vec<u8>| {
        let len = u16::try_from(reply.len()).expect("a short one").to_le_bytes();
        [&len[..], reply].concat()
    };
    replies.iter().flat_map(of).collect()
}

/// Reads and changes the export of a server with these replies. Each is the results of a call; if its length is odd,
/// it is the whole message after the number of the call.
pub fn nfs_reply(data: &[u8]) {
    let (client, mut server) = UnixStream::pair().expect("a socket");
    let mut data = data.to_vec();
    data.truncate(1 << 20);
    let server = std::thread::spawn(move || {
        let mut data = data.as_slice();
        for _ in 0..REPLIES {
            let Some(results) = reply(&mut data) else { return };
            let mut mark = [0; 4];
            if server.read_exact(&mut mark).is_err() {
                return;
            }
            let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
            if server.read_exact(&mut call).is_err() {
                return;
            }
            // An accepted call that succeeded.
            let header: &[u32] = if results.len() % 2 == 0 { &[1, 0, 0, 0, 0] } else { &[] };
            let mut message = call[..4].to_vec();
            message.extend(header.iter().flat_map(|word| word.to_be_bytes()));
            message.extend(results);
            let mark = (1 << 31 | message.len() as u32).to_be_bytes();
            if send_all(&server, &[&mark[..], &message].concat()).is_err() {
                return;
            }
        }
    });
    if let Ok(fs) = Export::over(client.into(), b"root", DEADLINE).and_then(|it| it.mount(Access::ReadWrite))
    {
        walk(&*fs);
        if let Some(writable) = fs.writable() {
            change(&*fs, writable);
        }
    }
    server.join().expect("the server does not fail");
}

/// Sends all bytes. Raises no `SIGPIPE` if the client has closed its socket: libFuzzer starts a target without the runtime
/// of Rust, which ignores this signal.
fn send_all(socket: &UnixStream, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn change(fs: &dyn FileSystem, writable: &dyn WritableFileSystem) {
    let (root, lock) = (fs.root(), LayoutLock::new());
    let name = |text: &'static [u8]| Name::new(text).expect("a name");
    let new = |kind| NewNode {
        kind,
        mode: Mode::new(0o644),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: if kind == FileKind::Symlink { b"target" } else { b"" },
    };
    for (text, kind) in [
        (&b"new"[..], FileKind::Regular),
        (b"dir", FileKind::Directory),
        (b"link", FileKind::Symlink),
        (b"pipe", FileKind::Fifo),
    ] {
        let Ok(attr) = writable.create(root, name(text), &new(kind)) else { continue };
        let mtime = Some(TimeChange::At(Timestamp::new(1, 2)));
        let _ = writable.set_attr(attr.ino, &SetAttr { mtime, ..SetAttr::default() });
        let _ = writable.write(&lock.shared(), attr.ino, 1, b"bytes");
        let _ = writable.link(attr.ino, root, name(b"second"));
        let _ = writable.truncate(&lock.exclusive(), attr.ino, 9);
        fs.forget(attr.ino);
    }
    let _ = writable.rename(root, name(b"new"), root, name(b"old"), RenameFlags::empty());
    let _ = (writable.unlink(root, name(b"old")), writable.rmdir(root, name(b"dir")));
    let _ = writable.close();
}

/// Reads and changes the files of a FUSE server with these replies. Each is an error number of one byte, and the body.
pub fn fuse_reply(data: &[u8]) {
    let flags = SocketFlags::CLOEXEC;
    let (client, server) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    let mut data = data.to_vec();
    data.truncate(1 << 20);
    let server = std::thread::spawn(move || {
        let (mut data, mut request) = (data.as_slice(), vec![0; 1 << 16]);
        for _ in 0..REPLIES {
            let len = match recv(&server, &mut request[..], RecvFlags::empty()) {
                Ok((len, _)) if len >= 40 => len,
                _ => return,
            };
            // FORGET has no reply.
            if request[4] == 2 && len >= 40 {
                continue;
            }
            let Some((&error, body)) = reply(&mut data).and_then(<[u8]>::split_first) else { return };
            let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
            message.extend((-i32::from(error)).to_ne_bytes());
            message.extend(&request[8..16]);
            message.extend(body);
            if send(&server, &message, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    });
    if let Ok(fs) = obento_fuse_source::connect(client, DEADLINE, Access::ReadWrite) {
        walk(&*fs);
        if let Some(writable) = fs.writable() {
            change(&*fs, writable);
        }
        let _ = fs.read_dir(fs.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
    }
    server.join().expect("the server does not fail");
}

/// Big-endian words.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// `fattr3` of a file.
fn nfs_attributes(kind: u32, number: u32) -> Vec<u8> {
    words(&[kind, 0o644, 1, 0, 0, 0, 100, 0, 100, 0, 0, 0, 7, 0, number, 1, 2, 3, 4, 5, 6])
}

/// Returns the replies to a walk through a directory with a file.
pub fn nfs_replies() -> Seeds {
    let entry = |kind, number: u32, name: u32| {
        let handle = words(&[1, 4, number]);
        [words(&[1, 0, number, 4, name, 0, number, 1]), nfs_attributes(kind, number), handle].concat()
    };
    let of = |kind| {
        let listing = [words(&[0, 0, 9, 9]), entry(kind, 5, 0x6162_6364), words(&[0, 1])].concat();
        let found = [words(&[0, 4, 5, 1]), nfs_attributes(kind, 5), words(&[0])].concat();
        let read = match kind {
            1 => words(&[0, 0, 100, 1, 100]).into_iter().chain([7; 100]).collect(),
            _ => words(&[0, 0, 4, 0x6162_6364]),
        };
        let made = [words(&[0, 1, 4, 8, 1]), nfs_attributes(1, 8), words(&[0, 0])].concat();
        let after = [words(&[0, 0, 1]), nfs_attributes(1, 8)].concat();
        let written = [after.clone(), words(&[5, 0, 1, 1])].concat();
        let linked = [words(&[0, 1]), nfs_attributes(1, 8), words(&[0, 0])].concat();
        let committed = [words(&[0, 0, 0]), words(&[2, 2])].concat();
        input(&[
            [words(&[0]), nfs_attributes(2, 1)].concat(),
            words(&[0, 0, 4096, 4096, 8, 4096, 4096, 8, 4096, 0, 4096, 0, 1, 0]),
            words(&[0, 0, 0, 9000, 0, 800, 0, 800, 0, 10, 0, 5, 0, 5, 0]),
            listing,
            found,
            read,
            words(&[2, 0]),
            made,
            after.clone(),
            after,
            written.clone(),
            linked,
            committed,
            written,
        ])
    };
    [1, 2, 5].map(of).into()
}

/// Returns the replies to a walk through a directory with a file.
pub fn fuse_replies() -> Seeds {
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_ne_bytes()).collect::<Vec<u8>>();
    let ints = |ints: &[u32]| ints.iter().flat_map(|int| int.to_ne_bytes()).collect::<Vec<u8>>();
    let attributes = |number: u64, mode: u32| {
        [longs(&[number, 100, 1, 2, 3, 4]), ints(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
    };
    let entry = |mode| [longs(&[5, 0, 9, 9, 0]), attributes(5, mode)].concat();
    let init = |flags| ints(&[7, 31, 1 << 16, flags, 0, 1 << 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let ok = |body: Vec<u8>| [vec![0], body].concat();
    let statfs = [longs(&[100, 50, 50, 10, 5]), ints(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0])].concat();
    let dirent = [longs(&[5, 1]), ints(&[4, 8]), b"name\0\0\0\0".to_vec()].concat();
    let of = |(flags, mode)| {
        let listing = if flags == 0 { dirent.clone() } else { [entry(mode), dirent.clone()].concat() };
        // The replies to the changes: a missing name, a new file, its attributes, and the size of a write.
        let made = [entry(0o100_644), longs(&[4]), ints(&[0, 0])].concat();
        let changed = [longs(&[9]), ints(&[0, 0]), attributes(5, 0o100_644)].concat();
        input(&[
            ok(init(flags)),
            vec![61],
            ok(statfs.clone()),
            ok([longs(&[3]), ints(&[0, 0])].concat()),
            ok(listing),
            ok(Vec::new()),
            ok(Vec::new()),
            ok(entry(mode)),
            ok([longs(&[3]), ints(&[0, 0])].concat()),
            ok(vec![7; 100]),
            ok(ints(&[9, 0])),
            ok(b"user.one\0".to_vec()),
            vec![61],
            vec![2],
            ok(made),
            ok(changed.clone()),
            ok(changed),
            ok(ints(&[5, 0])),
            ok(entry(0o100_644)),
        ])
    };
    [(0, 0o100_644), (1 << 13, 0o100_644), (0, 0o120_777), (1 << 13, 0o040_755)].map(of).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_testkit::signals::expect_no_sigpipe;

    #[test]
    fn a_client_that_has_closed_its_socket_raises_no_sigpipe() {
        expect_no_sigpipe("servers::tests::a_client_that_has_closed_its_socket_raises_no_sigpipe", || {
            let (client, server) = UnixStream::pair().unwrap();
            drop(client);
            assert_eq!(send_all(&server, b"reply"), Err(Errno::PIPE));
        });
    }
}
