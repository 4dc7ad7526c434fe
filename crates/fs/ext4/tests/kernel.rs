//! The kernel's mount of an image and this driver must show the same: every attribute, byte, link target, listing
//! order and count.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use obento_base::{Attr, FileKind};
use obento_driver::{Cookie, FileSystem as _, LayoutLock, Span, StatFs};
use obento_ext4::Ext4;
use obento_testkit::image::ImageSpec;
use obento_testkit::oracle::LoopMount;
use obento_testkit::tree::TreeSpec;
use obento_testkit::{Oracle, matrix, require};

fn stat_line(kind: &str, attr: &Attr) -> String {
    format!(
        "{kind} {:o} nlink {} uid {} gid {} rdev {:?} size {} blocks {} atime {:?} mtime {:?} ctime {:?}",
        attr.st_mode(),
        attr.nlink,
        attr.uid,
        attr.gid,
        (attr.rdev.major, attr.rdev.minor),
        attr.size,
        attr.blocks,
        (attr.atime.secs(), attr.atime.nanos()),
        (attr.mtime.secs(), attr.mtime.nanos()),
        (attr.ctime.secs(), attr.ctime.nanos()),
    )
}

fn kernel_line(path: &Path) -> (u64, String) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let device = kind.is_block_device() || kind.is_char_device();
    let rdev = if device { (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())) } else { (0, 0) };
    let line = format!(
        "{} {:o} nlink {} uid {} gid {} rdev {rdev:?} size {} blocks {} atime {:?} mtime {:?} ctime {:?}",
        meta.ino(),
        meta.mode(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.size(),
        meta.blocks(),
        (meta.atime(), meta.atime_nsec() as u32),
        (meta.mtime(), meta.mtime_nsec() as u32),
        (meta.ctime(), meta.ctime_nsec() as u32),
    );
    (meta.ino(), line)
}

/// Returns the data of a file as (offset, bytes) of the parts that are not holes, which the caller hashes.
fn our_data(fs: &Ext4, attr: &Attr) -> BTreeMap<u64, u64> {
    let (lock, mut sums) = (LayoutLock::new(), BTreeMap::new());
    let (layout, mut at, mut buf) = (lock.shared(), 0, vec![0; 1 << 16]);
    while at < attr.size {
        let extent = fs.map(&layout, attr.ino, at..attr.size).unwrap();
        let len = extent.len.min(1 << 16) as usize;
        match extent.span {
            Span::Hole | Span::Unwritten => {
                at += extent.len;
                continue;
            }
            Span::Mapped(offset) => fs.device().unwrap().read_at(offset, &mut buf[..len]).unwrap(),
            Span::Driver => assert_eq!(fs.read(&layout, attr.ino, at, &mut buf[..len]).unwrap(), len),
        }
        add(&mut sums, at, &buf[..len]);
        at += len as u64;
    }
    sums
}

