//! What a mounted file system does, call by call. Each check is a sentence; all that fail are reported together.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::mount::MountFlags;

use crate::machine::{Machine, drop_caches, umount};

type Check = (&'static str, fn() -> Result<()>);

const CHECKS: &[Check] = &[
    ("statx reports the birth time", birth_time),
    ("extended attributes are stored by name space", xattrs),
    ("access control lists grant, and are inherited", acls),
    ("fallocate allocates, punches, zeroes, collapses and inserts", space),
    ("lseek finds data and holes, also of pages in memory", holes),
    ("a file without a name gets one", nameless),
    ("rename refuses, exchanges and replaces", renames),
    ("a file handle outlives the caches", handles),
    ("direct I/O and the page cache see the same data", direct),
    ("file flags and project IDs are stored", flags),
    ("a growing file reads as zeros", growth),
    ("special files keep their numbers", special),
    ("a listing continues at its position", listing),
    ("data moves by splice", splice),
    ("a label is reported", label),
    ("fiemap reports extents", fiemap),
    ("a write beyond the limit fails", limits),
];

/// Runs all checks on a volume that has every feature of ext4.
pub fn all(machine: &Machine) -> Result<()> {
    let mut failed = Vec::new();
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    for (name, check) in CHECKS {
        let outcome = check();
        println!("{}: {name}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if let Err(error) = outcome {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    for (name, outcome) in [
        ("a remount read-only refuses changes, and a remount writable permits them", remount()),
        ("a frozen volume can be thawed", freeze()),
    ] {
        println!("{}: {name}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if let Err(error) = outcome {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    umount("/m")?;
    let unknown = machine.mount(0, "/m", MountFlags::empty(), "nonsense");
    if unknown.is_ok() {
        failed.push("an unknown mount option was accepted".into());
        umount("/m")?;
    }
    machine.mount(0, "/m", MountFlags::empty(), "commit=7,errors=remount-ro,barrier=0")?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    if !mounts.contains("commit=7") || !mounts.contains("errors=remount-ro") {
        failed.push(format!("options are not shown: {mounts}"));
    }
    umount("/m")?;
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn birth_time() -> Result<()> {
    fs::write("/m/born", "")?;
    let stat =
        rustix::fs::statx(CWD, "/m/born", AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    ensure!(stat.stx_mask & StatxFlags::BTIME.bits() != 0, "no birth time");
    ensure!(stat.stx_btime.tv_sec == stat.stx_mtime.tv_sec, "another birth time");
    Ok(())
}

fn xattrs() -> Result<()> {
    let path = "/m/attributes";
    fs::write(path, "")?;
    for name in ["user.note", "trusted.note", "security.note"] {
        rustix::fs::setxattr(path, name, name.as_bytes(), XattrFlags::CREATE).with_context(|| name)?;
        let again = rustix::fs::setxattr(path, name, b"x", XattrFlags::CREATE);
        ensure!(again == Err(rustix::io::Errno::EXIST), "{name}: {again:?}");
    }
    drop_caches()?;
    let mut value = [0; 64];
    let len = rustix::fs::getxattr(path, "trusted.note", &mut value)?;
    ensure!(&value[..len] == b"trusted.note", "another value");
    let mut names = [0; 256];
    let len = rustix::fs::listxattr(path, &mut names)?;
    let names = String::from_utf8_lossy(&names[..len]).into_owned();
    ensure!(names.contains("user.note\0") && names.contains("security.note\0"), "listed: {names:?}");
    rustix::fs::removexattr(path, "user.note")?;
    let gone = rustix::fs::getxattr(path, "user.note", &mut value);
    ensure!(gone == Err(rustix::io::Errno::NODATA), "{gone:?}");
    let other = rustix::fs::setxattr(path, "other.note", b"x", XattrFlags::empty());
    ensure!(other == Err(rustix::io::Errno::OPNOTSUPP), "an unknown name space: {other:?}");
    Ok(())
}

/// An access control list as bytes: tag, permissions, ID. Source: include/uapi/linux/posix_acl_xattr.h.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn acls() -> Result<()> {
    const ANY: u32 = u32::MAX;
    fs::create_dir("/m/lists")?;
    let value = list(&[(1, 7, ANY), (2, 6, 1000), (4, 5, ANY), (0x10, 6, ANY), (0x20, 0, ANY)]);
    rustix::fs::setxattr("/m/lists", "system.posix_acl_default", &value, XattrFlags::empty())?;
    fs::write("/m/lists/file", "")?;
    let mut found = [0; 256];
    let len = rustix::fs::getxattr("/m/lists/file", "system.posix_acl_access", &mut found)?;
    ensure!(len == value.len(), "the list of a new file has {len} bytes");
    let mode = fs::metadata("/m/lists/file")?.mode() & 0o777;
    ensure!(mode == 0o660, "the mode of the new file is {mode:o}");
    fs::create_dir("/m/lists/dir")?;
    drop_caches()?;
    let len = rustix::fs::getxattr("/m/lists/dir", "system.posix_acl_default", &mut found)?;
    ensure!(found[..len] == value, "a new directory has another default list");
    let minimal = list(&[(1, 6, ANY), (4, 4, ANY), (0x20, 4, ANY)]);
    rustix::fs::setxattr("/m/lists/file", "system.posix_acl_access", &minimal, XattrFlags::empty())?;
    let mode = fs::metadata("/m/lists/file")?.mode() & 0o777;
    ensure!(mode == 0o644, "after a list that equals a mode, the mode is {mode:o}");
    Ok(())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 + at % 251) as u8 | 1).collect()
}

fn space() -> Result<()> {
    let path = "/m/space";
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
    let mut model = pattern(64 << 10);
    file.write_all_at(&model, 0)?;
    let check = |what: &str, model: &[u8]| -> Result<()> {
        for round in 0..2 {
            let found = fs::read(path)?;
            ensure!(
                found.len() == model.len(),
                "{what}: the size is {}, expected {}",
                found.len(),
                model.len()
            );
            let wrong = found.iter().zip(model).position(|(a, b)| a != b);
            ensure!(wrong.is_none(), "{what}, round {round}: byte {} is wrong", wrong.unwrap_or_default());
            file.sync_all()?;
            drop_caches()?;
        }
        Ok(())
    };
    let call =
        |flags, at, len| rustix::fs::fallocate(&file, flags, at, len).with_context(|| format!("{flags:?}"));
    call(FallocateFlags::KEEP_SIZE, 60 << 10, 100 << 10)?;
    check("allocate", &model)?;
    call(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 5000, 20_000)?;
    model[5000..25_000].fill(0);
    check("punch", &model)?;
    call(FallocateFlags::ZERO_RANGE, 30_000, 10_000)?;
    model[30_000..40_000].fill(0);
    check("zero", &model)?;
    call(FallocateFlags::COLLAPSE_RANGE, 4096, 8192)?;
    model.drain(4096..4096 + 8192);
    check("collapse", &model)?;
    call(FallocateFlags::INSERT_RANGE, 8192, 4096)?;
    model.splice(8192..8192, [0; 4096]);
    check("insert", &model)?;
    call(FallocateFlags::empty(), 100_000, 50_000)?;
    model.resize(150_000, 0);
    check("allocate beyond the end", &model)?;
    file.write_all_at(b"inside", 120_001)?;
    model[120_001..120_007].copy_from_slice(b"inside");
    check("write to allocated space", &model)
}

fn holes() -> Result<()> {
    let file = File::create("/m/holes")?;
    file.write_all_at(&[1; 4096], 1 << 20)?;
    let find = |from| rustix::fs::seek(&file, from);
    for state in ["in memory", "on the volume"] {
        ensure!(find(SeekFrom::Data(0))? == 1 << 20, "data {state}");
        ensure!(find(SeekFrom::Hole(0))? == 0, "hole {state}");
        ensure!(find(SeekFrom::Hole(1 << 20))? == (1 << 20) + 4096, "end {state}");
        file.sync_all()?;
    }
    ensure!(find(SeekFrom::Data((1 << 20) + 4096)) == Err(rustix::io::Errno::NXIO), "data past the end");
    Ok(())
}

fn nameless() -> Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open("/m")?;
    (&file).write_all(b"late name")?;
    ensure!(file.metadata()?.nlink() == 0, "it has a name");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, CWD, "/m/named", AtFlags::SYMLINK_FOLLOW)?;
    ensure!(file.metadata()?.nlink() == 1, "it has no name");
    drop(file);
    drop_caches()?;
    ensure!(fs::read("/m/named")? == b"late name", "other data");
    Ok(())
}

fn renames() -> Result<()> {
    fs::write("/m/one", "1")?;
    fs::write("/m/two", "2")?;
    let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, from, CWD, to, flags);
    let refused = rename("/m/one", "/m/two", RenameFlags::NOREPLACE);
    ensure!(refused == Err(rustix::io::Errno::EXIST), "{refused:?}");
    rename("/m/one", "/m/two", RenameFlags::EXCHANGE)?;
    ensure!(fs::read("/m/one")? == b"2" && fs::read("/m/two")? == b"1", "they were not exchanged");
    fs::rename("/m/one", "/m/two")?;
    drop_caches()?;
    ensure!(fs::read("/m/two")? == b"2" && !Path::new("/m/one").exists(), "it was not replaced");
    fs::create_dir_all("/m/a/b")?;
    let circle = fs::rename("/m/a", "/m/a/b/c").map_err(|error| error.raw_os_error());
    ensure!(circle == Err(Some(libc::EINVAL)), "a directory became its own descendant: {circle:?}");
    Ok(())
}

