//! A model test of writes that are open at the same time: of `begin_write`, `resume_write`, `end_write` and dropped
//! tickets, in any order, with changes of the size between them.

use std::fmt::Write as _;
use std::ops::Range;

use obento_base::{Error, FileKind, Ino};
use obento_driver::{FileSystem, LayoutLock, Size, Span, TimeChange, WritableFileSystem};

use crate::changes::{create, name, read};
use crate::mutants::Random;

/// The contents of freed blocks, which no file may contain.
const STALE: u8 = 0xee;
const FILES: usize = 3;
/// Number of blocks to which a file grows.
const MOST: u64 = 40;

/// An open write of whole blocks.
struct OpenWrite {
    range: Range<u64>,
    /// The place of the data on the device.
    at: u64,
    /// The end of the part that overwrites data in its place.
    in_place: u64,
    byte: u8,
    is_written: bool,
}

struct File {
    ino: Ino,
    contents: Vec<u8>,
    open: Vec<OpenWrite>,
}

struct Trial<'a> {
    fs: &'a dyn FileSystem,
    block: u64,
    random: Random,
    files: Vec<File>,
    byte: u8,
    log: String,
}

/// Makes `steps` random changes to three files, several writes of which are open at the same time, and compares the
/// files with a model. With `is_full`, few blocks are free. The caller checks the volume afterwards.
///
/// # Panics
///
/// Panics with the seed and the changes if a file differs from the model.
pub fn writes_that_are_open_together_keep_their_blocks(
    fs: &dyn FileSystem,
    seed: u64,
    steps: usize,
    is_full: bool,
) {
    let block = u64::from(fs.statfs().expect("use").block_size);
    make_free_blocks_stale(fs);
    if is_full {
        fill(fs, block);
    }
    let files = (0..FILES).map(|n| new_file(fs, n)).collect();
    // Afterwards, the directory does not grow.
    let free = fs.statfs().expect("use").free;
    let random = Random::new(seed);
    let mut trial = Trial { fs, block, random, files, byte: 0, log: format!("seed {seed}") };
    for step in 0..steps {
        trial.step();
        if step % 5 == 0 {
            trial.compare();
        }
    }
    for n in 0..FILES {
        while !trial.files[n].open.is_empty() {
            trial.finish(n);
        }
    }
    trial.compare();
    writable(fs).sync().expect("a sound device");
    trial.compare();
    for n in 0..FILES {
        remove(fs, trial.files[n].ino, n);
    }
    writable(fs).sync().expect("a sound device");
    assert_eq!(fs.statfs().expect("use").free, free, "blocks are lost: {}", trial.log);
}

fn writable(fs: &dyn FileSystem) -> &dyn WritableFileSystem {
    fs.writable().expect("the volume is open for changes")
}

fn new_file(fs: &dyn FileSystem, n: usize) -> File {
    let ino = create(fs, fs.root(), &format!("file{n}"), FileKind::Regular).expect("a free name");
    File { ino, contents: Vec::new(), open: Vec::new() }
}

fn remove(fs: &dyn FileSystem, ino: Ino, n: usize) {
    writable(fs).unlink(fs.root(), name(&format!("file{n}"))).expect("a file");
    fs.forget(ino);
}

fn make_free_blocks_stale(fs: &dyn FileSystem) {
    let File { ino, .. } = new_file(fs, FILES);
    let lock = LayoutLock::new();
    let bytes = vec![STALE; 1 << 20];
    let mut at = 0;
    while fs.statfs().expect("use").free > 8 {
        let layout = lock.shared();
        let ticket = writable(fs).begin_write(&layout, ino, at..at + bytes.len() as u64).expect("space");
        let Span::Mapped(to) = ticket.extent().span else { panic!("{ticket:?}") };
        at = ticket.range().end;
        let len = ticket.extent().len as usize;
        fs.device()
            .expect("mapped data is on the device")
            .write_at(to, &bytes[..len])
            .expect("a sound device");
        writable(fs).end_write(ticket, TimeChange::Now).expect("reserved");
    }
    remove(fs, ino, FILES);
    writable(fs).sync().expect("a sound device");
}

