//! Disk images that qemu-img and img2simg wrote. Each contains the bytes of the raw disk, and damage to any of them is
//! an error, never a panic.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};
use obento_host::container::{Format, detect_on, open};
use obento_host::{FileDevice, HostError};
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::vhdx::unreplayed;

const MIB: u64 = 1 << 20;
/// Not a multiple of the blocks of any format, nor of the cylinders of a VHD.
const DISK: u64 = 37 * MIB + 512 * 1023;

/// Formats and options of qemu-img.
const QEMU: [(&str, &str, Format); 9] = [
    ("vpc", "subformat=fixed,force_size=on", Format::Vhd),
    ("vpc", "subformat=dynamic,force_size=on", Format::Vhd),
    ("vhdx", "subformat=dynamic,block_size=1M", Format::Vhdx),
    ("vhdx", "subformat=fixed", Format::Vhdx),
    ("vmdk", "subformat=monolithicSparse", Format::Vmdk),
    ("vmdk", "subformat=monolithicSparse,zeroed_grain=on", Format::Vmdk),
    ("vmdk", "subformat=streamOptimized", Format::Vmdk),
    ("vdi", "static=off", Format::Vdi),
    ("vdi", "static=on", Format::Vdi),
];

/// Returns numbers that depend on `seed` only.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// Creates a disk with data that can be compressed and data that cannot, patterns, holes, and a last block that
/// the disk does not fill.
fn disk(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; size(DISK)];
    let mut random = numbers(1);
    let mut random = || random().to_le_bytes()[0];
    let mut fill = |start: u64, len: u64, byte: &mut dyn FnMut(u64) -> u8| {
        let part = &mut bytes[size(start)..size(start + len)];
        part.iter_mut().zip(0..).for_each(|(to, n)| *to = byte(n));
    };
    fill(0, 70_000, &mut |_| random());
    fill(3 * MIB - 5000, 2 * MIB, &mut |n| u8::try_from(n / 500 % 251).unwrap());
    fill(9 * MIB, MIB, &mut |n| u8::try_from(n % 4 + 1).unwrap());
    fill(20 * MIB, 4 * MIB + 123, &mut |_| random());
    fill(DISK - 3000, 3000, &mut |_| random());
    let file = File::create(path).unwrap();
    file.set_len(DISK).unwrap();
    for (start, block) in (0..).step_by(4096).zip(bytes.chunks(4096)) {
        if block.iter().any(|&byte| byte != 0) {
            file.write_all_at(block, start).unwrap();
        }
    }
    bytes
}

fn convert(folder: &Path, raw: &Path, index: usize) -> PathBuf {
    let (format, options, _) = QEMU[index];
    let target = folder.join(format!("{index}.{format}"));
    let args = ["convert", "-f", "raw", "-O", format, "-o", options].map(Path::new);
    call("qemu-img", args.into_iter().chain([raw, &*target])).unwrap();
    target
}

/// Converts the disk to all formats. Returns the files with their format.
fn all(folder: &Path, raw: &Path) -> Vec<(PathBuf, Format)> {
    let mut files: Vec<_> =
        (0..QEMU.len()).map(|index| (convert(folder, raw, index), QEMU[index].2)).collect();
    let (padded, target) = (folder.join("padded"), folder.join("android.simg"));
    fs::copy(raw, &padded).unwrap();
    let len = fs::metadata(raw).unwrap().len().next_multiple_of(4096);
    File::options().write(true).open(&padded).unwrap().set_len(len).unwrap();
    call("img2simg", [&padded, &target]).unwrap();
    files.push((target, Format::AndroidSparse));
    files
}

fn open_file(path: &Path) -> Result<(Arc<dyn BlockDevice>, Format), HostError> {
    let file = Arc::new(FileDevice::open(path)?);
    let format = detect_on(&*file).unwrap().expect("a format is recognised");
    open(format, file, path).map(|disk| (disk, format))
}

fn contents(disk: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; size(disk.len())];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

fn has_programs() -> bool {
    require(&["qemu-img", "qemu-io", "img2simg"].map(Oracle::Program))
}

#[test]
fn every_format_contains_the_bytes_of_the_raw_disk() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let mut expected = disk(&raw);
    expected.resize(size(DISK.next_multiple_of(4096)), 0);
    for (path, format) in all(folder.path(), &raw) {
        let name = path.display();
        let (disk, found) = open_file(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, format, "{name}");
        assert!((DISK..=to_len(&expected)).contains(&disk.len()), "{name} has {} bytes", disk.len());
        let expected = &expected[..size(disk.len())];
        assert!(contents(&*disk) == expected, "{name} differs");
        // Reads that begin and end anywhere, in an order that no cache expects.
        for step in 0..2000_u64 {
            let at = step * 7_919_311 % (DISK - 9000);
            let mut part = vec![0; size(step % 9000)];
            disk.read_at(at, &mut part).unwrap();
            let at = size(at);
            assert!(part == expected[at..at + part.len()], "{name} differs at {at}");
        }
        assert!(disk.read_at(disk.len() - 1, &mut [0; 2]).is_err());
    }
}

