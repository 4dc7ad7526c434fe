//! The library as a host: `vfs` over a driver, in this process.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{Error, FileKind, Mode, Name, Result};
use obento_driver::{Access, Cookie, FileSystem, Limits, RenameFlags, XattrMode};
use obento_vfs::{Caller, Config, Node, OpenFlags, Vfs};

use super::{Answer, FileStat, Host, each_in_a_thread};
use crate::plan::{Actor, Op, new_node};

/// Opens the volume.
type Open = Box<dyn Fn(Access) -> Result<Arc<dyn FileSystem>>>;

/// A volume in this process.
pub struct Library {
    open: Open,
    /// `None` only while the volume is opened again.
    actor: Option<Actor>,
    held: Option<Node>,
    lasts: bool,
    repeats: bool,
    keeps_removed: bool,
    has_flags: bool,
    narrow: fn(Limits) -> Limits,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

impl Library {
    /// Uses the volume that `open` opens, for changes.
    pub fn new(open: impl Fn(Access) -> Result<Arc<dyn FileSystem>> + 'static) -> Self {
        Self::unopened(Box::new(open)).begun()
    }

    fn unopened(open: Open) -> Self {
        Self {
            open,
            actor: None,
            held: None,
            lasts: true,
            repeats: false,
            keeps_removed: true,
            has_flags: true,
            narrow: |limits| limits,
        }
    }

    /// Uses a volume that exists only in memory and is never opened again.
    pub fn in_memory(fs: Arc<dyn FileSystem>) -> Self {
        Self { lasts: false, ..Self::new(move |_| Ok(fs.clone())) }
    }

    /// Uses a volume that is never opened again and on which a case has the same effect in each run. It uses one
    /// thread, and appends are not written because of their age.
    pub fn repeating(fs: Arc<dyn FileSystem>) -> Self {
        let open: Open = Box::new(move |_| Ok(fs.clone()));
        Self { lasts: false, repeats: true, ..Self::unopened(open) }.begun()
    }

    /// Declares that a file cannot be used after its last name is removed, as with a server that forgets such a file.
    #[must_use]
    pub fn without_removed_files(self) -> Self {
        Self { keeps_removed: false, ..self }
    }

    /// Declares that files have no flags, such as append-only.
    #[must_use]
    pub fn without_flags(self) -> Self {
        Self { has_flags: false, ..self }
    }

    /// Replaces the limits of the volume, which a server does not report.
    #[must_use]
    pub fn with_limits(self, narrow: fn(Limits) -> Limits) -> Self {
        Self { narrow, ..self }
    }

    fn begun(mut self) -> Self {
        self.again(Access::ReadWrite);
        self
    }

    fn actor(&self) -> &Actor {
        self.actor.as_ref().expect("it is open")
    }

    /// Returns the directory of a path, and the last name in the path.
    fn directory_and_name<'p>(&self, path: &'p str) -> Result<(Node, &'p Name)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((self.node(dir)?, Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?))
    }

    fn node(&self, path: &str) -> Result<Node> {
        self.actor().node(path)
    }

    /// Ends the changes.
    pub fn close(&mut self) {
        self.held = None;
        if let Some(actor) =
            self.actor.take().filter(|actor| actor.vfs().flushed_file_system().writable().is_some())
        {
            actor.vfs().close().expect("the device is sound");
        }
    }
}

