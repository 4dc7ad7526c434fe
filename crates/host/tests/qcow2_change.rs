//! qcow2 images that are changed in place. qemu-img finds every byte and no error, and a power cut at any write loses
//! nothing that was synced.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use obento_base::{DeviceError, Error, Result};
use obento_block::{BlockDevice, check_range};
use obento_containers::qcow2::{Compression, GrowingFile, Qcow2, View};
use obento_host::FileDevice;
use obento_host::qcow2::References;
use obento_host::qcow2::change::{open_for_change, open_snapshot, snapshots};
use obento_testkit::oracle::{Oracle, call, require};

const MIB: u64 = 1 << 20;
const DISK: u64 = 3 * MIB + 512;
const SECTOR: usize = 512;

/// Returns numbers below a limit that depend on `seed` only.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below.max(1)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn qemu_img(args: &[&str], files: &[&Path]) {
    call("qemu-img", args.iter().map(Path::new).chain(files.iter().copied())).unwrap();
}

fn has_programs() -> bool {
    require(&["qemu-img", "qemu-io"].map(Oracle::Program))
}

/// A folder with a raw disk and qcow2 images of it.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let mut random = numbers(5);
        let mut bytes = vec![0; size(DISK)];
        bytes[100_000..400_000].fill_with(|| u8::try_from(random(4)).unwrap());
        bytes[size(DISK) - 700..].fill_with(|| u8::try_from(random(256)).unwrap());
        fs::write(this.path("raw"), bytes).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the images to change, with the contents of the disk.
    fn images(&self) -> Vec<PathBuf> {
        let convert = |name: &str, args: &[&str]| {
            let args = [&["convert", "-f", "raw", "-O", "qcow2"], args].concat();
            qemu_img(&args, &[&self.path("raw"), &self.path(name)]);
            self.path(name)
        };
        let mut images = vec![
            convert("plain", &[]),
            convert("small", &["-o", "cluster_size=4k"]),
            convert("old", &["-o", "compat=0.10,cluster_size=8k"]),
            convert("packed", &["-c"]),
            convert("zstd", &["-c", "-o", "compression_type=zstd,cluster_size=16k"]),
            convert("snapshot", &["-o", "cluster_size=16k"]),
        ];
        qemu_img(&["snapshot", "-c", "before"], &[&self.path("snapshot")]);
        for (name, options) in [("over", "cluster_size=16k"), ("old-over", "compat=0.10")] {
            let args = ["create", "-q", "-f", "qcow2", "-o", options, "-F", "raw", "-b"];
            qemu_img(&args, &[&self.path("raw"), &self.path(name)]);
            images.push(self.path(name));
        }
        images
    }
}

fn open(path: &Path) -> Arc<dyn BlockDevice> {
    let file: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(path).unwrap());
    open_for_change(&file, path, References::Open).unwrap().device
}

/// A change of a disk.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Punch(Range<u64>),
    Flush,
}

/// Returns changes of all sizes, with a flush now and then.
fn changes(seed: u64, count: usize, flush: u64) -> Vec<Change> {
    let mut random = numbers(seed);
    let change = |_| {
        let most = [512, 4096, 20_000, 200_000][size(random(4))];
        let at = random(DISK - 1);
        let len = 1 + random(most.min(DISK - at));
        match random(10) {
            0 => Change::Punch(at / 65_536 * 65_536..(at + 3 * len).min(DISK)),
            1 => Change::Punch(at..at + len),
            _ if random(flush) == 0 => Change::Flush,
            _ => Change::Write(at, vec![u8::try_from(1 + random(255)).unwrap(); size(len)]),
        }
    };
    (0..count).map(change).collect()
}

/// Applies `change` to the disk and to its model.
fn apply(change: &Change, disk: &dyn BlockDevice, model: &mut [u8]) -> Result<()> {
    match change {
        Change::Write(at, bytes) => {
            model[size(*at)..][..bytes.len()].copy_from_slice(bytes);
            disk.write_at(*at, bytes)
        }
        Change::Punch(range) => {
            if disk.punch(range.clone())? {
                model[size(range.start)..size(range.end)].fill(0);
            } else {
                // A cluster of a backing file cannot be hidden; others may be zeros.
                let part = &mut model[size(range.start)..size(range.end)];
                disk.read_at(range.start, part)?;
            }
            Ok(())
        }
        Change::Flush => disk.flush(),
    }
}