fn to_len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

#[test]
fn only_a_fixed_vhd_can_be_changed_and_keeps_its_footer() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    disk(&raw);
    for (path, _) in all(folder.path(), &raw) {
        let file = Arc::new(MemDevice::new(fs::read(&path).unwrap()));
        let format = detect_on(&*file).unwrap().unwrap();
        let disk = open(format, file.clone(), &path).unwrap();
        let is_fixed = path.ends_with("0.vpc");
        assert_eq!(disk.is_read_only(), !is_fixed, "{}", path.display());
        assert_eq!(disk.write_at(DISK - 10, &[7; 10]).is_ok(), is_fixed);
        if is_fixed {
            assert_eq!((file.len(), disk.len()), (DISK + 512, DISK));
            assert_eq!(detect_on(&*file).unwrap(), Some(Format::Vhd));
            assert!(disk.write_at(DISK, &[0]).is_err());
        }
    }
}

#[test]
fn a_vhdx_whose_log_was_not_replayed_is_read_as_after_the_replay() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    disk(&raw);
    let path = convert(folder.path(), &raw, 2);
    let before = fs::read(&path).unwrap();
    let writes = ["write -P 7 12M 3M", "write -P 9 30M 64k"];
    let args = ["-f", "vhdx"].into_iter().chain(writes.iter().flat_map(|&write| ["-c", write]));
    call("qemu-io", args.map(Path::new).chain([&*path])).unwrap();
    let dirty = unreplayed(&before, &fs::read(&path).unwrap());
    fs::write(&path, &dirty).unwrap();
    let (disk, _) = open_file(&path).unwrap();
    let read = contents(&*disk);
    assert!(fs::read(&path).unwrap() == dirty, "the file was changed");
    let clean = folder.path().join("clean.raw");
    // Exits with 0 after it replayed the log.
    call("qemu-img", ["check", "-q", "-r", "all"].map(Path::new).into_iter().chain([&*path])).unwrap();
    assert!(fs::read(&path).unwrap() != dirty, "the log was empty");
    call("qemu-img", ["convert", "-O", "raw"].map(Path::new).into_iter().chain([&*path, &*clean])).unwrap();
    assert!(read == fs::read(&clean).unwrap());
    assert_eq!((read[12 << 20], read[30 << 20]), (7, 9));
}

#[test]
fn images_that_need_other_files_are_refused_by_name() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    disk(&raw);
    let path = |name: &str| folder.path().join(name);
    let refused = |path: &Path, text: &str| {
        let error = open_file(path).err().expect("the image is refused").to_string();
        assert!(error.contains(text), "{error}");
    };
    for subformat in ["monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat"] {
        let target = path(&format!("{subformat}.vmdk"));
        let options = format!("subformat={subformat}");
        let args = ["convert", "-O", "vmdk", "-o", &options].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*raw, &*target])).unwrap();
        refused(&target, "vmdk with its data in other files is not supported");
    }
    let base = convert(folder.path(), &raw, 4);
    let over = path("over.vmdk");
    let args = ["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b"].map(Path::new);
    call("qemu-img", args.into_iter().chain([&*base, &*over])).unwrap();
    refused(&over, "a parent image");
}

/// Changes bytes of an image near its start or its end, where its metadata is, and sometimes its length.
fn damage(image: &[u8], seed: u64) -> Vec<u8> {
    let mut next = numbers(seed + 1);
    let mut random = |below: usize| usize::try_from(next()).unwrap() % below.max(1);
    let mut bytes = image.to_vec();
    if seed.is_multiple_of(16) {
        bytes.truncate(random(image.len()));
    }
    for _ in 0..=random(6) {
        let len = bytes.len();
        let window = [512, 4096, 128 << 10, 4 << 20][random(4)].min(len);
        let at = if random(3) == 0 { len - window + random(window) } else { random(window) };
        let value = [0, 1, 0x7f, 0x80, 0xff, u8::try_from(random(256)).unwrap()][random(6)];
        let run = 1 + random(8);
        bytes.iter_mut().skip(at).take(run).for_each(|byte| *byte = value);
    }
    bytes
}

#[test]
fn a_damaged_image_is_an_error_or_a_disk_and_never_a_panic() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    File::create(&raw).unwrap().set_len(6 * MIB).unwrap();
    File::options().write(true).open(&raw).unwrap().write_all_at(&[7; 100_000], MIB).unwrap();
    let (mut opened, mut refused) = (0, 0);
    for (path, format) in all(folder.path(), &raw) {
        let image = fs::read(&path).unwrap();
        for seed in 0..150 {
            let file = Arc::new(MemDevice::read_only(damage(&image, seed)));
            let Ok(disk) = open(format, file, &path) else {
                refused += 1;
                continue;
            };
            opened += 1;
            let mut buf = vec![0; 100_000];
            for place in 0..64 {
                let at = disk.len() / 64 * place;
                let len = usize::try_from(disk.len() - at).unwrap_or(usize::MAX).min(buf.len());
                let _ = disk.read_at(at, &mut buf[..len]);
                let _ = disk.backing(at..disk.len());
            }
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}
