//! A folder of the host at which a volume is mounted, used like any program would.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use obento_base::{Errno, FileKind};
use obento_driver::{Access, Limits};

use super::{Answer, FileStat, Host, each_in_a_thread};
use crate::plan::{HostActor, Op, act_on_host};

/// A mounted volume.
pub struct Folder {
    root: PathBuf,
    actor: HostActor,
    limits: Limits,
    again: Box<dyn FnMut(Access)>,
    held: Option<File>,
    whiteouts: Option<bool>,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Folder {
    /// Uses the folder `root`, at which a volume with these limits is mounted for changes. `again` unmounts and mounts
    /// it again.
    pub fn new(root: PathBuf, limits: Limits, again: impl FnMut(Access) + 'static) -> Self {
        let actor = HostActor::new(root.clone());
        Self { root, actor, limits, again: Box::new(again), held: None, whiteouts: None }
    }
}

fn answer<T>(result: io::Result<T>) -> Answer<T> {
    result.map_err(|error| match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => Errno(number),
        (None, io::ErrorKind::InvalidInput) => Errno(22),
        (None, _) => Errno(5),
    })
}

/// Acts with the user ID and the group ID `id`.
fn as_user<T: Send>(id: u32, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    let act = || {
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        act()
    };
    // A new thread is used, because it cannot regain its rights.
    std::thread::scope(|scope| scope.spawn(act).join()).expect("it does not panic")
}

fn read(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0xaa; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn kind(found: fs::FileType) -> FileKind {
    match found {
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Fifo,
        kind if kind.is_socket() => FileKind::Socket,
        kind if kind.is_block_device() => FileKind::BlockDevice,
        kind if kind.is_char_device() => FileKind::CharDevice,
        _ => FileKind::Regular,
    }
}

impl Host for Folder {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn free(&self) -> Answer<u64> {
        let use_of = rustix::fs::statvfs(&self.root).map_err(Into::into);
        answer(use_of).map(|found| found.f_bfree * found.f_frsize)
    }

    fn act(&mut self, number: usize, op: &Op) -> Answer<()> {
        answer(self.actor.act(number, op))
    }

    fn act_as(&mut self, id: u32, number: usize, op: &Op) -> Answer<()> {
        answer(as_user(id, || act_on_host(&self.root, number, op)))
    }

    fn xattr(&self, path: &str, name: &str) -> Answer<Vec<u8>> {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(self.root.join(path), name, &mut value).map_err(Into::into);
        value.truncate(answer(len)?);
        Ok(value)
    }

    fn set_xattr_as(&mut self, id: Option<u32>, path: &str, name: &str, value: &[u8]) -> Answer<()> {
        let path = self.root.join(path);
        let set = || Ok(rustix::fs::lsetxattr(&path, name, value, rustix::fs::XattrFlags::empty())?);
        answer(id.map_or_else(set, |id| as_user(id, set)))
    }

    fn together(&mut self, lists: &[Vec<Op>]) -> Vec<Vec<Answer<()>>> {
        each_in_a_thread(lists, &|list| {
            let act = |(number, op)| answer(act_on_host(&self.root, number, op));
            list.iter().enumerate().map(act).collect()
        })
    }

    fn open_emptied(&mut self, path: &str) -> Answer<()> {
        answer(OpenOptions::new().write(true).truncate(true).open(self.root.join(path)).map(drop))
    }

    fn make_nameless(&mut self, dir: &str) -> Answer<()> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        answer(openat(CWD, self.root.join(dir), flags, Mode::RUSR).map(drop).map_err(Into::into))
    }

    fn has_whiteouts(&mut self) -> bool {
        if let Some(known) = self.whiteouts {
            return known;
        }
        let (from, to) = ("whiteout-before", "whiteout-after");
        let is_made = File::create(self.root.join(from)).is_ok();
        let known = is_made && self.rename_leaving_whiteout(from, to).is_ok();
        [from, to].iter().for_each(|name| drop(fs::remove_file(self.root.join(name))));
        self.whiteouts = Some(known);
        known
    }

    fn rename_leaving_whiteout(&mut self, from: &str, to: &str) -> Answer<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let (from, to) = (self.root.join(from), self.root.join(to));
        answer(renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT).map_err(Into::into))
    }

    fn seen(&self, path: &str) -> Answer<FileStat> {
        let found = answer(fs::symlink_metadata(self.root.join(path)))?;
        Ok(FileStat {
            ino: found.ino(),
            kind: kind(found.file_type()),
            mode: (found.mode() & 0o7777) as u16,
            nlink: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
            uid: found.uid(),
            gid: found.gid(),
            size: found.size(),
            mtime: found.mtime(),
            ctime: found.ctime(),
        })
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        answer(File::open(self.root.join(path)).and_then(|file| read(&file, offset, len)))
    }

    fn list(&self, path: &str) -> Answer<Vec<Vec<u8>>> {
        let entries = answer(fs::read_dir(self.root.join(path)))?;
        entries.map(|entry| answer(entry.map(|entry| entry.file_name().into_vec()))).collect()
    }

    fn list_from(&self, path: &str, from: Option<u64>, most: usize) -> Answer<Vec<(Vec<u8>, u64)>> {
        let list = || {
            let mut dir = rustix::fs::Dir::read_from(File::open(self.root.join(path))?)?;
            if let Some(from) = from {
                dir.seek(from.cast_signed())?;
            }
            let entries = dir.take(most).map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().to_bytes().to_vec(), entry.offset().cast_unsigned()))
            });
            entries.collect()
        };
        answer(list())
    }

    fn read_link(&self, path: &str) -> Answer<Vec<u8>> {
        answer(fs::read_link(self.root.join(path)).map(|target| target.as_os_str().as_bytes().to_vec()))
    }

    fn hold(&mut self, path: &str) -> Answer<()> {
        let file = OpenOptions::new().read(true).write(true).open(self.root.join(path));
        self.held = Some(answer(file)?);
        Ok(())
    }

    fn read_held(&self, offset: u64, len: usize) -> Answer<Vec<u8>> {
        answer(read(self.held.as_ref().expect("a file is held"), offset, len))
    }

    fn write_held(&mut self, offset: u64, bytes: &[u8]) -> Answer<()> {
        answer(self.held.as_ref().expect("a file is held").write_all_at(bytes, offset))
    }

    fn sync_held(&mut self) -> Answer<()> {
        answer(self.held.as_ref().expect("a file is held").sync_all())
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn again(&mut self, access: Access) {
        self.held = None;
        self.actor = HostActor::new(self.root.clone());
        (self.again)(access);
    }
}