/// Adds a checksum for each KiB that is not zero.
fn add(sums: &mut BTreeMap<u64, u64>, at: u64, bytes: &[u8]) {
    for (n, &byte) in bytes.iter().enumerate().filter(|&(_, &byte)| byte != 0) {
        let position = at + n as u64;
        let sum = sums.entry(position / 1024).or_insert(0);
        *sum = sum
            .wrapping_add((u64::from(byte) << 10).wrapping_add(position).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

fn kernel_data(path: &Path) -> BTreeMap<u64, u64> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs::File::open(path).unwrap();
    let (size, mut sums, mut at, mut buf) =
        (file.metadata().unwrap().len(), BTreeMap::new(), 0, vec![0; 1 << 16]);
    while at < size {
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data,
            Err(_) => break,
        }
        file.seek(SeekFrom::Start(at)).unwrap();
        let got = file.read(&mut buf).unwrap();
        add(&mut sums, at, &buf[..got]);
        at += got as u64;
    }
    sums
}

fn compare(image: &Path, name: &str) -> Vec<String> {
    let mut differences = Vec::new();
    let fs = common::open(image).unwrap();
    let all = common::read_everything(&fs);
    if !all.errors.is_empty() {
        differences.push(format!("{name}: errors {:?}", all.errors));
    }
    let mount = LoopMount::new(image, "ro").unwrap();
    for (path, attr) in &all.entries {
        let host = mount.path().join(OsStr::from_bytes(&path[1..]));
        let (_, line) = kernel_line(&host);
        let ours = stat_line(&attr.ino.to_string(), attr);
        if ours != line {
            differences.push(format!("{name}: {}\n  kernel {line}\n  obento {ours}", host.display()));
        }
        match attr.kind {
            FileKind::Regular if our_data(&fs, attr) != kernel_data(&host) => {
                differences.push(format!("{name}: data of {} differ", host.display()));
            }
            FileKind::Symlink => {
                let target = fs::read_link(&host).unwrap();
                if target.as_os_str().as_bytes() != fs.read_link(attr.ino).unwrap() {
                    differences.push(format!("{name}: target of {} differs", host.display()));
                }
            }
            FileKind::Directory => {
                let kernel: Vec<_> = fs::read_dir(&host)
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
                    .collect();
                let mut ours = Vec::new();
                fs.read_dir(attr.ino, Cookie::START, &mut |entry| {
                    ours.push(entry.unwrap().name.as_bytes().to_vec());
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
                if kernel != ours {
                    differences.push(format!("{name}: listing of {} differs", host.display()));
                }
            }
            _ => {}
        }
    }
    let count = walk_count(mount.path());
    if count != all.entries.len() {
        differences.push(format!("{name}: the kernel has {count} entries, obento {}", all.entries.len()));
    }
    let kernel = rustix::fs::statvfs(mount.path()).unwrap();
    let kernel = StatFs {
        block_size: kernel.f_bsize as u32,
        blocks: kernel.f_blocks,
        free: kernel.f_bfree,
        available: kernel.f_bavail,
        inodes: kernel.f_files,
        free_inodes: kernel.f_ffree,
    };
    let ours = fs.statfs().unwrap();
    if kernel != ours {
        differences.push(format!("{name}: statfs\n  kernel {kernel:?}\n  obento {ours:?}"));
    }
    differences
}

fn walk_count(root: &Path) -> usize {
    let mut stack = vec![root.to_owned()];
    let mut count = 0;
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            count += 1;
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            }
        }
    }
    count
}

/// Properties that the comparison of whole trees elsewhere does not cover: link counts, allocated space, all times,
/// the order of listings, and usage.
const SPECS: &[&str] = &[
    "ext4",
    "ext2-1k",
    "ext3-128",
    "meta-bg-1k",
    "no-flex-bg",
    "bigalloc",
    "bigalloc-1k",
    "no-extents",
    "inode-512",
    "inline-data",
    "ea-inode-inline",
    "no-dir-index",
    "casefold",
    "uninit-bg-32bit",
    "sparse-super2",
    "quota-project",
];

#[test]
fn every_attribute_byte_and_listing_is_what_the_kernel_shows() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::LoopMount]) {
        return;
    }
    let tree = TreeSpec { files: 40, wide: 900, ..TreeSpec::SMALL };
    let only = std::env::var("OBENTO_ONLY").ok();
    let wanted = |spec: &ImageSpec| match only.as_deref() {
        Some(only) => only == spec.name || only == "all",
        None => SPECS.contains(&spec.name),
    };
    let specs = matrix::ext4(tree).into_iter().filter(|spec| matrix::mounts(spec) && spec.mask.is_none());
    let mut differences = Vec::new();
    for spec in specs.filter(wanted) {
        let folder = tempfile::tempdir().unwrap();
        let image = spec.build(folder.path()).unwrap_or_else(|error| panic!("{}: {error:?}", spec.name));
        differences.extend(compare(&image, spec.name));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
