//! `obento mount` on real mount points: what programs see, what is on disk afterwards, and how a mount ends.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// An image, and a folder to mount it at. When it goes, it is unmounted, and e2fsck has the last word.
struct Disk(TempDir);

impl Disk {
    fn new(options: &[&str]) -> Option<Self> {
        let needed = [Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Fuse];
        if !require(&needed) {
            return None;
        }
        let disk = Self(tempfile::Builder::new().prefix("obento-mount-").tempdir().unwrap());
        fs::create_dir(disk.at()).unwrap();
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(disk.image()).arg("256M"))
            .unwrap();
        Some(disk)
    }

    /// A disk that is mounted.
    fn mounted(options: &str) -> Option<Self> {
        let disk = Self::new(&[])?;
        disk.mount(options);
        Some(disk)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("disk.img")
    }

    fn at(&self) -> PathBuf {
        self.0.path().join("mnt")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.at().join(path)
    }

    fn obento(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn quietly(&self, args: &[&str]) {
        let output = self.obento(args);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args:?}");
    }

    #[track_caller]
    fn mount(&self, options: &str) {
        self.quietly(&["mount", "-o", options, "disk.img", "mnt"]);
    }

    #[track_caller]
    fn umount(&self) {
        self.quietly(&["umount", "mnt"]);
    }

    #[track_caller]
    fn fsck(&self) {
        let checked = run(program("e2fsck").args(["-f", "-n"]).arg(self.image()));
        assert!(checked.is_ok(), "{checked:?}");
    }

    fn is_mounted(&self) -> bool {
        let at = self.at().canonicalize().unwrap_or(self.at());
        obento_fuse::find_mount(&at).is_some()
    }

    /// The process that serves it.
    fn server(&self) -> rustix::process::Pid {
        let image = fs::metadata(self.image()).unwrap().ino();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let found =
            processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
                let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                open.filter(|fd| {
                    fs::read_link(fd.path()).is_ok_and(|to| to == self.image().canonicalize().unwrap())
                })
                .any(|fd| fs::metadata(fd.path()).is_ok_and(|file| file.ino() == image))
            });
        rustix::process::Pid::from_raw(found.expect("a process has the image open")).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = self.obento(&["umount", "--lazy", "mnt"]);
            return;
        }
        if !std::thread::panicking() {
            self.fsck();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `is_so`, for a minute at most: what is waited for has no event of its own.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60, "{what} did not come");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_written_is_there_after_it_was_mounted_again() {
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
    // e2fsck would name an inode that nobody freed.
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
fn what_was_just_written_is_never_taken_for_a_hole() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let file = File::create(disk.path("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[7; 4096], 512 << 10).unwrap();
    use rustix::fs::{SeekFrom, seek};
    let data = seek(&file, SeekFrom::Data(0)).unwrap();
    let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
    assert!(data <= 512 << 10 && hole >= (512 << 10) + 4096, "data {data}, hole {hole}");
    drop(file);
    disk.umount();
}

#[test]
fn a_mount_that_is_in_use_stays_and_the_message_says_what_to_do() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let open = File::create(disk.path("f")).unwrap();
    let output = disk.obento(&["umount", "mnt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("somebody uses it"), "{}", text(&output.stderr));
    drop(open);
    disk.umount();
}

#[test]
fn a_wrong_option_and_a_wrong_image_are_named_and_nothing_is_mounted() {
    let Some(disk) = Disk::new(&[]) else { return };
    let said = |args: &[&str]| {
        let output = disk.obento(args);
        assert_ne!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    assert_eq!(
        said(&["mount", "-o", "noatme", "disk.img", "mnt"]),
        "obento: cannot mount 'disk.img': there is no mount option `noatme`; did you mean `noatime`?\n"
    );
    assert!(said(&["mount", "none.img", "mnt"]).contains("none.img"));
    assert!(said(&["mount", "disk.img", "nowhere"]).contains("nowhere"));
    assert!(said(&["umount", "mnt"]).contains("nothing is mounted there"));
    assert!(!disk.is_mounted());
}

#[test]
fn while_it_is_mounted_nobody_else_changes_the_image() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let output = disk.obento(&["mkdir", "disk.img:/d"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(obento mount)"), "{}", text(&output.stderr));
    disk.umount();
    disk.quietly(&["mkdir", "disk.img:/d"]);
}

#[test]
fn a_signal_unmounts_and_leaves_the_volume_clean() {
    let Some(disk) = Disk::mounted("rw") else { return };
    fs::write(disk.path("f"), "written").unwrap();
    rustix::process::kill_process(disk.server(), rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || !disk.is_mounted());
    // The next who opens it waits for the server.
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("written", ""));
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_was_synced() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let mut file = File::create(disk.path("f")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    rustix::process::kill_process(disk.server(), rustix::process::Signal::KILL).unwrap();
    wait_until("the end of the server", || fs::metadata(disk.path("f")).is_err());
    drop(file);
    let output = disk.obento(&["umount", "mnt"]);
    assert!(!disk.is_mounted(), "{}", text(&output.stderr));
    let output = disk.obento(&["mount", "disk.img", "mnt"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut found = String::new();
    File::open(disk.path("f")).unwrap().read_to_string(&mut found).unwrap();
    assert_eq!(found, "synced");
    disk.umount();
}

#[test]
fn a_mapping_that_is_written_to_is_there_afterwards() {
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