fn handles() -> Result<()> {
    #[repr(C)]
    struct Handle {
        len: u32,
        kind: i32,
        bytes: [u8; 128],
    }
    fs::write("/m/handle", "by handle")?;
    let mut handle = Handle { len: 128, kind: 0, bytes: [0; 128] };
    let mut mount = 0;
    let root = File::open("/m")?;
    // SAFETY: the structure is the one of name_to_handle_at(2), and has room for 128 bytes.
    let got = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            c"/m/handle".as_ptr(),
            (&raw mut handle).cast(),
            &mut mount,
            0,
        )
    };
    ensure!(got == 0, "name_to_handle_at: {}", std::io::Error::last_os_error());
    drop_caches()?;
    // SAFETY: the kernel has filled the structure.
    let fd = unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), libc::O_RDONLY) };
    ensure!(fd >= 0, "open_by_handle_at: {}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor that nothing else owns.
    let file: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
    let mut bytes = [0; 9];
    file.read_exact_at(&mut bytes, 0)?;
    ensure!(&bytes == b"by handle", "another file");
    drop(file);
    fs::remove_file("/m/handle")?;
    drop_caches()?;
    // SAFETY: as before.
    let stale =
        unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), libc::O_RDONLY) };
    ensure!(stale < 0, "the handle of a removed file opens another file");
    Ok(())
}

