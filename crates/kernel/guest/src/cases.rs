//! The cases that change a volume.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::FallocateFlags;
use rustix::mount::MountFlags;

use crate::machine::{Machine, check_log, disk, mount_as, power_off, umount};
use crate::mounts::set_read_only;
use crate::{model, tree};

/// Whether the format has hard and symbolic links.
pub(crate) fn has_links(machine: &Machine) -> bool {
    ["obento-ext4", "obento-xv6"].contains(&machine.kind())
}

/// The memory that processes and the page cache can use, in MiB.
fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
}

pub(crate) fn seeds(folder: &Path, ops: u64, seed: u64, links: bool) -> Result<()> {
    fs::create_dir(folder)?;
    model::data(folder, ops, seed).map(drop)?;
    model::names(folder, ops, seed, links)
}

/// Compares operations with a model, and the tree after the next mount with the one before it.
pub fn model(machine: &Machine) -> Result<()> {
    let root = Path::new("/m");
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    for seed in 1..=3 {
        seeds(&root.join(format!("s{seed}")), 400, seed, has_links(machine))?;
    }
    space(machine, root)?;
    punch_after_write_back(machine, root)?;
    appends(root)?;
    overwrites(root)?;
    let written = times(root);
    let before = tree::read(root)?;
    umount("/m")?;
    written?;
    machine.mount(0, "/m", MountFlags::RDONLY, machine.value("options"))?;
    let after = tree::read(root)?;
    umount("/m")?;
    tree::compare(&after, &before)
}

/// Fails unless the model covers every operation of fallocate(2) that the volume supports.
fn space(machine: &Machine, root: &Path) -> Result<()> {
    let done = model::data(root, 1000, 4)?;
    let expected: &[_] = match machine.kind() {
        "obento-ext4" if machine.value("options") != "data=journal" => &model::SPACE,
        "obento-fat" if rustix::fs::statfs(root)?.f_bsize <= 4096 => &model::SPACE[..1],
        _ => &[],
    };
    let missing: Vec<_> = expected.iter().filter(|flags| !done.contains(flags)).collect();
    ensure!(missing.is_empty(), "not supported: {missing:?}");
    ensure!(done.len() == expected.len(), "supported unexpectedly: {done:?}");
    Ok(())
}

/// Punches a hole after pages that take time to write. The comparison after the next mount fails if the page cache has
/// the time before this, and the volume the time afterwards.
fn punch_after_write_back(machine: &Machine, root: &Path) -> Result<()> {
    if machine.kind() != "obento-ext4" || machine.value("options") == "data=journal" {
        return Ok(());
    }
    let file = File::create(root.join("punched"))?;
    file.write_all_at(&vec![7; 8 << 20], 0)?;
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 64 << 10)?;
    Ok(())
}

/// Extends a file whose last block is on the volume already.
fn appends(root: &Path) -> Result<()> {
    let mut file = File::create(root.join("log"))?;
    for round in 1..=9 {
        file.write_all(&[round; 1500])?;
        file.sync_all()?;
    }
    let expected: Vec<u8> = (1..=9).flat_map(|round| [round; 1500]).collect();
    ensure!(fs::read(root.join("log"))? == expected, "writes one after the other left gaps");
    beyond(root)
}

/// Overwrites blocks that the volume has, after their time was set back. The next mount must find the time of the last write.
fn overwrites(root: &Path) -> Result<()> {
    let past = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::create(root.join("over"))?;
    file.write_all_at(&[1; 3 * 4096 + 100], 0)?;
    for (round, at) in [(2, 4096), (3, 3 * 4096), (4, 3 * 4096 + 200), (5, 0)] {
        file.sync_all()?;
        file.set_times(FileTimes::new().set_modified(past))?;
        file.write_all_at(&[round; 100], at)?;
        ensure!(file.metadata()?.modified()? > past, "a write at {at} left the old time");
    }
    file.sync_data()?;
    let found = fs::read(root.join("over"))?;
    let read = |at: usize| found.get(at).copied();
    let bytes = [0, 99, 100, 4096, 3 * 4096, 3 * 4096 + 150, 3 * 4096 + 299].map(read);
    ensure!(bytes == [5, 5, 1, 2, 3, 0, 4].map(Some), "overwritten bytes are {bytes:?}");
    ensure!(found.len() == 3 * 4096 + 300, "the size is {}", found.len());
    Ok(())
}