fn read(node: &Node, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xaa; len];
    let mut done = 0;
    while done < len {
        match node.read_at(offset + done as u64, &mut bytes[done..])? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn answer<T>(result: Result<T>) -> Answer<T> {
    result.map_err(|error| error.errno())
}

impl Host for Library {
    fn limits(&self) -> Limits {
        (self.narrow)(self.actor().vfs().limits())
    }

    fn free(&self) -> Answer<u64> {
        let stat = answer(self.actor().vfs().flushed_file_system().statfs())?;
        Ok(stat.free * u64::from(stat.block_size))
    }

    fn lasts(&self) -> bool {
        self.lasts
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn keeps_removed(&self) -> bool {
        self.keeps_removed
    }

    fn has_flags(&self) -> bool {
        self.has_flags
    }

    fn act(&mut self, number: usize, op: &Op) -> Answer<()> {
        answer(self.actor.as_mut().expect("it is open").act(number, op))
    }

    fn act_as(&mut self, id: u32, number: usize, op: &Op) -> Answer<()> {
        let caller = Caller::User { uid: id, gid: id, groups: Vec::new() };
        answer(Actor::of(caller, self.actor().vfs().clone()).act(number, op))
    }

    fn xattr(&self, path: &str, name: &str) -> Answer<Vec<u8>> {
        answer(self.node(path).and_then(|node| node.get_xattr(name.as_bytes())))
    }

    fn set_xattr_as(&mut self, id: Option<u32>, path: &str, name: &str, value: &[u8]) -> Answer<()> {
        let user = |id| Caller::User { uid: id, gid: id, groups: Vec::new() };
        let (caller, vfs) = (id.map_or(Caller::Owner, user), self.actor().vfs());
        let set = |node| vfs.set_xattr(&caller, &node, name.as_bytes(), value, XattrMode::Set);
        answer(self.node(path).and_then(set))
    }

    fn together(&mut self, lists: &[Vec<Op>]) -> Vec<Vec<Answer<()>>> {
        let vfs = self.actor().vfs();
        each_in_a_thread(lists, &|list| {
            let mut actor = Actor::new(vfs.clone());
            list.iter().enumerate().map(|(number, op)| answer(actor.act(number, op))).collect()
        })
    }

    fn open_emptied(&mut self, path: &str) -> Answer<()> {
        let flags = OpenFlags::WRITE | OpenFlags::TRUNCATE;
        let opened = self.node(path).and_then(|node| node.vfs().open(&Caller::Owner, &node, flags));
        answer(opened.map(drop))
    }

    fn make_nameless(&mut self, dir: &str) -> Answer<()> {
        let new = new_node(FileKind::Regular, 0o600, b"");
        let vfs = self.actor().vfs();
        let made =
            self.node(dir).and_then(|dir| vfs.create_nameless(&Caller::Owner, &dir, &new, Mode::new(0)));
        answer(made.map(drop))
    }

    fn has_whiteouts(&mut self) -> bool {
        self.actor().vfs().has_whiteouts()
    }

    fn rename_leaving_whiteout(&mut self, from: &str, to: &str) -> Answer<()> {
        let renamed = self.directory_and_name(from).and_then(|(from, name)| {
            let (to, new_name) = self.directory_and_name(to)?;
            let (from, to, flags) = ((&from, name), (&to, new_name), RenameFlags::empty());
            self.actor().vfs().rename_leaving_whiteout(&Caller::Owner, from, to, flags, (0, 0))
        });
        answer(renamed)
    }

    fn seen(&self, path: &str) -> Answer<FileStat> {
        let attr = answer(self.node(path).and_then(|node| node.attr()))?;
        Ok(FileStat {
            ino: attr.ino.0,
            kind: attr.kind,
            mode: attr.mode.bits(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime.secs(),
            ctime: attr.ctime.secs(),
        })
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        answer(self.node(path).and_then(|node| read(&node, offset, len)))
    }

    fn list(&self, path: &str) -> Answer<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let listed = self.node(path).and_then(|node| {
            node.read_dir(Cookie::START, &mut |entry| {
                names.push(entry.expect("the directory is not damaged").name.as_bytes().to_vec());
                ControlFlow::Continue(())
            })
        });
        answer(listed.map(|()| names))
    }

    fn list_from(&self, path: &str, from: Option<u64>, most: usize) -> Answer<Vec<(Vec<u8>, u64)>> {
        let mut names = Vec::new();
        let listed = self.node(path).and_then(|node| {
            node.read_dir(from.map_or(Cookie::START, Cookie), &mut |entry| {
                let entry = entry.expect("the directory is not damaged");
                names.push((entry.name.as_bytes().to_vec(), entry.next.0));
                if names.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        });
        answer(listed.map(|()| names))
    }

    fn read_link(&self, path: &str) -> Answer<Vec<u8>> {
        answer(self.node(path).and_then(|node| node.read_link()))
    }

    fn hold(&mut self, path: &str) -> Answer<()> {
        self.held = Some(answer(self.node(path))?);
        Ok(())
    }

    fn read_held(&self, offset: u64, len: usize) -> Answer<Vec<u8>> {
        answer(read(self.held.as_ref().expect("a file is held"), offset, len))
    }

    fn write_held(&mut self, offset: u64, bytes: &[u8]) -> Answer<()> {
        let node = self.held.as_ref().expect("a file is held");
        let mut done = 0;
        while done < bytes.len() {
            done += answer(node.write_at(offset + done as u64, &bytes[done..]))?;
        }
        Ok(())
    }

    fn sync_held(&mut self) -> Answer<()> {
        answer(self.held.as_ref().expect("a file is held").sync())
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn again(&mut self, access: Access) {
        self.close();
        let fs = (self.open)(access).expect("a sound volume opens");
        let vfs = if self.repeats {
            Vfs::with(fs, Config { gather_age: None, ..Config::default() })
        } else {
            Vfs::new(fs)
        };
        self.actor = Some(Actor::new(vfs));
    }
}
