//! Fragments, links, streams, owners: the files that only some volumes have.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::victim::{Victim, check};
use common::{Mount, compare, host_tree, open_image, shape_of, tree_of};
use obento_base::{Error, Feature, FileKind, Mode};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Driver as _, LayoutLock, Notice, OpenOptions, Span, VolumeOptions};
use obento_env::NO_CLOCK;
use obento_ntfs::NtfsDriver;
use obento_testkit::changes::resolve;
use obento_testkit::oracle::{call, program, run};
use obento_testkit::{Oracle, require};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn set(path: &Path, name: &str, value: &[u8]) {
    let value = format!("0x{}", hex(value));
    call("setfattr", ["-h", "-n", name, "-v", &value, path.to_str().unwrap()]).unwrap();
}

/// A reparse point with this tag.
fn point(tag: u32, data: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], data].concat()
}

/// The names of a junction, or of a link with `flags`.
fn names(path: &str, flags: &[u8]) -> Vec<u8> {
    let units: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let len = (units.len() as u16).to_le_bytes();
    let after = (units.len() as u16 + 2).to_le_bytes();
    [&[0, 0][..], &len, &after, &[0, 0], flags, &units, &[0, 0, 0, 0]].concat()
}

/// A device that counts its reads.
struct CountedReads(MemDevice, AtomicUsize);

impl BlockDevice for CountedReads {
    obento_base::forward! { self.0;
        fn len(&self) -> u64;
        fn is_read_only(&self) -> bool;
        fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()>;
        fn flush(&self) -> obento_base::Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }
}

#[test]
fn reading_all_streams_of_a_file_reads_its_records_once() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "");
    let file = mount.0.join("file");
    fs::write(&file, "").unwrap();
    (0..300).for_each(|number| set(&file, &format!("user.{number}"), &[number as u8; 700]));
    drop(mount);
    let device = Arc::new(CountedReads(MemDevice::read_only(fs::read(&image).unwrap()), AtomicUsize::new(0)));
    // Too little memory for the records of the file.
    let options = OpenOptions { cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let volume = NtfsDriver::default().open(device.clone(), &options).unwrap();
    let (ino, xattrs) = (resolve(&*volume, "/file").unwrap(), volume.xattrs().unwrap());
    let (before, mut names) = (device.1.load(Ordering::Relaxed), Vec::new());
    xattrs.list_xattrs(ino, &mut |name| names.push(String::from_utf8(name.to_vec()).unwrap())).unwrap();
    assert_eq!(names.len(), 300);
    for name in names {
        let number: usize = name.strip_prefix("user.").unwrap().parse().unwrap();
        assert_eq!(xattrs.get_xattr(ino, name.as_bytes()), Ok(vec![number as u8; 700]));
    }
    let reads = device.1.load(Ordering::Relaxed) - before;
    assert!(reads <= 600, "{reads} reads");
}

#[test]
fn a_file_in_thousands_of_fragments_has_an_attribute_list_and_reads_whole() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("512").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "");
    // The volume is filled with small files, and every other one leaves a hole.
    let mut count = 0;
    while fs::write(mount.0.join(format!("{count}")), [count as u8; 900]).is_ok() {
        count += 1;
    }
    (0..count).step_by(2).for_each(|n| fs::remove_file(mount.0.join(format!("{n}"))).unwrap());
    let mut large = fs::File::create(mount.0.join("large")).unwrap();
    let bytes = common::pattern(2_000_000);
    let written = bytes.chunks(512).take_while(|chunk| large.write_all(chunk).is_ok()).count();
    assert!(written > 2000, "{written}");
    drop((large, mount));
    let volume = open_image(&image);
    let ino = resolve(&*volume, "/large").unwrap();
    let mut records = 0;
    let mut count = |record: obento_base::Result<obento_driver::Record>| {
        records += usize::from(record.unwrap().kind == "file record");
    };
    volume.inspect().unwrap().inspect(obento_driver::Target::Inode(ino), &mut count).unwrap();
    assert!(records > 2, "{records}");
    let mount = Mount::new(&image, folder.path(), "ro,");
    let expected = host_tree(&mount.0);
    drop(mount);
    compare(&tree_of(&*volume), &expected);
}