/// Writes behind the end of a file: the gap is zeros, and the times are those of the last change.
fn beyond(root: &Path) -> Result<()> {
    let file = File::create(root.join("gap"))?;
    file.write_all_at(b"start", 0)?;
    file.write_all_at(b"end", 10_000)?;
    let found = fs::read(root.join("gap"))?;
    ensure!(found.len() == 10_003 && found[5..10_000].iter().all(|&byte| byte == 0), "the gap is not zeros");
    Ok(())
}

/// Fails if a change of a file takes back the times of data that only the page cache has.
fn times(root: &Path) -> Result<()> {
    let (old, new) = (root.join("old"), root.join("new"));
    let mut file = File::create(&old)?;
    let born = file.metadata()?.modified()?;
    while file.metadata()?.modified()? == born {
        file.write_all(b"later")?;
    }
    let written = file.metadata()?;
    fs::rename(&old, &new)?;
    let renamed = file.metadata()?;
    let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
    ensure!(changed(&renamed) >= changed(&written), "a rename took the time of the last change back");
    file.set_times(FileTimes::new().set_accessed(born))?;
    ensure!(file.metadata()?.modified()? >= written.modified()?, "an access time took that of the data back");
    Ok(())
}

/// Runs several models, a tree that is copied and removed, and syncs, all at once.
pub fn parallel(machine: &Machine) -> Result<()> {
    let root = Path::new("/m");
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    let links = has_links(machine);
    thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for seed in 11..16 {
            threads.push(scope.spawn(move || seeds(&root.join(format!("s{seed}")), 200, seed, links)));
        }
        threads.push(scope.spawn(move || {
            for round in 0..6 {
                let (one, two) = (root.join("tree"), root.join(format!("moved{}", round % 2)));
                fs::create_dir(&one)?;
                for number in 0..100 {
                    fs::write(one.join(format!("file{number}")), vec![number as u8; number * 50])?;
                }
                fs::rename(&one, &two)?;
                fs::remove_dir_all(&two)?;
            }
            Ok(())
        }));
        threads.push(scope.spawn(move || {
            for _ in 0..15 {
                rustix::fs::sync();
                tree::read(root)?;
            }
            Ok(())
        }));
        for one in threads {
            one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(())
    })?;
    umount("/m")
}

/// Fills the volume: write(2) reports that no space is left, and removing the file frees all of it.
pub fn full(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    let free = || -> Result<u64> { Ok(rustix::fs::statvfs("/m")?.f_bfree) };
    fs::write("/m/first", "first")?;
    rustix::fs::sync();
    let before = free()?;
    for round in 0..2 {
        let mut file = File::create("/m/full")?;
        let error = loop {
            // A part may fit: the rest of it is refused by the next call.
            if let Err(error) = file.write_all(&[7; 1 << 16]) {
                break error;
            }
        };
        ensure!(error.raw_os_error() == Some(libc::ENOSPC), "round {round}: {error}");
        file.sync_all().with_context(|| format!("round {round}: data that was accepted"))?;
        let len = file.metadata()?.len();
        ensure!(len > 1 << 20, "only {len} bytes fit");
        let mut last = [0];
        File::open("/m/full")?.read_exact_at(&mut last, len - 1)?;
        ensure!(last == [7], "the last byte is wrong");
        let small = fs::write("/m/small", vec![1; 200_000]);
        ensure!(small.is_err(), "a volume without space accepted 200,000 bytes");
        let _ = fs::remove_file("/m/small");
        drop(file);
        fs::remove_file("/m/full")?;
        rustix::fs::sync();
    }
    let after = free()?;
    ensure!(before.abs_diff(after) <= 2, "{before} blocks were free, and {after} are");
    ensure!(fs::read("/m/first")? == b"first", "the first file changed");
    umount("/m")
}