/// A buffer that is aligned for direct I/O.
#[repr(align(4096))]
struct Aligned([u8; 16384]);

fn direct() -> Result<()> {
    let path = "/m/direct";
    fs::write(path, vec![9; 20_000])?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut buf = Box::new(Aligned([0; 16384]));
    file.read_exact_at(&mut buf.0, 0)?;
    ensure!(buf.0.iter().all(|&byte| byte == 9), "a direct read misses data of the page cache");
    buf.0.fill(5);
    file.write_all_at(&buf.0, 4096)?;
    file.write_all_at(&buf.0, 65536)?;
    let found = fs::read(path)?;
    ensure!(found.len() == 65536 + 16384, "the size is {}", found.len());
    ensure!(
        found[..4096].iter().all(|&byte| byte == 9) && found[4096..20480].iter().all(|&byte| byte == 5),
        "a wrong byte"
    );
    ensure!(found[20480..65536].iter().all(|&byte| byte == 0), "the gap is not zeros");
    drop_caches()?;
    ensure!(fs::read(path)? == found, "the volume has other data than the page cache");
    Ok(())
}

fn flags() -> Result<()> {
    let file = File::create("/m/flags")?;
    let old = rustix::fs::ioctl_getflags(&file)?;
    rustix::fs::ioctl_setflags(&file, old | rustix::fs::IFlags::NODUMP | rustix::fs::IFlags::APPEND)?;
    drop_caches()?;
    ensure!(rustix::fs::ioctl_getflags(&file)?.contains(rustix::fs::IFlags::NODUMP), "the flag is lost");
    let stat = rustix::fs::statx(CWD, "/m/flags", AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    ensure!(stat.stx_attributes.bits() & libc::STATX_ATTR_APPEND as u64 != 0, "statx does not report it");
    let refused = OpenOptions::new().write(true).open("/m/flags").map_err(|error| error.raw_os_error());
    ensure!(refused.is_err(), "an append-only file was opened for writing");
    rustix::fs::ioctl_setflags(&file, old)?;
    Ok(())
}

fn growth() -> Result<()> {
    let path = "/m/growth";
    fs::write(path, vec![1; 10_000])?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.set_len(5000)?;
    file.set_len(20_000)?;
    file.write_all_at(b"end", 30_000)?;
    for _ in 0..2 {
        let found = fs::read(path)?;
        ensure!(found.len() == 30_003, "the size is {}", found.len());
        ensure!(found[..5000].iter().all(|&byte| byte == 1), "old data is lost");
        ensure!(found[5000..30_000].iter().all(|&byte| byte == 0), "old data is back");
        file.sync_all()?;
        drop_caches()?;
    }
    Ok(())
}

fn special() -> Result<()> {
    use rustix::fs::{FileType, Mode, makedev, mknodat};
    mknodat(CWD, "/m/null", FileType::CharacterDevice, Mode::RUSR, makedev(1, 3))?;
    mknodat(CWD, "/m/fifo", FileType::Fifo, Mode::RUSR, 0)?;
    drop_caches()?;
    ensure!(fs::metadata("/m/null")?.rdev() == makedev(1, 3), "another device");
    ensure!(fs::read("/m/null")?.is_empty(), "the device does not work");
    let long = "t".repeat(200);
    std::os::unix::fs::symlink(&long, "/m/symlink")?;
    drop_caches()?;
    ensure!(fs::read_link("/m/symlink")?.as_os_str() == long.as_str(), "another target");
    let name = "n".repeat(256);
    let error = File::create(format!("/m/{name}")).map_err(|error| error.raw_os_error());
    ensure!(matches!(error, Err(Some(libc::ENAMETOOLONG))), "a name of 256 bytes");
    Ok(())
}

fn listing() -> Result<()> {
    fs::create_dir("/m/many")?;
    for number in 0..700 {
        fs::write(format!("/m/many/file-{number:04}"), "")?;
    }
    let dir = File::open("/m/many")?;
    let mut seen = std::collections::BTreeSet::new();
    let mut room = [std::mem::MaybeUninit::uninit(); 600];
    let mut entries = rustix::fs::RawDir::new(dir.as_fd(), &mut room);
    let mut removed = 0;
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(seen.insert(name.clone()), "{name} is listed twice");
        // What was listed may go; the others must still come.
        if name.ends_with('7') {
            fs::remove_file(format!("/m/many/{name}"))?;
            removed += 1;
        }
    }
    ensure!(seen.len() == 702, "{} entries are listed", seen.len());
    ensure!(fs::read_dir("/m/many")?.count() == 700 - removed, "the rest is wrong");
    Ok(())
}

