//! A target for the FUSE host, with a socket in place of `/dev/fuse`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use obento::{Volume, tmpfs};
use obento_env::NO_CLOCK;
use obento_fuse::{Pauser, RingChoice, Server, ServerOptions, SessionOptions, open_session};

/// The sizes of `struct fuse_in_header` and `struct fuse_init_in`. Source: Linux include/uapi/linux/fuse.h.
const HEADER: usize = 40;
const INIT: (u8, usize) = (26, 64);
const DESTROY: u8 = 38;
/// The greatest number of requests. The queue of a socket has room for ten messages; INIT and DESTROY are sent, too.
const REQUESTS: usize = 7;

/// Sends a sequence of requests. Each consists of an opcode, an inode, two bytes of length, and a body. If the highest
/// bit of the length is set, the header contains a wrong length.
pub fn fuse_request(data: &[u8]) {
    let _ = answers(data);
}

/// Returns the numbers of requests and the errors of their replies.
fn answers(data: &[u8]) -> BTreeMap<u64, i32> {
    let (kernel, server) = UnixDatagram::pair().expect("a socket");
    let mut unique = 0;
    let mut ask = |opcode: u8, node: u8, body: &[u8], lie: u32| {
        unique += 1;
        kernel.send(&request(opcode, unique, node, body, lie)).expect("room for a request");
    };
    let mut init = vec![0; INIT.1];
    init[..20]
        .copy_from_slice(&[7, 0, 0, 0, 45, 0, 0, 0, 0, 0, 2, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    ask(INIT.0, 0, &init, 0);
    let mut rest = data;
    for _ in 0..REQUESTS {
        let Some((&[opcode, node, len, high], after)) = rest.split_first_chunk::<4>() else { break };
        let len = (usize::from(len) | usize::from(high & 0x0f) << 8).min(after.len());
        let (body, after) = after.split_at(len);
        rest = after;
        // INIT would start the connection again, and DESTROY would end it.
        if opcode != DESTROY {
            ask(opcode, node, body, (high >> 7).into());
        }
    }
    ask(DESTROY, 0, &[], 0);
    let served = Arc::new(Server::new(volume().vfs().clone(), ServerOptions::default()));
    let options = SessionOptions { threads: 1, io_uring: RingChoice::Off, ..SessionOptions::default() };
    let pauser = Pauser::new().expect("a descriptor");
    let session = open_session(OwnedFd::from(server), served, options, pauser).expect("both sides agree");
    let _ = session.serve().expect("the socket does not fail");
    replies(&kernel, unique)
}

fn request(opcode: u8, unique: u64, node: u8, body: &[u8], lie: u32) -> Vec<u8> {
    let len = u32::try_from(HEADER + body.len()).expect("a short one") ^ lie;
    let mut bytes = [len, opcode.into()].map(u32::to_ne_bytes).concat();
    bytes.extend([unique, node.into()].map(u64::to_ne_bytes).concat());
    // The user, the group and the process, and no extensions.
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

/// Returns a volume with a few files and little memory, whose root has node ID 1. A request may allocate all of the
/// space.
fn volume() -> Volume {
    let options = tmpfs::Options { size: 4 << 20, ..tmpfs::Options::new(Arc::new(NO_CLOCK)) };
    let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(options)));
    volume.create_dir("/dir").expect("room");
    volume.write("/file", [7; 5000]).expect("room");
    volume.write("/dir/below", b"some bytes").expect("room");
    volume.symlink("file", "/link").expect("room");
    volume
}

/// Reads the replies. A reply that is too long for the socket is lost. No request gets two replies, and notifications
/// have number 0.
fn replies(kernel: &UnixDatagram, asked: u64) -> BTreeMap<u64, i32> {
    kernel.set_nonblocking(true).expect("a socket");
    let (mut seen, mut reply) = (BTreeMap::new(), vec![0; 256 << 10]);
    while let Ok(len) = kernel.recv(&mut reply) {
        let header = reply[..len].first_chunk::<16>().expect("a whole header");
        let (error, unique) = (i32::from_ne_bytes(header[4..8].try_into().expect("four")), &header[8..]);
        let unique = u64::from_ne_bytes(unique.try_into().expect("eight"));
        assert!(unique <= asked, "a reply without a request");
        if unique > 0 {
            assert!(seen.insert(unique, error).is_none(), "a second reply");
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn valid_requests_succeed() {
        let seeds = seeds::requests();
        for seed in &seeds[..3] {
            let found = answers(seed);
            assert!(found.keys().copied().eq(1..=9), "{found:?}");
            assert!(found.values().all(|&error| error == 0), "{found:?}");
        }
        // FORGET and requests with a wrong length get no reply.
        let found = answers(&seeds[3]);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 6, 7, 9], "{found:?}");
    }
}