fn contents(disk: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; size(disk.len())];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn qemu_img_finds_every_change_and_no_error() {
    if !has_programs() {
        return;
    }
    let fixture = Fixture::new();
    let (original, model_file) = (fs::read(fixture.path("raw")).unwrap(), fixture.path("model"));
    for (path, seed) in fixture.images().into_iter().zip(1..) {
        let name = path.display();
        let mut model = original.clone();
        // Several sessions: each reads what the one before wrote.
        for session in 0..3 {
            let disk = open(&path);
            assert!(contents(&*disk) == model, "{name} differs before session {session}");
            for change in changes(seed * 10 + session, 60, 9) {
                apply(&change, &*disk, &mut model).unwrap();
            }
            assert!(contents(&*disk) == model, "{name} differs in session {session}");
            disk.flush().unwrap();
            drop(disk);
            qemu_img(&["check", "-q", "-f", "qcow2"], &[&path]);
            fs::write(&model_file, &model).unwrap();
            qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2"], &[&model_file, &path]);
        }
    }
    assert!(fs::read(fixture.path("raw")).unwrap() == original, "a backing file was changed");
    let snapshot = fixture.path("snapshot");
    let file: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&snapshot).unwrap());
    let names: Vec<_> = snapshots(&*file, &snapshot).unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["before"]);
    let before = open_snapshot(&file, &snapshot, References::Refuse, "before").unwrap().unwrap().device;
    assert!(contents(&*before) == original, "a snapshot was changed");
    assert!(open_snapshot(&file, &snapshot, References::Refuse, "after").unwrap().is_none());
    qemu_img(&["snapshot", "-a", "before"], &[&snapshot]);
    qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2"], &[&fixture.path("raw"), &snapshot]);
}

#[test]
fn discarded_clusters_are_used_again() {
    if !has_programs() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.images().remove(0);
    let disk = open(&path);
    for _ in 0..20 {
        disk.write_at(MIB, &vec![7; size(MIB)]).unwrap();
        disk.flush().unwrap();
        assert!(disk.punch(MIB..2 * MIB).unwrap());
        assert_eq!(disk.known_zeros(MIB..2 * MIB), MIB);
        disk.flush().unwrap();
    }
    drop(disk);
    assert!(fs::metadata(&path).unwrap().len() < 4 * MIB);
    qemu_img(&["check", "-q", "-f", "qcow2"], &[&path]);
}

#[test]
fn images_that_need_a_repair_are_not_changed() {
    if !has_programs() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.images().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let file: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&path).unwrap());
        let error = open_for_change(&file, &path, References::Open).err().expect("the image is refused");
        assert!(error.to_string().contains("repaired first"), "{error}");
        assert!(fs::read(&path).unwrap() == bytes);
    };
    // The dirty bit; then a cluster of the L1 table that is not counted.
    bytes[79] |= 1;
    refused(&bytes);
    bytes[79] &= !1;
    let at = |at: usize| size(u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()));
    let (l1, block) = (at(40), at(at(48)));
    bytes[block + 2 * (l1 >> 16)..][..2].fill(0);
    refused(&bytes);
}

/// A write, or a flush, of a file in memory.
#[derive(Clone, Debug)]
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// A file in memory that records all writes.
struct Recorder {
    state: Mutex<(Vec<u8>, Vec<Event>)>,
}

