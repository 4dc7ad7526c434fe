//! Operations on files and names, compared with a model in memory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::machine::drop_caches;

/// A small generator: the same operations in each run.
pub struct Random(pub u64);

impl Random {
    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

const SIZE_MAX: u64 = 1 << 20;

/// The operations of fallocate(2), without `KEEP_SIZE`.
pub const SPACE: [FallocateFlags; 5] = [
    FallocateFlags::empty(),
    FallocateFlags::ZERO_RANGE,
    FallocateFlags::PUNCH_HOLE,
    FallocateFlags::COLLAPSE_RANGE,
    FallocateFlags::INSERT_RANGE,
];

/// Writes, maps, truncates, reads and calls fallocate(2) on one file `ops` times, with `seed`. Returns the operations
/// of [`SPACE`] that succeeded. The other operations must not be supported, and must change nothing.
pub fn data(folder: &Path, ops: u64, seed: u64) -> Result<Vec<FallocateFlags>> {
    let path = folder.join("data");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random(seed);
    let mut done = Vec::new();
    for number in 0..ops {
        let op = random.below(15);
        let most = if random.below(4) == 0 { 65_000 } else { 5_000 };
        let (at, len) = (random.below(SIZE_MAX - 70_000), 1 + random.below(most));
        let step = || format!("seed {seed}, operation {number} of kind {op} at {at} for {len}");
        match op {
            0..4 => {
                let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                file.write_all_at(&bytes, at).with_context(step)?;
                let end = (at + len) as usize;
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&bytes);
            }
            4 => {
                file.set_len(at).with_context(step)?;
                model.resize(at as usize, 0);
            }
            5 => file.sync_all().with_context(step)?,
            6 if !model.is_empty() => {
                let at = at as usize % model.len();
                let end = model.len().min(at + len as usize);
                model[at..end].fill(number as u8);
                store(&file, model.len(), at, &model[at..end]).with_context(step)?;
            }
            7 => advise_away(&file),
            8 if number % 50 == 0 => {
                file.sync_all()?;
                drop_caches()?;
            }
            10.. => {
                let flags = SPACE[op as usize - 10];
                if space(&file, &mut model, &mut random, flags).with_context(step)? && !done.contains(&flags)
                {
                    done.push(flags);
                }
            }
            _ => compare(&file, &model).with_context(step)?,
        }
    }
    compare(&file, &model)?;
    drop(file);
    drop_caches()?;
    compare(&File::open(&path)?, &model)?;
    Ok(done)
}

/// Calls fallocate(2) on a random range, often near the end of the file. Returns whether it succeeded.
fn space(file: &File, model: &mut Vec<u8>, random: &mut Random, flags: FallocateFlags) -> Result<bool> {
    let unit = file.metadata()?.blksize();
    let size = model.len() as u64;
    let moves = flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE);
    let keeps = flags == FallocateFlags::PUNCH_HOLE || !moves && random.below(2) == 0;
    let near = size.saturating_sub(random.below(3 * unit));
    let at = if random.below(2) == 0 { near } else { random.below(size + 10_000) };
    let len = 1 + random.below(20_000);
    let (at, len) = if moves { (at / unit * unit, len.next_multiple_of(unit)) } else { (at, len) };
    let end = at + len;
    let is_outside = match flags {
        FallocateFlags::COLLAPSE_RANGE => end >= size,
        FallocateFlags::INSERT_RANGE => at >= size || size > SIZE_MAX,
        _ => false,
    };
    if is_outside {
        return Ok(false);
    }
    let kept = if keeps { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match rustix::fs::fallocate(file, flags | kept, at, len) {
        Err(Errno::OPNOTSUPP) => return Ok(false),
        result => result.with_context(|| format!("{:?} at {at} for {len}", flags | kept))?,
    }
    let (start, end) = (at as usize, end as usize);
    match flags {
        FallocateFlags::COLLAPSE_RANGE => drop(model.drain(start..end)),
        FallocateFlags::INSERT_RANGE => drop(model.splice(start..start, vec![0; end - start])),
        _ => {
            if !keeps {
                model.resize(model.len().max(end), 0);
            }
            let inside = start.min(model.len())..end.min(model.len());
            if !flags.is_empty() {
                model[inside].fill(0);
            }
        }
    }
    compare(file, model).with_context(|| format!("{:?} at {at} for {len}, size {size}", flags | kept))?;
    Ok(true)
}