/// Leaves about 40 free blocks, which are not contiguous.
fn fill(fs: &dyn FileSystem, block: u64) {
    let mut n = 0;
    let mut holes = Vec::new();
    while fs.statfs().expect("use").free > 20 {
        let ino = create(fs, fs.root(), &format!("full{n}"), FileKind::Regular).expect("a free name");
        let lock = LayoutLock::new();
        let want = if n < 20 { 1 } else { fs.statfs().expect("use").free - 20 };
        let _ = writable(fs).allocate(&lock.shared(), ino, 0..want * block, Size::Grow);
        holes.push(ino);
        n += 1;
        if n > 40 {
            break;
        }
    }
    for (n, &ino) in holes.iter().enumerate().take(20).step_by(2) {
        writable(fs).unlink(fs.root(), name(&format!("full{n}"))).expect("a file");
        fs.forget(ino);
    }
    writable(fs).sync().expect("a sound device");
}

impl Trial<'_> {
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = write!(self.log, "\n{what}");
    }

    fn step(&mut self) {
        let n = self.random.below(FILES as u64) as usize;
        match self.random.below(20) {
            0..9 => self.begin(n),
            9..11 => self.transfer(n),
            11..15 => self.finish(n),
            15 => self.truncate(n),
            16 => self.grow(n, false),
            17 => self.grow(n, true),
            18 if self.random.below(3) == 0 => self.replace(n),
            _ => {
                if self.random.below(4) == 0 {
                    writable(self.fs).sync().expect("a sound device");
                }
            }
        }
    }

    fn begin(&mut self, n: usize) {
        let size = self.files[n].contents.len() as u64;
        let reserved = self.files[n].open.iter().map(|open| open.range.end).max().unwrap_or(0).max(size);
        let start = match self.random.below(3) {
            0 => self.random.below(reserved / self.block + 3).min(MOST) * self.block,
            _ => reserved,
        };
        let range = start..start + (1 + self.random.below(4)) * self.block;
        let overlaps = |open: &OpenWrite| open.range.start < range.end && range.start < open.range.end;
        if self.files[n].open.iter().any(overlaps) {
            return;
        }
        self.byte = 1 + self.byte % 200;
        let (lock, ino, byte) = (LayoutLock::new(), self.files[n].ino, self.byte);
        let layout = lock.shared();
        let ticket = match writable(self.fs).begin_write(&layout, ino, range.clone()) {
            Ok(ticket) => ticket,
            Err(error) => {
                assert_eq!(error, Error::NoSpace, "{}", self.log);
                return;
            }
        };
        let (extent, was) = (ticket.extent(), ticket.was());
        let range = ticket.range();
        self.note(format_args!("file {n}: begin {range:?} {extent:?} {was:?} byte {byte}"));
        match extent.span {
            Span::Mapped(at) => {
                ticket.detach();
                self.check_place(at..at + extent.len);
                let in_place = if matches!(was, Span::Mapped(_)) { range.end.min(size) } else { range.start };
                self.files[n].open.push(OpenWrite { range, at, in_place, byte, is_written: false });
            }
            _ => {
                drop(ticket);
                let bytes = vec![byte; extent.len as usize];
                match writable(self.fs).write(&layout, ino, range.start, &bytes) {
                    Ok(len) => self.publish(n, range.start..range.start + len as u64, byte),
                    Err(error) => assert_eq!(error, Error::NoSpace, "{}", self.log),
                }
            }
        }
    }

    /// Checks that no other open write has the same place.
    fn check_place(&self, place: Range<u64>) {
        for open in self.files.iter().flat_map(|file| &file.open) {
            let end = open.at + (open.range.end - open.range.start);
            assert!(end <= place.start || place.end <= open.at, "a block was promised twice: {}", self.log);
        }
    }

    fn publish(&mut self, n: usize, range: Range<u64>, byte: u8) {
        let contents = &mut self.files[n].contents;
        contents.resize(contents.len().max(range.end as usize), 0);
        contents[range.start as usize..range.end as usize].fill(byte);
    }

    /// Writes the data of an open write to the device.
    fn transfer(&mut self, n: usize) {
        let count = self.files[n].open.len() as u64;
        if count > 0 {
            let which = self.random.below(count) as usize;
            self.transfer_one(n, which);
        }
    }

    fn transfer_one(&mut self, n: usize, which: usize) {
        let open = &mut self.files[n].open[which];
        open.is_written = true;
        let (range, at, byte, in_place) = (open.range.clone(), open.at, open.byte, open.in_place);
        let bytes = vec![byte; (range.end - range.start) as usize];
        self.fs.device().expect("mapped data is on the device").write_at(at, &bytes).expect("a sound device");
        self.note(format_args!("file {n}: transfer {range:?}"));
        if in_place > range.start {
            self.publish(n, range.start..in_place, byte);
        }
    }

    /// Ends or abandons an open write.
    fn finish(&mut self, n: usize) {
        let count = self.files[n].open.len() as u64;
        if count == 0 {
            return;
        }
        let which = self.random.below(count) as usize;
        let is_end = self.random.below(3) > 0;
        if is_end && !self.files[n].open[which].is_written {
            self.transfer_one(n, which);
        }
        let open = self.files[n].open.swap_remove(which);
        self.note(format_args!("file {n}: {} {:?}", if is_end { "end" } else { "abandon" }, open.range));
        let lock = LayoutLock::new();
        let layout = lock.shared();
        let ticket = writable(self.fs).resume_write(&layout, self.files[n].ino, open.range.clone());
        if !is_end {
            drop(ticket);
            return;
        }
        let ended = writable(self.fs).end_write(ticket, TimeChange::Now);
        assert_eq!(ended, Ok(()), "a reserved block is lost: {}", self.log);
        self.publish(n, open.range, open.byte);
    }

    fn truncate(&mut self, n: usize) {
        let blocks = self.files[n].contents.len() as u64 / self.block;
        let size = self.random.below(blocks + 1) * self.block;
        self.note(format_args!("file {n}: truncate {size}"));
        let ino = self.files[n].ino;
        let lock = LayoutLock::new();
        writable(self.fs).truncate(&lock.exclusive(), ino, size).expect("less");
        self.files[n].contents.truncate(size as usize);
        // No data is written to blocks that the change has freed.
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.files[n].open.drain(..).partition(|open| open.range.end <= size);
        self.files[n].open = kept;
        for open in gone {
            drop(writable(self.fs).resume_write(&lock.shared(), ino, open.range));
        }
    }

    /// Grows a file, by `allocate` if `allocates`.
    fn grow(&mut self, n: usize, allocates: bool) {
        let size =
            (self.files[n].contents.len() as u64 + self.random.below(6) * self.block).min(MOST * self.block);
        if size <= self.files[n].contents.len() as u64 {
            return;
        }
        self.note(format_args!("file {n}: grow to {size}, allocate: {allocates}"));
        let (lock, ino) = (LayoutLock::new(), self.files[n].ino);
        let start = self.files[n].contents.len() as u64;
        let grown = match allocates {
            true => writable(self.fs).allocate(&lock.shared(), ino, start..size, Size::Grow),
            false => writable(self.fs).truncate(&lock.exclusive(), ino, size),
        };
        match grown {
            Ok(()) => self.files[n].contents.resize(size as usize, 0),
            Err(error) => assert_eq!(error, Error::NoSpace, "{}", self.log),
        }
    }

    /// Removes a file with all its open writes, and creates another one.
    fn replace(&mut self, n: usize) {
        self.note(format_args!("file {n}: remove"));
        remove(self.fs, self.files[n].ino, n);
        self.files[n] = new_file(self.fs, n);
    }

    fn compare(&self) {
        for (n, file) in self.files.iter().enumerate() {
            let size = self.fs.getattr(file.ino).expect("a file").size;
            assert_eq!(size, file.contents.len() as u64, "size of file {n}: {}", self.log);
            let found = read(self.fs, file.ino, size).expect("a sound file");
            let differs = found.iter().zip(&file.contents).position(|(found, expected)| found != expected);
            assert_eq!(
                differs.map(|at| (at, found[at], file.contents[at])),
                None,
                "file {n} differs (at, found, expected): {}",
                self.log
            );
        }
    }
}