#[test]
fn compressed_files_are_stored_compressed() {
    let Some(volume) = common::FORMAT.to_read("4k") else { return };
    let ino = resolve(&*volume, "/packed/300000 of one kind").unwrap();
    let lock = LayoutLock::new();
    let extent = volume.map(&lock.shared(), ino, 0..300_000).unwrap();
    assert_eq!(extent.span, Span::Driver);
    let attr = volume.getattr(ino).unwrap();
    assert!(attr.blocks * 512 < 100_000, "{}", attr.blocks);
    let holes = resolve(&*volume, "/packed/holes").unwrap();
    let hole = volume.map(&lock.shared(), holes, 131_072..400_000).unwrap();
    assert_eq!(hole.span, Span::Hole);
}

#[test]
fn links_of_windows_stay_on_the_volume_and_files_of_wsl_have_their_kinds() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "");
    let at = |name: &str| mount.0.join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    for (name, path) in [("a/b/junction", r"\??\C:\a\target"), ("other", r"\??\Volume{01234567-89ab}\")] {
        fs::create_dir(at(name)).unwrap();
        set(&at(name), "system.ntfs_reparse_data", &point(0xa000_0003, &names(path, &[])));
    }
    for (name, path, flags) in [("a/relative", r"b\junction", 1_u32), ("a/absolute", r"\??\D:\a", 0)] {
        fs::write(at(name), "").unwrap();
        set(&at(name), "system.ntfs_reparse_data", &point(0xa000_000c, &names(path, &flags.to_le_bytes())));
    }
    fs::write(at("lx"), "").unwrap();
    set(&at("lx"), "system.ntfs_reparse_data", &point(0xa000_001d, b"\x02\0\0\0/etc/passwd"));
    // FULL_EA_INFORMATION: distance of the next, flags, lengths, name, value.
    let attribute = |name: &str, value: &[u8]| {
        let len = (8 + name.len() + 1 + value.len()).next_multiple_of(4);
        let head =
            [&(len as u32).to_le_bytes()[..], &[0, name.len() as u8], &(value.len() as u16).to_le_bytes()]
                .concat();
        let mut bytes = [&head[..], name.as_bytes(), &[0], value].concat();
        bytes.resize(len, 0);
        bytes
    };
    let wsl = [
        attribute("$LXUID", &1000_u32.to_le_bytes()),
        attribute("$LXGID", &100_u32.to_le_bytes()),
        attribute("$LXMOD", &0o100_640_u32.to_le_bytes()),
        attribute("$LXDEV", &[4, 0, 0, 0, 64, 0, 0, 0]),
    ];
    fs::write(at("owned"), "").unwrap();
    set(&at("owned"), "system.ntfs_ea", &wsl.concat());
    drop(mount);
    let mount = Mount::new(&image, folder.path(), "special_files=wsl,");
    let line = "mkfifo wsl-fifo && mknod wsl-tty c 4 64 && mknod wsl-sda b 8 1 && ln -s ../a/b wsl-link";
    run(program("sh").args(["-c", line]).current_dir(&mount.0)).unwrap();
    let expected = host_tree(&mount.0);
    drop(mount);
    let volume = open_image(&image);
    let target = |path: &str| {
        let ino = resolve(&*volume, path).unwrap();
        String::from_utf8(volume.read_link(ino).unwrap()).unwrap()
    };
    assert_eq!(target("/a/b/junction"), "../../a/target");
    assert_eq!(target("/other"), "/??/Volume{01234567-89ab}/");
    assert_eq!(target("/a/relative"), "b/junction");
    assert_eq!(target("/a/absolute"), "../a");
    assert_eq!(target("/lx"), "/etc/passwd");
    let attr = volume.getattr(resolve(&*volume, "/owned").unwrap()).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid), (FileKind::Regular, Mode::new(0o640), 1000, 100));
    let found = tree_of(&*volume);
    for (name, kind) in [
        ("wsl-fifo", FileKind::Fifo),
        ("wsl-tty", FileKind::CharDevice),
        ("wsl-sda", FileKind::BlockDevice),
        ("wsl-link", FileKind::Symlink),
    ] {
        let (ours, theirs) = (&found[name.as_bytes()], &expected[name.as_bytes()]);
        assert_eq!((ours.kind, ours.rdev, &ours.target), (kind, theirs.rdev, &theirs.target), "{name}");
    }
}
#[test]
fn owners_and_permissions_follow_the_map_of_users() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let map = "1000:1000:S-1-5-21-1-2-3-1000\n1001:1001:S-1-5-21-1-2-3-1001\n::S-1-5-21-3141592653-589793238-462643383-10000\n";
    let mount = Mount::new(&image, folder.path(), "");
    fs::create_dir(mount.0.join(".NTFS-3G")).unwrap();
    fs::write(mount.0.join(".NTFS-3G/UserMapping"), map).unwrap();
    drop(mount);
    let mount = Mount::new(&image, folder.path(), "permissions,");
    let line = "for m in 000 400 640 644 755 777 700 444 022; do echo x > f$m; chown 1000:1001 f$m; chmod $m f$m; mkdir d$m; chown 1001:1000 d$m; chmod $m d$m; done";
    run(program("sh").args(["-c", line]).current_dir(&mount.0)).unwrap();
    drop(mount);
    let volume = open_image(&image);
    for mode in ["000", "400", "640", "644", "755", "777", "700", "444", "022"] {
        for (path, owner) in [(format!("/f{mode}"), (1000, 1001)), (format!("/d{mode}"), (1001, 1000))] {
            let attr = volume.getattr(resolve(&*volume, &path).unwrap()).unwrap();
            assert_eq!(
                (format!("{:03o}", attr.mode.bits()).as_str(), (attr.uid, attr.gid)),
                (mode, owner),
                "{path}"
            );
        }
    }
    let shown = VolumeOptions { uid: Some(7), dir_mask: Some(Mode::new(0o27)), ..VolumeOptions::default() };
    let options = OpenOptions { shown, ..OpenOptions::new(std::sync::Arc::new(NO_CLOCK)) };
    let device = std::sync::Arc::new(obento_host::FileDevice::open(&image).unwrap());
    let volume = NtfsDriver::default().open(device, &options).unwrap();
    let attr = volume.getattr(resolve(&*volume, "/d755").unwrap()).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (Mode::new(0o750), 7, 1000));
}