fn compare(file: &File, model: &[u8]) -> Result<()> {
    let size = file.metadata()?.len();
    ensure!(size == model.len() as u64, "the size is {size}, expected {}", model.len());
    let mut bytes = vec![0xee; model.len()];
    file.read_exact_at(&mut bytes, 0)?;
    let wrong = bytes.iter().zip(model).position(|(found, expected)| found != expected);
    ensure!(wrong.is_none(), "byte {} is wrong", wrong.unwrap_or_default());
    Ok(())
}

/// A shared mapping of a file that no other process shortens.
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of the file.
    pub fn new(file: &File, len: usize) -> Result<Self> {
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Ok(Self { at: at.cast(), len })
    }

    /// Writes `bytes` at `at`.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "the range is not mapped");
        // SAFETY: the range is in the mapping, and no reference to it exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference to the mapping exists.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Writes through a shared mapping, and fills the rest of the last page, which the file must not show later.
pub fn store(file: &File, len: usize, at: usize, bytes: &[u8]) -> Result<()> {
    let end = len.next_multiple_of(4096);
    let mapping = Mapping::new(file, end)?;
    mapping.write(at, bytes);
    if at + bytes.len() == len {
        mapping.write(len, &vec![0xee; end - len]);
    }
    Ok(())
}

fn advise_away(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Creates, renames, links and removes names, with `seed`. `links` says whether the format has symbolic and hard links.
pub fn names(folder: &Path, ops: u64, seed: u64, links: bool) -> Result<()> {
    let folder = folder.join("names");
    fs::create_dir(&folder)?;
    let name_max = rustix::fs::statvfs(&folder)?.f_namemax as usize;
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    let mut random = Random(seed);
    for number in 0..ops {
        let long = (random.below(60) as usize + 4).min(name_max);
        let name = format!("{:0long$}", random.below(150));
        let path = folder.join(&name);
        let any = model.keys().nth(random.below(model.len().max(1) as u64) as usize).cloned();
        let step = || format!("seed {seed}, operation {number} on {name}");
        match (random.below(5), any) {
            (0 | 1, _) => {
                fs::write(&path, number.to_string()).with_context(step)?;
                model.insert(name, number);
            }
            (2, Some(old)) => {
                fs::remove_file(folder.join(&old)).with_context(step)?;
                model.remove(&old);
            }
            (3, Some(old)) => {
                fs::rename(folder.join(&old), &path).with_context(step)?;
                if let Some(value) = model.remove(&old) {
                    model.insert(name, value);
                }
            }
            (4, Some(old)) if links && !model.contains_key(&name) => {
                // A link, replaced by a copy: later writes to one name must not change the other.
                fs::hard_link(folder.join(&old), &path).with_context(step)?;
                ensure!(fs::metadata(&path)?.nlink() == 2, "{}: a link has two names", step());
                fs::remove_file(&path)?;
                std::os::unix::fs::symlink(&old, &path).with_context(step)?;
                ensure!(fs::read_link(&path)?.as_os_str() == old.as_str(), "{}: the target differs", step());
                fs::remove_file(&path)?;
            }
            _ => {}
        }
    }
    let listed = || -> Result<BTreeMap<String, u64>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let value = fs::read_to_string(entry.path())?.parse()?;
            let twice = found.insert(entry.file_name().to_string_lossy().into_owned(), value);
            ensure!(twice.is_none(), "{:?} is listed twice", entry.file_name());
        }
        Ok(found)
    };
    ensure!(listed()? == model, "seed {seed}: the directory differs from the model");
    drop_caches()?;
    ensure!(listed()? == model, "seed {seed}: the directory on the volume differs from the model");
    Ok(())
}
