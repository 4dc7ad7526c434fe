//! Options that change while a volume is mounted, and the users of its image.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, obento, offers_rings, text, umount};

/// The flags of the mount point, as the kernel shows them.
fn flags(disk: &Disk) -> String {
    obento_fuse::find_mount(&disk.at().canonicalize().unwrap()).unwrap().flags
}

fn has(disk: &Disk, flag: &str) -> bool {
    flags(disk).split(',').any(|found| found == flag)
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let Some(disk) = Disk::mounted("rw,nosuid,nodev") else { return };
    fs::write(disk.path("f"), "before").unwrap();
    let open = fs::File::create(disk.path("open")).unwrap();
    let refused = disk.obento(&["mount", "-o", "remount,ro", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("files are open for writing"), "{refused:?}");
    drop(open);
    disk.quietly(&["mount", "-o", "remount,ro", "disk.img", "mnt"]);
    assert_eq!(fs::write(disk.path("g"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(has(&disk, "nosuid") && has(&disk, "nodev"), "{}", flags(&disk));
    let status = text(&disk.obento(&["mount", "--status", "mnt"]).stdout);
    assert!(status.contains("disk.img, ext4, read-only\n"), "{status}");
    disk.quietly(&["mount", "-o", "remount,rw,suid", "disk.img", "mnt"]);
    fs::write(disk.path("g"), "after").unwrap();
    assert!(!has(&disk, "nosuid") && has(&disk, "nodev"), "{}", flags(&disk));
    disk.umount();
    disk.mount("ro");
    assert_eq!(
        fs::read_to_string(disk.path("f")).unwrap() + &fs::read_to_string(disk.path("g")).unwrap(),
        "beforeafter"
    );
    let refused = disk.obento(&["mount", "-o", "remount,rw", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("opened the image read-only"), "{refused:?}");
    assert_eq!(fs::write(disk.path("g"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    disk.umount();
}

#[test]
fn a_mount_stops_updating_access_times() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let Some(disk) = Disk::mounted("strictatime") else { return };
    fs::write(disk.path("f"), "x").unwrap();
    let read_after_years = || {
        run(program("touch").args(["-a", "-d", "2001-02-03"]).arg(disk.path("f"))).unwrap();
        // Reads from the cache of the kernel update nothing.
        run(program("sh").args(["-c", "sync; echo 3 > /proc/sys/vm/drop_caches"])).unwrap();
        fs::read(disk.path("f")).unwrap();
        run(program("sh").args(["-c", "echo 3 > /proc/sys/vm/drop_caches"])).unwrap();
        let shown = run(program("stat").args(["-c", "%x"]).arg(disk.path("f"))).unwrap();
        !text(&shown.stdout).starts_with("2001")
    };
    assert!(read_after_years());
    disk.quietly(&["mount", "-o", "remount,noatime", "disk.img", "mnt"]);
    assert!(!read_after_years());
    disk.quietly(&["mount", "-o", "remount,strictatime", "disk.img", "mnt"]);
    assert!(read_after_years());
    let refused = disk.obento(&["mount", "-o", "remount,relatime", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("unmount and mount again"), "{refused:?}");
    disk.umount();
}

#[test]
fn an_empty_subtype_is_refused() {
    let Some(disk) = Disk::new(&[]) else { return };
    let refused = disk.obento(&["mount", "-o", "subtype=", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("start the image as a program"), "{refused:?}");
}

#[test]
fn an_image_is_mounted_for_reading_by_several_servers() {
    let Some(disk) = Disk::mounted("rw") else { return };
    fs::write(disk.path("f"), "shared").unwrap();
    disk.umount();
    fs::create_dir(disk.folder().join("other")).unwrap();
    disk.mount("ro");
    obento(disk.folder(), &["mount", "-o", "ro", "disk.img", "other"]);
    for folder in ["mnt", "other"] {
        assert_eq!(fs::read_to_string(disk.folder().join(folder).join("f")).unwrap(), "shared");
    }
    obento(disk.folder(), &["umount", "other"]);
    disk.umount();
}

#[test]
fn a_device_that_obento_has_mounted_is_in_use_by_its_server() {
    let Some(disk) = Disk::new(&[]) else { return };
    if !require(&[Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let attached = run(program("losetup").args(["--find", "--show"]).arg(disk.image())).unwrap();
    let device = text(&attached.stdout).trim().to_owned();
    obento(disk.folder(), &["mount", &device, "mnt"]);
    let refused = disk.obento(&["touch", &format!("{device}:/f")]);
    umount(disk.folder());
    run(program("losetup").args(["--detach", &device])).unwrap();
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("(obento mount)") && !said.contains("kernel"),
        "{said}"
    );
    assert!(Path::new(&device).exists());
}

/// Formats without links and holes.
#[test]
fn fat_and_exfat_refuse_holes_links_and_sizes_as_the_kernel_does_and_store_the_nearest_time() {
    for kind in ["vfat", "exfat"] {
        if !require(&[Oracle::Fuse, Oracle::Program("python3")]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        obento(folder.path(), &["mkfs", "-t", kind, "disk.img", "64M"]);
        obento(folder.path(), &["mount", "disk.img", "mnt"]);
        let script = "import ctypes, errno, os, sys\n\
            libc = ctypes.CDLL(None, use_errno=True)\n\
            os.chdir(sys.argv[1])\n\
            def fails(number, call):\n\
            \x20   try: call()\n\
            \x20   except OSError as error: assert error.errno == number, error\n\
            \x20   else: assert False, 'no error'\n\
            def fallocate(mode, offset, length):\n\
            \x20   if libc.fallocate(f, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:\n\
            \x20       raise OSError(ctypes.get_errno(), '')\n\
            f = os.open('f', os.O_RDWR | os.O_CREAT)\n\
            for contents in [b'', b'x' * 10000]:\n\
            \x20   os.write(f, contents)\n\
            \x20   for mode in [3, 0x10, 0x11]: fails(errno.EOPNOTSUPP, lambda: fallocate(mode, 0, 4096))\n\
            fails(errno.EOPNOTSUPP, lambda: fallocate(1, 0, 200000))\n\
            fallocate(0, 0, 20000)\n\
            assert os.fstat(f).st_size == 20000\n\
            fails(errno.EPERM, lambda: os.link('f', 'g'))\n\
            fails(errno.EFBIG, lambda: os.ftruncate(f, 10**15))\n\
            os.utime('f', (7258118400, 7258118400))\n\
            assert int(os.stat('f').st_mtime) == 4354819198, 'the last time of 2107'\n";
        let ended = program("python3").args(["-c", script]).arg(folder.path().join("mnt")).output().unwrap();
        umount(folder.path());
        assert!(ended.status.success(), "{kind}: {}", text(&ended.stderr));
    }
}

#[test]
fn requests_arrive_through_rings_if_the_kernel_offers_them_and_nothing_forbids_them() {
    let Some(disk) = Disk::new(&[]) else { return };
    let is_offered = offers_rings();
    let has_rings = || {
        let threads =
            fs::read_dir(format!("/proc/{}/task", disk.server().as_raw_nonzero())).unwrap().flatten();
        let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.filter(|name| name.starts_with("fuse-ring-")).count() > 0
    };
    for (option, expected) in [("io_uring=auto", is_offered), ("io_uring=off", false)] {
        disk.mount(option);
        fs::write(disk.path("f"), option).unwrap();
        assert_eq!(has_rings(), expected, "{option}");
        assert_eq!(fs::read_to_string(disk.path("f")).unwrap(), option);
        disk.umount();
    }
    if is_offered {
        disk.mount("io_uring=on");
        fs::write(disk.path("f"), "on").unwrap();
        assert!(has_rings());
        return disk.umount();
    }
    let refused = disk.obento(&["mount", "-o", "io_uring=on", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("the kernel does not offer io_uring"), "{refused:?}");
    assert!(!disk.is_mounted());
}

/// Steps of a user without privileges, who extracts an archive of root.
const AS_ROOT: &str = "set -e
    $OBENTO mount -o fakeroot disk.img mnt
    cd mnt
    echo secret > file; mkdir dir; mkfifo pipe; ln -s file link; ln file hard
    tar -xpf ../archive.tar --same-owner
    cat old/private
    chown 1234:5678 file; chmod 6755 file; chown -h 9:10 link; chown 7:8 pipe dir; chmod 0 dir
    touch -d 2001-02-03 file; ls dir; echo more > dir/new; cat dir/new
    chown 0:0 dir; mv old moved; rm moved/private; setfattr -n user.note -v x file
    cd ..; $OBENTO mount --status mnt > status; stat -c '%u %g %a' mnt/file";

#[test]
fn a_user_sets_owners_and_modes_as_root_with_fakeroot() {
    let needed = ["tar", "setfattr"].map(Oracle::Program);
    if !require(&[Oracle::Root, Oracle::Program("fusermount3")]) || !require(&needed) {
        return;
    }
    let Some(disk) = Disk::new(&[]) else { return };
    let folder = disk.folder();
    fs::create_dir(folder.join("old")).unwrap();
    fs::write(folder.join("old/private"), "of another user\n").unwrap();
    chown(folder.join("old/private"), Some(42), Some(43)).unwrap();
    run(program("chmod").arg("600").arg(folder.join("old/private"))).unwrap();
    run(program("tar").current_dir(folder).args(["-cf", "archive.tar", "old"])).unwrap();
    for path in [folder.to_owned(), disk.image(), disk.at()] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    let user = |script: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).env("OBENTO", env!("CARGO_BIN_EXE_obento")).current_dir(folder);
        shell.uid(65534).gid(65534).output().unwrap()
    };
    let output = user(AS_ROOT);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "of another user\nmore\n1234 5678 6755\n");
    // Linux refuses these calls before the server is asked.
    for refused in ["mknod mnt/device c 1 3", "setfattr -n trusted.x -v y mnt/file"] {
        assert!(!user(refused).status.success(), "{refused}");
    }
    // Even root cannot use the mount.
    assert_eq!(fs::read(disk.path("file")).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    let output = user("$OBENTO umount mnt");
    assert!(output.status.success(), "{output:?}");
    for (path, expected) in [
        ("file", "1234 5678 6755"),
        ("link", "9 10 777"),
        ("pipe", "7 8 644"),
        ("dir", "0 0 0"),
        ("dir/new", "0 0 644"),
        ("moved", "0 0 755"),
    ] {
        let stat = disk.obento(&["stat", "-c", "%u %g %a", &format!("disk.img:/{path}")]);
        assert_eq!(text(&stat.stdout).trim(), expected, "{path}: {stat:?}");
    }
    let refused = user("$OBENTO mount -o fakeroot,allow_other disk.img mnt");
    assert!(text(&refused.stderr).contains("all users would have the rights of root"), "{refused:?}");
}