#[test]
fn names_are_found_in_each_case_and_short_names_are_not_listed() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "");
    fs::write(mount.0.join("A long name.html"), "x").unwrap();
    fs::write(mount.0.join("both"), "lower").unwrap();
    fs::write(mount.0.join("BOTH"), "upper").unwrap();
    set(&mount.0.join("A long name.html"), "system.ntfs_dos_name", b"ALONGN~1.HTM");
    drop(mount);
    let volume = open_image(&image);
    let find = |path: &str| resolve(&*volume, path);
    let file = find("/A long name.html").unwrap();
    assert_eq!(find("/a LONG name.HTML"), Ok(file));
    assert_eq!(find("/alongn~1.htm"), Ok(file));
    assert_eq!(volume.getattr(file).unwrap().nlink, 1);
    assert!(find("/both").unwrap() != find("/BOTH").unwrap());
    assert!(find("/Both").is_ok());
    assert_eq!(find("/$MFT"), Err(Error::NotFound));
    assert_eq!(tree_of(&*volume).len(), 3);
}

#[test]
fn writing_is_refused_by_name() {
    let Some(bytes) = common::FORMAT.filled("4k") else { return };
    let device = std::sync::Arc::new(obento_block::MemDevice::new(bytes.to_vec()));
    let error = NtfsDriver::default().open(device, &common::FORMAT.writing()).err().expect("it is read-only");
    assert_eq!(error, Error::Unsupported(Feature::Writing));
}