impl Recorder {
    fn new(bytes: Vec<u8>) -> Self {
        Self { state: Mutex::new((bytes, Vec::new())) }
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> u64 {
        u64::try_from(self.state.lock().unwrap().0.len()).unwrap()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.len(), offset, u64::try_from(buf.len()).unwrap())?;
        buf.copy_from_slice(&self.state.lock().unwrap().0[size(offset)..][..buf.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_range(self.len(), offset, u64::try_from(buf.len()).unwrap())?;
        let mut state = self.state.lock().unwrap();
        state.0[size(offset)..][..buf.len()].copy_from_slice(buf);
        // A medium writes whole sectors: what a later write leaves of a sector includes the earlier ones.
        let start = size(offset) / SECTOR * SECTOR;
        let end = (size(offset) + buf.len()).next_multiple_of(SECTOR).min(state.0.len());
        let sectors = state.0[start..end].to_vec();
        state.1.push(Event::Write(u64::try_from(start).unwrap(), sectors));
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        self.state.lock().unwrap().1.push(Event::Flush);
        Ok(())
    }
}

impl GrowingFile for Recorder {
    fn grow(&self, len: u64) -> Result<()> {
        self.state.lock().unwrap().0.resize(size(len), 0);
        Ok(())
    }
}

fn no_unpacking(_: Compression, _: &[u8], _: &mut [u8]) -> Option<()> {
    None
}

fn open_in(file: Arc<Recorder>) -> std::result::Result<Qcow2, Error> {
    Ok(Qcow2::open(file, None, &View::Active, no_unpacking).expect("the image opens"))
}

/// The states of a file that a cut between two flushes may leave. Each write since the first flush is present, absent
/// or torn at a sector.
fn states(writes: &[(u64, Vec<u8>)], seed: u64) -> Vec<Vec<(u64, Vec<u8>)>> {
    let mut random = numbers(seed);
    let mut states = vec![Vec::new(), writes.to_vec()];
    for index in 0..writes.len() {
        states.push(writes[..index].to_vec());
        // Only this one, and all but this one.
        states.push(vec![writes[index].clone()]);
        let mut others = writes.to_vec();
        others.remove(index);
        states.push(others);
    }
    for _ in 0..6 {
        let mut some = Vec::new();
        for (at, bytes) in writes {
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                if random(2) == 0 {
                    some.push((at + u64::try_from(number * SECTOR).unwrap(), sector.to_vec()));
                }
            }
        }
        states.push(some);
    }
    states
}

/// The values that each sector of the disk may have after a cut: the synced one, and all later ones.
struct Allowed {
    synced: Vec<u8>,
    later: Vec<Vec<u8>>,
}

impl Allowed {
    fn check(&self, found: &[u8]) {
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let range = number * SECTOR..number * SECTOR + sector.len();
            let is_allowed = self.synced[range.clone()] == *sector
                || self.later.iter().any(|model| model[range.clone()] == *sector);
            assert!(is_allowed, "sector {number} has bytes that were never there");
        }
    }
}

/// Changes an image, cuts the power at every write, and judges each state. Returns the number of states.
fn cut_everywhere(folder: &Path, image: &[u8], seed: u64) -> usize {
    let file = Arc::new(Recorder::new(image.to_vec()));
    let disk = open_in(file.clone()).unwrap();
    let mut model = contents(&disk);
    let mut allowed = Allowed { synced: model.clone(), later: Vec::new() };
    let (mut base, mut seen, mut judged) = (image.to_vec(), 0, 0);
    let mut plan = changes(seed, 14, 4);
    plan.push(Change::Flush);
    for change in plan {
        apply(&change, &disk, &mut model).unwrap();
        allowed.later.push(model.clone());
        let (len, events) = {
            let state = file.state.lock().unwrap();
            (state.0.len(), state.1[seen..].to_vec())
        };
        // Writes that a flush did not order stay pending for the next change.
        let Some(last) = events.iter().rposition(|event| matches!(event, Event::Flush)) else { continue };
        let mut window = Vec::new();
        for event in &events[..=last] {
            match event {
                Event::Write(at, bytes) => window.push((*at, bytes.clone())),
                Event::Flush => {
                    for (number, state) in states(&window, seed).into_iter().enumerate() {
                        let mut after = base.clone();
                        after.resize(len, 0);
                        put(&mut after, &state);
                        judge(folder, after, &allowed, number % 7 == 0);
                        judged += 1;
                    }
                    base.resize(len, 0);
                    put(&mut base, &window);
                    window.clear();
                }
            }
        }
        seen += last + 1;
        if matches!(change, Change::Flush) {
            allowed = Allowed { synced: model.clone(), later: Vec::new() };
        }
    }
    judged
}

fn put(bytes: &mut [u8], writes: &[(u64, Vec<u8>)]) {
    for (at, part) in writes {
        bytes[size(*at)..][..part.len()].copy_from_slice(part);
    }
}

