//! What programs see on a mount.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::Disk;

#[test]
fn written_files_exist_after_another_mount() {
    let Some(disk) = Disk::mounted("rw") else { return };
    fs::create_dir(disk.path("d")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(disk.path("d/f"), &bytes).unwrap();
    symlink("f", disk.path("d/l")).unwrap();
    fs::hard_link(disk.path("d/f"), disk.path("d/g")).unwrap();
    assert_eq!(fs::metadata(disk.path("d/f")).unwrap().nlink(), 2);
    disk.umount();
    disk.fsck();
    disk.mount("ro");
    assert!(fs::read(disk.path("d/l")).unwrap() == bytes);
    assert_eq!(fs::read_link(disk.path("d/l")).unwrap(), Path::new("f"));
    assert_eq!(fs::write(disk.path("d/f"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    disk.umount();
}

#[test]
fn a_tree_goes_in_and_comes_out_as_tar_has_it() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let tar = |from: &Path, to: &Path| {
        let mut pack = program("tar")
            .arg("-C")
            .arg(from)
            .args(["-cf", "-", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let unpack =
            program("tar").arg("-C").arg(to).args(["-xf", "-"]).stdin(pack.stdout.take().unwrap()).status();
        assert!(unpack.unwrap().success() && pack.wait().unwrap().success());
    };
    tar(&source, &disk.at());
    let out = tempfile::tempdir().unwrap();
    tar(&disk.at(), out.path());
    run(program("diff").arg("-r").arg(&source).arg(disk.at()).args(["-x", "lost+found"])).unwrap();
    run(program("diff").arg("-r").arg(&source).arg(out.path()).args(["-x", "lost+found"])).unwrap();
    disk.umount();
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(disk.path("f")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    fs::remove_file(disk.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"behind", 6).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"beforebehind");
    drop(file);
    disk.umount();
    // e2fsck would report an inode that was not freed.
    disk.fsck();
}

#[test]
fn names_move_as_renameat2_says() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let (a, b) = (disk.path("a"), disk.path("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let cwd = rustix::fs::CWD;
    use rustix::fs::RenameFlags;
    let renamed = rustix::fs::renameat_with(cwd, &a, cwd, &b, RenameFlags::NOREPLACE);
    assert_eq!(renamed, Err(rustix::io::Errno::EXIST));
    rustix::fs::renameat_with(cwd, &a, cwd, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    assert_eq!(fs::metadata(&a).unwrap_err().kind(), ErrorKind::NotFound);
    disk.umount();
}

#[test]
fn a_name_of_256_bytes_is_too_long_in_every_call() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let long = disk.path(&"n".repeat(256));
    let kinds = [
        fs::metadata(&long).map(drop),
        fs::write(&long, ""),
        fs::create_dir(&long),
        fs::remove_file(&long),
        symlink("x", &long),
        fs::rename(disk.path("lost+found"), &long),
    ]
    .map(|result| result.unwrap_err().raw_os_error());
    assert_eq!(kinds, [Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()); 6]);
    fs::write(disk.path(&"n".repeat(255)), "fits").unwrap();
    disk.umount();
}

#[test]
fn attributes_lists_and_flags_are_kept() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = disk.path("f");
    fs::write(&file, "x").unwrap();
    rustix::fs::setxattr(&file, "user.note", b"value", rustix::fs::XattrFlags::CREATE).unwrap();
    let again = rustix::fs::setxattr(&file, "user.note", b"value", rustix::fs::XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    fs::set_permissions(&file, PermissionsExt::from_mode(0o4755)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    disk.umount();
    disk.mount("ro");
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(&file, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"value");
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.mode(), metadata.modified().unwrap()), (0o104_755, time));
    disk.umount();
}

#[test]
fn space_is_taken_and_given_back() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = File::create(disk.path("f")).unwrap();
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (1 << 20, 2048));
    file.write_all_at(&[7; 8192], 0).unwrap();
    file.sync_all().unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    let mut bytes = [1; 8192];
    File::open(disk.path("f")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096].iter().all(|&byte| byte == 0) && bytes[4096..].iter().all(|&byte| byte == 7));
    drop(file);
    disk.umount();
}

#[test]
fn sparse_files_show_their_holes_on_a_mount_for_reading() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = File::create(disk.path("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[7; 4096], 512 << 10).unwrap();
    drop(file);
    disk.umount();
    disk.mount("ro");
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(disk.path("f")).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 512 << 10);
    assert_eq!(seek(&file, SeekFrom::Hole(512 << 10)).unwrap(), (512 << 10) + 4096);
    drop(file);
    disk.umount();
}

#[test]
fn recently_written_ranges_are_data_and_the_rest_holes() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = File::create(disk.path("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    use rustix::fs::{SeekFrom, seek};
    for place in (0..16).map(|number| (number * 7 % 16) << 16) {
        file.write_all_at(&[7; 4096], place).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(place)).unwrap(), place);
        assert_eq!(seek(&file, SeekFrom::Hole(place)).unwrap(), place + 4096);
    }
    drop(file);
    disk.umount();
}

#[test]
fn no_process_finds_a_hole_where_another_one_just_wrote() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = File::create(disk.path("f")).unwrap();
    file.set_len(64 << 20).unwrap();
    use rustix::fs::{SeekFrom, seek};
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (disk, file) = (&disk, &file);
            scope.spawn(move || {
                let own = File::options().write(true).open(disk.path("f")).unwrap();
                for place in (0..64).map(|step| (step * 4 + thread) << 13) {
                    file.write_all_at(&[1; 100], place).unwrap();
                    assert_eq!(seek(&own, SeekFrom::Data(place)).unwrap(), place);
                }
            });
        }
    });
    drop(file);
    disk.umount();
}

#[test]
fn bytes_written_through_a_mapping_are_present_afterwards() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let script = "import mmap,os,sys\n\
        f=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT); os.ftruncate(f,65536)\n\
        m=mmap.mmap(f,65536); m[5000:5005]=b'hello'; m.flush(); assert os.pread(f,5,5000)==b'hello'\n";
    if !require(&[Oracle::Program("python3")]) {
        disk.umount();
        return;
    }
    run(program("python3").args(["-c", script]).arg(disk.path("f"))).unwrap();
    disk.umount();
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!(&output.stdout[5000..5005], b"hello");
}

#[test]
fn threads_that_make_and_remove_files_leave_an_empty_directory() {
    let Some(disk) = Disk::mounted("rw") else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..100 {
                    let path = disk.path(&format!("{thread}-{round}"));
                    fs::write(&path, [thread; 5000]).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), [thread; 5000]);
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
    let left: Vec<_> = fs::read_dir(disk.at()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lost+found"]);
    disk.umount();
}

#[test]
fn the_space_of_a_file_that_is_being_written_to_is_seen_by_others() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let path = disk.path("log");
    fs::write(&path, "x").unwrap();
    disk.umount();
    disk.mount("rw");
    // The kernel caches the attributes for a day now.
    assert!(fs::metadata(&path).unwrap().blocks() <= 8);
    let mut log = File::options().append(true).open(&path).unwrap();
    log.write_all(&vec![b'y'; 1 << 20]).unwrap();
    log.sync_all().unwrap();
    let begin = Instant::now();
    while fs::metadata(&path).unwrap().blocks() < 2048 {
        assert!(begin.elapsed() < Duration::from_secs(10), "its space is never seen");
        std::thread::yield_now();
    }
    drop(log);
    disk.umount();
}