fn splice() -> Result<()> {
    let data = pattern(200_000);
    fs::write("/m/source", &data)?;
    // `io::copy` uses copy_file_range, sendfile or splice.
    fs::copy("/m/source", "/m/copy")?;
    ensure!(fs::read("/m/copy")? == data, "a copy differs");
    let (from, to) = (File::open("/m/source")?, File::create("/m/copy2")?);
    while rustix::fs::sendfile(&to, &from, None, 1 << 16)? > 0 {}
    ensure!(fs::read("/m/copy2")? == data, "a file sent by sendfile differs");
    Ok(())
}

fn label() -> Result<()> {
    let root = File::open("/m")?;
    let mut label = [0_u8; 256];
    // SAFETY: FS_IOC_GETFSLABEL writes at most 256 bytes.
    let got = unsafe { libc::ioctl(root.as_raw_fd(), 0x8100_9431, label.as_mut_ptr()) };
    ensure!(got == 0, "FS_IOC_GETFSLABEL: {}", std::io::Error::last_os_error());
    ensure!(label.starts_with(b"testing\0"), "the label is {:?}", &label[..16]);
    Ok(())
}

fn fiemap() -> Result<()> {
    let file = File::create("/m/extents")?;
    file.write_all_at(&[1; 8192], 0)?;
    file.write_all_at(&[1; 8192], 65536)?;
    // struct fiemap with room for 8 extents of 56 bytes: start, length, flags (sync), mapped, room.
    let mut request = [0_u64; 4 + 8 * 7];
    request[1] = u64::MAX;
    request[2] = 1;
    request[3] = 8;
    // SAFETY: FS_IOC_FIEMAP writes at most as many extents as the request has room for.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), 0xc020_660b, request.as_mut_ptr()) };
    ensure!(got == 0, "FS_IOC_FIEMAP: {}", std::io::Error::last_os_error());
    ensure!(request[2] >> 32 == 2, "{} extents", request[2] >> 32);
    ensure!(
        request[4] == 0 && request[6] == 8192 && request[4 + 7] == 65536,
        "other extents: {:?}",
        &request[..18]
    );
    Ok(())
}

fn limits() -> Result<()> {
    let file = File::create("/m/limits")?;
    let error = file.write_all_at(b"x", i64::MAX as u64 - 10).map_err(|error| error.raw_os_error());
    ensure!(matches!(error, Err(Some(libc::EFBIG | libc::EINVAL))), "{error:?}");
    Ok(())
}

fn remount() -> Result<()> {
    use rustix::mount::mount_remount;
    mount_remount("/m", MountFlags::RDONLY, "")?;
    let refused = fs::write("/m/refused", "").map_err(|error| error.raw_os_error());
    ensure!(refused == Err(Some(libc::EROFS)), "{refused:?}");
    mount_remount("/m", MountFlags::empty(), "")?;
    fs::write("/m/accepted", "again")?;
    drop_caches()?;
    ensure!(fs::read("/m/accepted")? == b"again", "other data");
    Ok(())
}

fn freeze() -> Result<()> {
    let root = File::open("/m")?;
    // SAFETY: FIFREEZE and FITHAW have no argument.
    let (frozen, thawed) = unsafe {
        (libc::ioctl(root.as_raw_fd(), 0xc004_5877, 0), libc::ioctl(root.as_raw_fd(), 0xc004_5878, 0))
    };
    ensure!(frozen == 0 && thawed == 0, "freeze {frozen}, thaw {thawed}");
    fs::write("/m/thawed", "")?;
    Ok(())
}
