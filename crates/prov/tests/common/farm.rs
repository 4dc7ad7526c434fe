//! A long log in the shape of a compile farm: compilers read the same headers, create temporary files and objects, and a
//! linker combines the objects.
#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use obento_base::{FileKind, Ino, Mode, Name, Timestamp};
use obento_driver::{FileSystem, NewNode, WritableFileSystem as _};
use obento_env::Clock;
use obento_prov::{Actor, LogOptions, OpenMode, OpenRecorder as _, Recorded, Who, WriteSource};

const HEADERS: u32 = 200;
const READ_HEADERS: u32 = 20;
const SOURCES: u32 = 2000;
const OBJECTS: u32 = 200;
const READS: OpenMode = OpenMode { read: true, write: false };
const WRITES: OpenMode = OpenMode { read: false, write: true };

/// A clock that advances with each use.
struct Steps(AtomicI64);

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        let micros = self.0.fetch_add(100, Ordering::Relaxed);
        Timestamp::new(1_700_000_000 + micros / 1_000_000, u32::try_from(micros % 1_000_000).unwrap() * 1000)
    }
}

/// The process whose turn it is.
#[derive(Default)]
struct Turn(Mutex<Actor>);

impl Who for Turn {
    fn now(&self) -> Option<Actor> {
        Some(*self.0.lock().unwrap())
    }
}

/// A volume with the directories of the farm.
pub struct Farm {
    fs: Arc<Recorded>,
    turn: Arc<Turn>,
    pid: u32,
    include: Ino,
    tmp: Ino,
    bin: Ino,
    sources: Ino,
    objects: Ino,
}

impl Farm {
    /// Creates the directories and the sources.
    pub fn new(inner: Arc<dyn FileSystem>, options: LogOptions) -> Self {
        let (turn, clock) = (Arc::new(Turn::default()), Arc::new(Steps(AtomicI64::new(0))));
        let options = LogOptions { writes: WriteSource::Host, ..options };
        let fs = Recorded::open(inner, turn.clone(), clock, options).unwrap();
        let (root, none) = (fs.root(), Ino(0));
        let mut farm =
            Self { fs, turn, pid: 100, include: none, tmp: none, bin: none, sources: none, objects: none };
        farm.process("tar");
        farm.include = farm.make(root, "include", FileKind::Directory);
        farm.tmp = farm.make(root, "tmp", FileKind::Directory);
        farm.bin = farm.make(root, "bin", FileKind::Directory);
        farm.sources = farm.make(root, "src", FileKind::Directory);
        farm.objects = farm.make(root, "obj", FileKind::Directory);
        for number in 0..HEADERS {
            farm.write(farm.include, &format!("header{number}.h"));
        }
        for number in 0..SOURCES {
            farm.write(farm.sources, &format!("source{number}.c"));
        }
        farm
    }

    fn process(&mut self, program: &str) {
        self.pid += 1;
        let actor =
            Actor { pid: self.pid, start: u64::from(self.pid) * 3, uid: 1000, gid: 1000, comm: [0; 16] };
        *self.turn.0.lock().unwrap() = actor.with_comm(program.as_bytes());
    }

    fn actor(&self) -> Actor {
        *self.turn.0.lock().unwrap()
    }

    fn make(&self, dir: Ino, name: &str, kind: FileKind) -> Ino {
        let mode = Mode::new(0o755);
        let node =
            NewNode { kind, mode, uid: 0, gid: 0, rdev: obento_base::DeviceNumber::default(), target: b"" };
        self.fs.create(dir, Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino
    }

    fn find(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.fs.lookup(dir, Name::new(name.as_bytes()).unwrap()).ok()
    }

    fn reads(&self, ino: Ino) {
        self.fs.opened(self.actor(), ino, READS);
        self.fs.was_read(self.actor(), ino, &(0..5000));
        self.fs.closed(self.actor(), ino);
    }

    /// Creates a file, and writes to it.
    fn write(&self, dir: Ino, name: &str) -> Ino {
        let ino = self.make(dir, name, FileKind::Regular);
        self.fs.opened(self.actor(), ino, WRITES);
        self.fs.wrote(Some(self.actor()), ino, &(0..5000));
        self.fs.closed(self.actor(), ino);
        ino
    }

    fn remove(&self, dir: Ino, name: &str) {
        if let Some(ino) = self.find(dir, name) {
            self.fs.unlink(dir, Name::new(name.as_bytes()).unwrap()).unwrap();
            self.fs.forget(ino);
        }
    }

    /// Compiles source `number`, modulo the number of sources.
    fn compile(&mut self, number: u32) {
        let source = number % SOURCES;
        self.process("cc1");
        self.reads(self.find(self.sources, &format!("source{source}.c")).unwrap());
        for header in 0..READ_HEADERS {
            let header = (source + header * 7) % HEADERS;
            self.reads(self.find(self.include, &format!("header{header}.h")).unwrap());
        }
        let (assembly, object) = (format!("cc{number:06}.s"), format!("source{source}.o"));
        let written = self.write(self.tmp, &assembly);
        self.process("as");
        self.reads(written);
        self.remove(self.objects, &object);
        self.write(self.objects, &object);
        self.remove(self.tmp, &assembly);
    }

    fn link(&mut self, number: u32) {
        self.process("ld");
        let first = number % (SOURCES / OBJECTS) * OBJECTS;
        for source in first..first + OBJECTS {
            if let Some(object) = self.find(self.objects, &format!("source{source}.o")) {
                self.reads(object);
            }
        }
        let app = format!("app{}", number % (SOURCES / OBJECTS));
        self.remove(self.bin, &app);
        self.write(self.bin, &app);
    }

    /// Works until the log has this number of records, and closes the volume.
    pub fn work(mut self, records: u64) {
        let mut done = 0;
        while self.fs.status().unwrap().next < records {
            self.compile(done);
            done += 1;
            if done % OBJECTS == 0 {
                self.link(done / OBJECTS - 1);
            }
        }
        self.fs.close().unwrap();
    }
}
