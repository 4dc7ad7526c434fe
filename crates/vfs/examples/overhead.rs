//! Measures the time that `vfs` adds to a driver's own lookup and attributes. `ls -lR` over 100,000 files in 1,000
//! directories of a tmpfs runs once through the driver alone and once through `vfs`.
//!
//! `cargo run --release -p obento-vfs --example overhead`

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use obento_base::{DeviceNumber, FileKind, Mode, Name, NameBuf, Result};
use obento_driver::{Cookie, DirEntry, FileSystem, NewNode};
use obento_env::NO_CLOCK;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Config, Node, Symlinks, Vfs};

const DIRS: u32 = 1000;
const FILES: u32 = 100;

fn main() -> Result<()> {
    let fs: Arc<dyn FileSystem> = Arc::new(Tmpfs::new(Options::new(Arc::new(NO_CLOCK))));
    fill(&fs)?;
    let read_only: Arc<dyn FileSystem> = Arc::new(ReadOnly(Arc::clone(&fs)));
    for round in ["cold", "warm"] {
        report(&format!("driver alone, {round}"), || driver_alone(&*fs));
    }
    let big = Config { names: 256 * 1024, ..Config::default() };
    for (what, vfs) in [
        ("vfs", Vfs::new(Arc::clone(&fs))),
        ("vfs with a cache for all names", Vfs::with(Arc::clone(&fs), big)),
        ("vfs, read-only, by entries", Vfs::new(read_only)),
    ] {
        for round in ["cold", "warm"] {
            report(&format!("{what}, {round}"), || list(&vfs.root()));
        }
    }
    let vfs = Vfs::new(fs);
    report("paths of two components", || {
        let mut count = 0;
        for n in 0..DIRS * FILES {
            let path = format!("{}/{}", n % DIRS, n / DIRS);
            vfs.resolve(&vfs.root(), path.as_bytes(), Symlinks::Follow, &Caller::Owner)?;
            count += 1;
        }
        Ok(count)
    });
    Ok(())
}

fn report(what: &str, work: impl FnOnce() -> Result<u64>) {
    let start = Instant::now();
    let on_cpu = cpu_time();
    let files = work().expect("the tree was just made");
    let elapsed = match (on_cpu, cpu_time()) {
        (Some(before), Some(after)) => u128::from(after - before),
        _ => start.elapsed().as_nanos(),
    };
    let each = elapsed / u128::from(files.max(1));
    println!("{what:40} {each:6} ns a file ({files} files)");
}

/// Nanoseconds that this thread ran, so that other work of the machine does not count: Linux
/// Documentation/scheduler/sched-stats.rst.
fn cpu_time() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn fill(fs: &Arc<dyn FileSystem>) -> Result<()> {
    let writable = fs.writable().expect("tmpfs can be written");
    let mut new = NewNode {
        kind: FileKind::Directory,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: &[],
    };
    for dir in 0..DIRS {
        new.kind = FileKind::Directory;
        let dir = writable.create(fs.root(), &number(dir), &new)?.ino;
        new.kind = FileKind::Regular;
        for file in 0..FILES {
            writable.create(dir, &number(file), &new)?;
        }
    }
    Ok(())
}

fn number(n: u32) -> NameBuf {
    NameBuf::new(n.to_string().into_bytes()).expect("digits are a name")
}

fn driver_alone(fs: &dyn FileSystem) -> Result<u64> {
    let mut todo = vec![fs.root()];
    let mut count = 0;
    while let Some(dir) = todo.pop() {
        let mut sink = |entry: Result<DirEntry<'_>>| {
            let name: &Name = entry.expect("tmpfs has no damage").name;
            let ino = fs.lookup(dir, name).expect("it was just listed");
            let attr = fs.getattr(ino).expect("it was just found");
            count += 1;
            if attr.is_dir() {
                todo.push(ino);
            }
            ControlFlow::Continue(())
        };
        // The sink borrows `todo`, so what it adds is taken up by the next turn.
        fs.read_dir(dir, Cookie::START, &mut sink)?;
    }
    Ok(count)
}

fn list(root: &Node) -> Result<u64> {
    let mut todo = vec![root.clone()];
    let mut count = 0;
    while let Some(dir) = todo.pop() {
        let mut sink = |entry: Result<DirEntry<'_>>| {
            let node = dir.child(&entry.expect("tmpfs has no damage")).expect("it was just listed");
            count += 1;
            if node.attr().expect("it was just found").is_dir() {
                todo.push(node);
            }
            ControlFlow::Continue(())
        };
        dir.read_dir(Cookie::START, &mut sink)?;
    }
    Ok(count)
}

/// A volume that does not change.
struct ReadOnly(Arc<dyn FileSystem>);

impl FileSystem for ReadOnly {
    fn root(&self) -> obento_base::Ino {
        self.0.root()
    }
    fn limits(&self) -> obento_driver::Limits {
        self.0.limits()
    }
    fn info(&self) -> obento_driver::VolumeInfo {
        self.0.info()
    }
    fn statfs(&self) -> Result<obento_driver::StatFs> {
        self.0.statfs()
    }
    fn device(&self) -> Option<&Arc<dyn obento_block::BlockDevice>> {
        self.0.device()
    }
    fn lookup(&self, dir: obento_base::Ino, name: &Name) -> Result<obento_base::Ino> {
        self.0.lookup(dir, name)
    }
    fn parent(&self, dir: obento_base::Ino) -> Result<obento_base::Ino> {
        self.0.parent(dir)
    }
    fn getattr(&self, ino: obento_base::Ino) -> Result<obento_base::Attr> {
        self.0.getattr(ino)
    }
    fn read_dir(
        &self,
        dir: obento_base::Ino,
        from: Cookie,
        sink: &mut obento_driver::EntrySink<'_>,
    ) -> Result<()> {
        self.0.read_dir(dir, from, sink)
    }
    fn read_link(&self, ino: obento_base::Ino) -> Result<Vec<u8>> {
        self.0.read_link(ino)
    }
    fn map(
        &self,
        layout: &obento_driver::Layout<'_>,
        ino: obento_base::Ino,
        range: std::ops::Range<u64>,
    ) -> Result<obento_driver::Extent> {
        self.0.map(layout, ino, range)
    }
    fn read(
        &self,
        layout: &obento_driver::Layout<'_>,
        ino: obento_base::Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        self.0.read(layout, ino, offset, buf)
    }
    fn forget(&self, ino: obento_base::Ino) {
        self.0.forget(ino);
    }
}
