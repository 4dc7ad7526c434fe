//! A driver that records the calls that it receives, so that a test states which calls an operation makes.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use obento_base::{Attr, Ino, Name, Result, Timestamp};
use obento_block::{BlockDevice, CacheUse};
use obento_driver::{
    AskUsage, Cookie, EntrySink, ExclusiveLayout, Extent, FileSystem, Layout, Limits, NewNode, RemovalKind,
    RenameFlags, SetAttr, Size, StatFs, TimeChange, VolumeInfo, WritableFileSystem, WriteTicket, Xattrs,
};

/// A driver with another driver below it. Calls that return a part of the driver, such as its device, are not recorded.
pub struct Counting {
    inner: Arc<dyn FileSystem>,
    root: Ino,
    calls: Mutex<Vec<&'static str>>,
}

impl Counting {
    /// Returns a driver that passes its calls to `inner`.
    pub fn new(inner: Arc<dyn FileSystem>) -> Arc<Self> {
        let root = inner.root();
        Self::with_root(inner, root)
    }

    /// Returns a driver whose root is the inode `root` of `inner`, which on a damaged volume may be any file.
    pub fn with_root(inner: Arc<dyn FileSystem>, root: Ino) -> Arc<Self> {
        Arc::new(Self { inner, root, calls: Mutex::default() })
    }

    /// Returns the names of the calls since the last one of this method.
    pub fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn read_with(&self, call: &'static str) -> &dyn FileSystem {
        self.calls.lock().unwrap().push(call);
        &*self.inner
    }

    fn change_with(&self, call: &'static str) -> &dyn WritableFileSystem {
        self.read_with(call).writable().expect("the caller has asked whether the volume can be changed")
    }
}

impl FileSystem for Counting {
    fn root(&self) -> Ino {
        self.root
    }

    obento_base::forward! { self.inner;
        fn limits(&self) -> Limits;
        fn device(&self) -> Option<&Arc<dyn BlockDevice>>;
        fn xattrs(&self) -> Option<&dyn Xattrs>;
        fn cache_use(&self) -> Option<CacheUse>;
    }

    fn info(&self) -> VolumeInfo {
        self.read_with("info").info()
    }

    fn statfs(&self) -> Result<StatFs> {
        self.read_with("statfs").statfs()
    }

    fn statfs_at(&self, ino: Ino) -> Result<StatFs> {
        self.read_with("statfs_at").statfs_at(ino)
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.read_with("lookup").lookup(dir, name)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.read_with("parent").parent(dir)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.read_with("getattr").getattr(ino)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.read_with("read_dir").read_dir(dir, from, sink)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read_with("read_link").read_link(ino)
    }

    fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.read_with("map").map(layout, ino, range)
    }

    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_with("read").read(layout, ino, offset, buf)
    }

    fn acquire(&self, ino: Ino) -> bool {
        self.inner.acquire(ino)
    }

    fn forget(&self, ino: Ino) {
        self.read_with("forget").forget(ino);
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.inner.writable().is_some().then_some(self)
    }
}

impl WritableFileSystem for Counting {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.change_with("create").create(dir, name, node)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.change_with("link").link(ino, dir, name)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.change_with("remove").remove(dir, name, victim, ask)
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.change_with("rename").rename(from, name, to, new_name, flags)
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.change_with("set_attr").set_attr(ino, change)
    }

    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.change_with("truncate").truncate(layout, ino, size)
    }

    fn begin_write<'a>(
        &'a self,
        layout: &'a Layout<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<WriteTicket<'a>> {
        self.change_with("begin_write").begin_write(layout, ino, range)
    }

    fn resume_write<'a>(&'a self, layout: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        self.change_with("resume_write").resume_write(layout, ino, range)
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        self.change_with("end_write").end_write(ticket, when)
    }

    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.change_with("write").write(layout, ino, offset, bytes)
    }

    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_with("punch").punch(layout, ino, range)
    }

    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.change_with("allocate").allocate(layout, ino, range, size)
    }

    fn zero_range(
        &self,
        layout: &ExclusiveLayout<'_>,
        ino: Ino,
        range: Range<u64>,
        size: Size,
    ) -> Result<()> {
        self.change_with("zero_range").zero_range(layout, ino, range, size)
    }

    fn collapse(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_with("collapse").collapse(layout, ino, range)
    }

    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_with("insert").insert(layout, ino, range)
    }

    fn now(&self) -> Timestamp {
        self.change_with("now").now()
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.change_with("sync_file").sync_file(ino)
    }

    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        self.change_with("sync_files").sync_files(inos)
    }

    fn sync(&self) -> Result<()> {
        self.change_with("sync").sync()
    }

    fn close(&self) -> Result<()> {
        self.change_with("close").close()
    }
}