#[test]
fn the_identifier_of_a_volume_is_that_of_blkid() {
    if !require(&[Oracle::Program("blkid")]) {
        return;
    }
    let Some(bytes) = common::FORMAT.filled("4k") else { return };
    let image = tempfile::NamedTempFile::new().unwrap();
    fs::write(image.path(), &bytes).unwrap();
    let found = run(program("blkid").args(["-p", "-o", "value", "-s", "UUID"]).arg(image.path())).unwrap();
    let id = common::FORMAT.open_bytes(&bytes).unwrap().info().probe.text_id;
    assert_eq!(id.as_deref(), Some(String::from_utf8(found.stdout).unwrap().trim()));
}

#[test]
fn the_state_of_a_volume_is_reported() {
    let Some(bytes) = common::FORMAT.filled("4k") else { return };
    let info = common::FORMAT.open_bytes(&bytes).unwrap().info();
    assert_eq!(
        (info.state.as_str(), info.probe.label.as_slice()),
        ("clean", "Vier K \u{e4}\u{4e2d}".as_bytes())
    );
    let mut dirty = bytes.to_vec();
    // Flags of $VOLUME_INFORMATION follow its version, 3.1, in the fourth record.
    let record = 4 * 4096 + 3 * 1024;
    let at = (record..record + 1024).find(|&at| dirty[at..].starts_with(&[3, 1, 0, 0])).unwrap();
    dirty[at + 2] = 1;
    assert_eq!(common::FORMAT.open_bytes(&dirty).unwrap().info().state, "not unmounted cleanly");
}

/// Writes a restart page to the log. `area` contains the list of clients in use and the flags.
fn write_restart_page(victim: &mut Victim, area: [u8; 4]) {
    let log = victim.clusters_of(2);
    let mut page = [0; 4096];
    // Magic number, update sequence array: offset, length.
    page[..8].copy_from_slice(b"RSTR\x1e\0\x09\0");
    // Page sizes, offset of the restart area, version.
    page[16..30].copy_from_slice(&[0, 16, 0, 0, 0, 16, 0, 0, 48, 0, 1, 0, 1, 0]);
    page[60..64].copy_from_slice(&area);
    victim.0[log..log + 4096].copy_from_slice(&page);
}

#[test]
fn the_state_of_the_log_is_reported() {
    for (area, log, state) in [
        ([0xff, 0xff, 0, 0], "clean", "clean"),
        ([0, 0, 2, 0], "clean", "clean"),
        ([0, 0, 0, 0], "contains changes that only Windows applies", "needs recovery"),
    ] {
        let Some(mut victim) = Victim::new() else { return };
        write_restart_page(&mut victim, area);
        let info = common::FORMAT.open_bytes(&victim.0).unwrap().info();
        assert_eq!(info.state, state);
        assert_eq!(info.facts.iter().find(|fact| fact.name == "log file").unwrap().value, log);
        let is_pending = state != "clean";
        assert_eq!(info.notices.contains(&Notice::NotReplayed), is_pending);
        let found = check(std::sync::Arc::new(obento_block::MemDevice::read_only(victim.0)));
        let codes: Vec<_> = found.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, if is_pending { &["log-file"][..] } else { &[] });
    }
    let Some(mut victim) = Victim::new() else { return };
    let log = victim.clusters_of(2);
    victim.0[log] = 0;
    let info = common::FORMAT.open_bytes(&victim.0).unwrap().info();
    assert_eq!(info.facts.iter().find(|fact| fact.name == "log file").unwrap().value, "damaged");
}

#[test]
fn a_hibernated_windows_is_reported() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    for (contents, state, codes) in
        [(&b"hibr"[..], "Windows is hibernated", &["hibernated"][..]), (b"wake", "clean", &[])]
    {
        let mount = Mount::new(&image, folder.path(), "remove_hiberfile,");
        fs::write(mount.0.join("hiberfil.sys"), [contents, &[0; 5000]].concat()).unwrap();
        drop(mount);
        assert_eq!(open_image(&image).info().state, state);
        let found = check(std::sync::Arc::new(obento_host::FileDevice::open(&image).unwrap()));
        assert_eq!(found.iter().map(|finding| finding.code).collect::<Vec<_>>(), codes);
    }
}