/// Checks that the image after a cut has an allowed value in each sector. For a sample, also checks that qemu-img finds
/// no error except clusters that nothing refers to.
fn judge(folder: &Path, image: Vec<u8>, allowed: &Allowed, is_sample: bool) {
    let disk = open_in(Arc::new(Recorder::new(image.clone()))).unwrap();
    allowed.check(&contents(&disk));
    if is_sample {
        let path = folder.join("cut.qcow2");
        fs::write(&path, image).unwrap();
        let output = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(&path).output().unwrap();
        // 3: leaked clusters. 2: errors.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
    }
}

#[test]
fn a_cut_at_every_write_loses_nothing_that_was_synced() {
    if !has_programs() {
        return;
    }
    let fixture = Fixture::new();
    let mut judged = 0;
    for name in ["plain", "small", "snapshot"] {
        let _ = fixture.images();
        let image = fs::read(fixture.path(name)).unwrap();
        for seed in 0..4 {
            judged += cut_everywhere(fixture.0.path(), &image, 100 + seed);
        }
        for path in fixture.images() {
            fs::remove_file(path).unwrap();
        }
    }
    println!("{judged} states");
    assert!(judged > 1000);
}

/// A file whose write or growth number `fails_at` finds no space on the medium.
struct FullOnce {
    file: Recorder,
    count: AtomicU64,
    fails_at: u64,
}

impl FullOnce {
    fn step(&self, offset: u64, len: u64) -> Result<()> {
        if self.count.fetch_add(1, Ordering::Relaxed) == self.fails_at {
            return Err(DeviceError::Write { offset, len, errno: 28 }.into());
        }
        Ok(())
    }
}

impl BlockDevice for FullOnce {
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.step(offset, u64::try_from(buf.len()).unwrap())?;
        self.file.write_at(offset, buf)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

impl GrowingFile for FullOnce {
    fn grow(&self, len: u64) -> Result<()> {
        self.step(len, 0)?;
        self.file.grow(len)
    }
}

/// Applies changes to an image in a file that is full at one write. Applies the change that failed again if `retries`.
/// Returns whether the file was full, and the image.
fn changed_when_full(image: &[u8], fails_at: u64, retries: bool) -> (bool, Vec<u8>) {
    let file = FullOnce { file: Recorder::new(image.to_vec()), count: AtomicU64::new(0), fails_at };
    let file = Arc::new(file);
    let disk = Qcow2::open(file.clone(), None, &View::Active, no_unpacking).expect("the image opens");
    let mut model = contents(&disk);
    let mut plan = changes(7, 12, 3);
    plan.push(Change::Flush);
    for change in plan {
        let done = apply(&change, &disk, &mut model);
        if done.is_err() && (retries || matches!(change, Change::Flush)) {
            apply(&change, &disk, &mut model).unwrap();
        }
    }
    if retries {
        assert!(contents(&disk) == model, "full at write {fails_at}");
    }
    let was_full = file.count.load(Ordering::Relaxed) > fails_at;
    drop(disk);
    let state = file.file.state.lock().unwrap();
    (was_full, state.0.clone())
}

#[test]
fn a_full_medium_leaves_no_cluster_that_is_counted_and_not_used() {
    if !has_programs() {
        return;
    }
    let fixture = Fixture::new();
    let _ = fixture.images();
    let path = fixture.path("full.qcow2");
    // A file with clusters of 512 bytes soon needs new tables and new blocks of counts.
    let args = ["convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=512"];
    qemu_img(&args, &[&fixture.path("raw"), &fixture.path("tiny")]);
    for (name, step) in [("plain", 1), ("snapshot", 2), ("tiny", 37)] {
        let image = fs::read(fixture.path(name)).unwrap();
        let mut judged = 0;
        for fails_at in (0..).step_by(step) {
            let (was_full, after) = changed_when_full(&image, fails_at, fails_at % 2 == 0);
            if !was_full {
                break;
            }
            fs::write(&path, after).unwrap();
            let output = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{name}, full at write {fails_at}: {text}");
            judged += 1;
        }
        assert!(judged > 10, "{name}: {judged}");
    }
}