/// Writes and reads more than the memory holds.
pub fn memory(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    let (available, data) = (available()?, 4 * 240 / 16);
    ensure!(available < data, "{available} MiB of memory are available: the case proves nothing");
    let root = Path::new("/m");
    thread::scope(|scope| -> Result<()> {
        let model = scope.spawn(move || seeds(&root.join("s1"), 300, 21, has_links(machine)));
        for number in 0..4_u8 {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .open(root.join(format!("big{number}")))?;
            for piece in 0..240_u8 {
                file.write_all(&[number ^ piece; 1 << 16])?;
            }
            file.rewind()?;
            let mut bytes = vec![0; 1 << 16];
            for piece in 0..240_u8 {
                file.read_exact(&mut bytes)?;
                ensure!(
                    bytes.iter().all(|&byte| byte == number ^ piece),
                    "piece {piece} of file {number} is wrong"
                );
            }
        }
        for number in 0..3000 {
            fs::write(root.join(format!("small{number}")), number.to_string())?;
        }
        model.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })?;
    umount("/m")
}

/// Creates files without a name, syncs, and ends without unmounting.
pub fn cut(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    fs::write("/m/one", "hello")?;
    fs::write("/m/two", vec![2; 300_000])?;
    let mut gone = File::create("/m/gone")?;
    fs::remove_file("/m/gone")?;
    gone.write_all(&[3; 500_000])?;
    let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open("/m");
    if machine.kind() == "obento-ext4" {
        nameless?.write_all(&[4; 100_000])?;
    }
    rustix::fs::sync();
    fs::create_dir("/m/late")?;
    fs::write("/m/late/file", "late")?;
    check_log()?;
    println!("obento-guest: ok");
    power_off()
}

/// Reads the volume of [`cut`] from a device that cannot be written.
pub fn replay_read_only(machine: &Machine) -> Result<()> {
    set_read_only(&File::open(disk(0))?, true)?;
    // Linux' own ext4 replays a journal on the device only, so it refuses.
    ensure!(mount_as("ext4", 0, "/n", MountFlags::RDONLY, "").is_err(), "no journal must be replayed");
    replay_with(machine, MountFlags::RDONLY)
}

/// Opens the volume of [`cut`] again.
pub fn replay(machine: &Machine) -> Result<()> {
    replay_with(machine, MountFlags::empty())
}

fn replay_with(machine: &Machine, flags: MountFlags) -> Result<()> {
    machine.mount(0, "/m", flags, machine.value("options"))?;
    ensure!(fs::read("/m/one")? == b"hello", "a synced file changed");
    ensure!(fs::read("/m/two")? == vec![2; 300_000], "a synced file changed");
    ensure!(!Path::new("/m/gone").exists(), "a removed file has its name again");
    match fs::read("/m/late/file") {
        Ok(bytes) if !bytes.is_empty() && bytes != b"late" => bail!("a file has bytes of another"),
        _ => {}
    }
    umount("/m")
}

/// Mounts two volumes at once. The module cannot be unloaded meanwhile.
pub fn volumes(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "")?;
    machine.mount(1, "/n", MountFlags::empty(), "")?;
    ensure!(crate::machine::unload().is_err(), "the module was unloaded under a mounted volume");
    thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| seeds(Path::new("/n/s"), 150, 31, has_links(machine)));
        seeds(Path::new("/m/s"), 150, 32, has_links(machine))?;
        other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })?;
    umount("/m")?;
    ensure!(Path::new("/n/s/data").exists(), "the other volume disappeared");
    umount("/n")
}

/// Mounts that end before the thread that commits has run once: a busy thread of high priority keeps it waiting.
pub fn brief(machine: &Machine) -> Result<()> {
    let ended = AtomicBool::new(false);
    rustix::process::nice(-20)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let outcome = (0..20).try_for_each(|round| {
            machine.mount(0, "/m", MountFlags::empty(), "")?;
            fs::write(format!("/m/{round}"), "")?;
            umount("/m")
        });
        ended.store(true, Ordering::Relaxed);
        outcome
    })
}
