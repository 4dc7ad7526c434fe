//! The eviction of idle files.

use obento_base::Ino;

use crate::contract::{Mounted, lock};

impl Mounted {
    /// Forgets idle files while there are too many of them. A file whose changes the server may not have
    /// stored is synced before, since `sync` skips inodes that are not known.
    pub(crate) fn evict_idle_files(&self) {
        loop {
            // During a sync, a later call evicts the files.
            let Ok(_no_sync) = self.syncing.try_write() else { return };
            let idle = lock(&self.nodes).idle();
            let Some(idle) = idle else { return };
            let ino = Ino(idle.number);
            let is_unsynced = lock(&self.unsynced).nodes.remove(&ino.0);
            if is_unsynced {
                self.sync_or_record(ino);
            }
            // A server must not get a FORGET for an inode with an open file.
            let mut files = lock(&self.open);
            let evicted = lock(&self.nodes).evict(&idle);
            if let Some(node) = evicted {
                self.close_files_in(&mut files, ino);
                drop(files);
                self.send_forget(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use obento_base::{Error, Name};
    use obento_driver::{Access, FileSystem as _, Layout, LayoutLock, WritableFileSystem as _};
    use obento_fuse_abi::{EntryOut, InHeader, OpenOut, OutHeader, ROOT, SizeOut, opcode};
    use obento_remote_nodes::KnownFiles;
    use rustix::io::{read, write};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::{FromBytes as _, IntoBytes as _};

    use super::*;
    use crate::connection::Connection;
    use crate::nodes::Remote;

    /// The requests of a server: the operation and the inode.
    type Requests = Arc<Mutex<Vec<(u32, u64)>>>;

    /// Serves files whose names are their numbers. FSYNC fails with this error number.
    fn serve(fsync_errno: i32) -> (Mounted, Requests) {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            while let Ok(len @ 1..) = read(&theirs, &mut request) {
                let (header, rest) = InHeader::read_from_prefix(&request[..len]).unwrap();
                lock(&seen).push((header.opcode, header.nodeid));
                let (mut body, mut error) = (Vec::new(), 0);
                match header.opcode {
                    opcode::FORGET => continue,
                    opcode::INIT => {
                        body = [7_u32, 31, 0, 0].map(u32::to_ne_bytes).concat();
                        body.resize(64, 0);
                    }
                    opcode::LOOKUP => {
                        let name = std::str::from_utf8(&rest[..rest.len() - 1]).unwrap();
                        let mut entry = EntryOut { nodeid: name.parse().unwrap(), ..EntryOut::default() };
                        (entry.attr.mode, entry.attr.nlink, entry.attr.blksize) = (0o100_644, 1, 4096);
                        body.extend(entry.as_bytes());
                    }
                    opcode::OPEN => body.extend(OpenOut::default().as_bytes()),
                    opcode::WRITE => body.extend(SizeOut { size: 3, padding: 0 }.as_bytes()),
                    opcode::FSYNC => error = -fsync_errno,
                    opcode::GETXATTR => error = -95,
                    _ => {}
                }
                let len = (size_of::<OutHeader>() + body.len()) as u32;
                let reply = OutHeader { len, error, unique: header.unique };
                write(&theirs, &[reply.as_bytes(), &body].concat()).unwrap();
            }
        });
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let connection = Arc::new(Connection::new(ours, Duration::from_secs(600)));
        let mounted = Mounted::new(connection, None, Access::ReadWrite).unwrap();
        lock(&mounted.nodes).files = KnownFiles::with_limits(ROOT, Remote::ROOT, 80, 50);
        (mounted, requests)
    }

    fn find(mounted: &Mounted, number: u64) -> Ino {
        mounted.lookup(mounted.root(), Name::new(number.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn write_to(mounted: &Mounted, ino: Ino) {
        let layout = LayoutLock::new();
        let layout: Layout<'_> = layout.shared();
        assert_eq!(mounted.write(&layout, ino, 0, b"abc"), Ok(3));
    }

    fn positions(requests: &Requests, wanted: (u32, u64)) -> Vec<usize> {
        let requests = lock(requests);
        (0..requests.len()).filter(|&index| requests[index] == wanted).collect()
    }

    /// Uses many other files once.
    fn use_others(mounted: &Mounted) {
        (100..400).for_each(|number| mounted.forget(find(mounted, number)));
    }

    #[test]
    fn a_written_file_is_synced_before_it_is_evicted() {
        let (mounted, requests) = serve(0);
        let ino = find(&mounted, 10);
        write_to(&mounted, ino);
        mounted.forget(ino);
        use_others(&mounted);
        assert_eq!(mounted.getattr(ino), Err(Error::Stale));
        // A request with a reply ends after the server has seen all earlier ones.
        find(&mounted, 11);
        let [synced] = positions(&requests, (opcode::FSYNC, 10))[..] else { panic!() };
        let [forgotten] = positions(&requests, (opcode::FORGET, 10))[..] else { panic!() };
        let opened = positions(&requests, (opcode::OPEN, 10));
        let closed = positions(&requests, (opcode::RELEASE, 10));
        assert_eq!(opened.len(), closed.len());
        assert!(synced < forgotten && closed.iter().all(|&at| at < forgotten));
        assert_eq!(mounted.sync(), Ok(()));
    }

    #[test]
    fn the_failed_sync_of_an_evicted_file_is_the_result_of_the_next_sync() {
        let (mounted, _) = serve(5);
        let ino = find(&mounted, 10);
        write_to(&mounted, ino);
        mounted.forget(ino);
        use_others(&mounted);
        assert_eq!(mounted.getattr(ino), Err(Error::Stale));
        assert!(mounted.sync().is_err());
        assert!(mounted.close().is_err());
    }

    #[test]
    fn a_file_that_is_in_use_again_is_not_evicted() {
        let (mounted, requests) = serve(0);
        let ino = find(&mounted, 10);
        mounted.forget(ino);
        assert_eq!(find(&mounted, 10), ino);
        use_others(&mounted);
        use_others(&mounted);
        assert!(mounted.getattr(ino).is_ok());
        assert_eq!(positions(&requests, (opcode::FORGET, 10)), []);
        mounted.forget(ino);
        use_others(&mounted);
        assert!(!mounted.acquire(ino));
        assert_eq!(mounted.getattr(ino), Err(Error::Stale));
        find(&mounted, 10);
        assert!(mounted.acquire(ino) && mounted.getattr(ino).is_ok());
    }

    #[test]
    fn a_second_walk_over_more_files_than_the_table_has_finds_all_files() {
        let (mounted, _) = serve(0);
        for _ in 0..2 {
            for number in 10..400 {
                let ino = find(&mounted, number);
                assert!(mounted.getattr(ino).is_ok());
                mounted.forget(ino);
            }
        }
    }
}