#[test]
fn damage_of_the_first_structures_costs_nothing_that_has_a_copy() {
    let Some(bytes) = common::FORMAT.filled("4k") else { return };
    let sound = tree_of(&*common::FORMAT.open_bytes(&bytes).unwrap());
    for at in [0, 3, 11, 13, 48, 4 * 4096, 4 * 4096 + 510, 4 * 4096 + 3 * 1024] {
        let mut damaged = bytes.to_vec();
        damaged[at..at + 8].copy_from_slice(&[0xff; 8]);
        let volume = common::FORMAT.open_bytes(&damaged).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(tree_of(&*volume) == sound, "{at}");
        let is_boot = at < 4096 && at > 0;
        assert!(!is_boot || !volume.info().notices.is_empty(), "{at}");
    }
}

#[test]
fn a_stream_of_any_length_is_a_file_of_its_own() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "streams_interface=windows,");
    let long = common::pattern(300_000);
    fs::write(mount.0.join("file"), "data").unwrap();
    fs::write(mount.0.join("file:short"), "stream").unwrap();
    fs::write(mount.0.join("file:Long"), &long).unwrap();
    fs::create_dir(mount.0.join("dir")).unwrap();
    fs::write(mount.0.join("dir:note"), "of a directory").unwrap();
    drop(mount);
    let volume = open_image(&image);
    let read = |path: &str| {
        let ino = resolve(&*volume, path)?;
        let (lock, attr) = (LayoutLock::new(), volume.getattr(ino)?);
        assert_eq!((attr.ino, attr.kind), (ino, FileKind::Regular), "{path}");
        let (layout, mut bytes, mut at) = (lock.shared(), vec![0; attr.size as usize], 0);
        while at < attr.size {
            let extent = volume.map(&layout, ino, at..attr.size)?;
            let part = &mut bytes[at as usize..(at + extent.len) as usize];
            match extent.span {
                Span::Mapped(offset) => volume.device().unwrap().read_at(offset, part)?,
                Span::Driver => assert_eq!(volume.read(&layout, ino, at, part)?, part.len()),
                Span::Hole | Span::Unwritten => {}
            }
            at += extent.len;
        }
        Ok::<_, Error>(bytes)
    };
    assert_eq!(read("/file").unwrap(), b"data");
    assert_eq!(read("/file:short").unwrap(), b"stream");
    assert!(read("/file:Long").unwrap() == long);
    assert_eq!(read("/dir:note").unwrap(), b"of a directory");
    for path in ["/file:none", "/none:short", "/file:", "/file:short:short"] {
        assert_eq!(read(path).err(), Some(Error::NotFound), "{path}");
    }
    let (file, xattrs) = (resolve(&*volume, "/file").unwrap(), volume.xattrs().unwrap());
    assert_eq!(xattrs.get_xattr(file, b"user.short").unwrap(), b"stream");
    let refused = xattrs.get_xattr(file, b"user.Long").unwrap_err();
    assert_eq!(refused.to_string(), "a stream of more than 64 KiB as an attribute is not supported");
    let stream = resolve(&*volume, "/file:short").unwrap();
    assert_eq!(volume.read_link(stream).err(), Some(Error::Invalid));
    assert_eq!(resolve(&*volume, "/file:short/x").err(), Some(Error::NotDirectory));
    let options = OpenOptions {
        shown: VolumeOptions { hide_streams: true, ..VolumeOptions::default() },
        ..OpenOptions::new(std::sync::Arc::new(NO_CLOCK))
    };
    let device = std::sync::Arc::new(obento_host::FileDevice::open(&image).unwrap());
    let hidden = NtfsDriver::default().open(device, &options).unwrap();
    assert_eq!(resolve(&*hidden, "/file:short").err(), Some(Error::NotFound));
}
