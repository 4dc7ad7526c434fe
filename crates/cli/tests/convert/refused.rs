//! Conversions that are refused, or that fail.

use super::*;

#[test]
fn nothing_is_left_of_a_conversion_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("disk.img")).unwrap().set_len(MIB).unwrap();
    let fails = |args: &[&str], status: i32, text: &str| {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    };
    fails(&["convert", "disk.img", "disk.what"], 2, "the extension 'what' selects no format");
    fails(&["convert", "disk.img", "disk.qcow2.gz"], 2, "a .gz file contains a raw disk, not a qcow2 image");
    fails(&["convert", "-c", "disk.img", "disk.vmdk"], 2, "--compress requires the format qcow2");
    fails(&["convert", "missing.img", "disk.vmdk"], 2, "missing.img");
    let same = "cannot write 'disk.img': the command reads this image\n  help: name another target\n";
    fails(&["convert", "-f", "disk.img", "disk.img"], 2, same);
    fails(&["convert", "disk.img", "disk.img"], 2, same);
    fails(&["convert", "-f", "--verify", "-O", "qcow2", "./disk.img", "disk.img"], 2, same);
    assert_eq!(fs::metadata(path("disk.img")).unwrap().len(), MIB);
    fs::write(path("there.qcow2"), "mine").unwrap();
    fails(&["convert", "disk.img", "there.qcow2"], 2, "file exists");
    assert_eq!(fs::read(path("there.qcow2")).unwrap(), b"mine");
    // A disk of 3 TiB is too large for a VMDK in one file.
    File::create(path("large.img")).unwrap().set_len(3 << 40).unwrap();
    fails(
        &["convert", "large.img", "large.vmdk"],
        2,
        "the disk is larger than 2199023255552 bytes, the maximum of this format",
    );
    // A stream-optimised image whose compressed data is damaged.
    succeed(folder.path(), &["convert", "-q", "disk.img", "zero.vmdk"]);
    File::options().write(true).open(path("disk.img")).unwrap().write_all_at(&[9; 100_000], 0).unwrap();
    succeed(folder.path(), &["convert", "-q", "disk.img", "bad.vmdk"]);
    File::options()
        .write(true)
        .open(path("bad.vmdk"))
        .unwrap()
        .write_all_at(&[0xff; 40], (64 << 10) + 14)
        .unwrap();
    fails(
        &["convert", "bad.vmdk", "bad.img"],
        2,
        "cannot read 'bad.vmdk': reading 65536 bytes at byte 0 failed: the data is damaged",
    );
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["bad.vmdk", "disk.img", "large.img", "there.qcow2", "zero.vmdk"]);
}

#[test]
fn bytes_that_are_not_the_whole_disk_are_not_converted() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let fails = |name: &str, text: &str| {
        let output = obento(fixture.folder(), &["convert", name, "out.img"]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {errors}");
        assert!(errors.contains(text), "{name}: {errors}");
        let mut names = fs::read_dir(fixture.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.all(|name| !name.to_string_lossy().contains("out")), "{name}");
    };
    for name in ["disk.img.gz", "disk.img.xz", "disk.img.zst"] {
        succeed(fixture.folder(), &["convert", "-q", "disk.img", name]);
        let file = File::options().write(true).open(fixture.path(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() * 2 / 3).unwrap();
        fails(name, "incomplete or damaged");
    }
    for (format, looks) in
        [("qed", "a QED disk image"), ("qcow", "a qcow disk image"), ("parallels", "a Parallels")]
    {
        let name = format!("disk.{format}");
        let args = ["create", "-q", "-f", format].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*fixture.path(&name), Path::new("64M")])).unwrap();
        fails(&name, looks);
        fails(&name, "qemu-img convert -O raw");
    }
    fs::write(fixture.path("disk.zip"), b"PK\x03\x04 and the members").unwrap();
    fails("disk.zip", "a ZIP archive");
}

#[test]
fn nothing_is_converted_while_the_environment_forbids_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    disk(&path("disk.img"));
    fs::write(path("old.img"), "old").unwrap();
    for args in [
        &["disk.img", "new.img"][..],
        &["--force", "disk.img", "old.img"],
        &["--backing", "disk.img", "x.qcow2"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(folder.path()).arg("convert").args(args).env("OBENTO_READONLY", "1");
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("OBENTO_READONLY is set"), "{args:?}: {errors}");
    }
    assert!(!path("new.img").exists() && !path("x.qcow2").exists());
    assert_eq!(fs::read(path("old.img")).unwrap(), b"old");
}

#[test]
fn no_raw_image_gets_the_extension_of_another_format() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tree")).unwrap();
    for name in ["a.vhdx", "a.QCOW", "a.img.bz2"] {
        let output = obento(folder.path(), &["build", "-q", name, "--from", "tree"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("obento does not write"), "{name}: {errors}");
        assert!(!folder.path().join(name).exists());
        let args = ["build", "-q", "--format", "raw", "--size", "16M", name, "--from", "tree"];
        succeed(folder.path(), &args);
    }
}

#[test]
fn a_disk_that_is_larger_than_its_tables_or_than_the_host_allows_is_an_error_at_once() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let create = |name: &str| call("qemu-img", ["create", "-q", "-f", "qcow2", name, "1M"].map(Path::new));
    create(path("short.qcow2").to_str().unwrap()).unwrap();
    let file = File::options().read(true).write(true).open(path("short.qcow2")).unwrap();
    let fails = |image: &str, args: &[&str], cause: &str| {
        let output = obento(folder.path(), &[&["--engine", "native", "convert", "-q"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{image}: {error}");
        assert!(error.contains(cause), "{image}: {error}");
    };
    // The size of the disk is at byte 24. The L1 table has one entry, for 512 MiB.
    for size in [(512 << 20) + 1, 1 << 46, 1 << 56, i64::MAX as u64, u64::MAX] {
        file.write_all_at(&size.to_be_bytes(), 24).unwrap();
        for to in ["new.img", "new.qcow2", "new.gz"] {
            fails(to, &["short.qcow2", to], "the L1 table is too short for the disk");
            fails(to, &["--checksum", "short.qcow2", to], "the L1 table is too short for the disk");
        }
    }
    file.write_all_at(&(512_u64 << 20).to_be_bytes(), 24).unwrap();
    succeed(folder.path(), &["convert", "-q", "short.qcow2", "whole.img"]);
    // 2^55 bytes in clusters of 2 MiB, whose L1 table has an entry for each 512 GiB.
    let l1_at = 2 << 20;
    let mut header = vec![0; l1_at as usize + (8 << 16)];
    let words: [(usize, u32); 5] = [(0, 0x5146_49fb), (4, 2), (20, 21), (24, 1 << 23), (36, 1 << 16)];
    for (at, word) in words.into_iter().chain([(44, l1_at)]) {
        header[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    fs::write(path("huge.qcow2"), header).unwrap();
    let too_large = File::create(path("probe")).unwrap().set_len(1 << 55).is_err();
    match too_large {
        true => fails("huge.qcow2", &["huge.qcow2", "new.img"], "file too large"),
        false => drop(succeed(folder.path(), &["convert", "-q", "huge.qcow2", "new.img"])),
    }
}

#[test]
fn a_small_image_that_expands_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.simg"), filled()).unwrap();
    let output = obento(folder.path(), &["convert", "--max-unpacked", "4M", "in.simg", "out.img"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("exceed the limit of 4"), "{said}");
    assert!(said.contains("--max-unpacked"), "{said}");
    assert!(!folder.path().join("out.img").exists());
    let output = obento(folder.path(), &["convert", "-q", "--max-unpacked", "8M", "in.simg", "out.img"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(folder.path().join("out.img")).unwrap().len(), 8 * MIB);
}

#[test]
fn no_image_is_written_to_standard_output_or_to_a_file_named_by_a_hyphen() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.img"), vec![1; 4096]).unwrap();
    fs::create_dir(folder.path().join("tree")).unwrap();
    for args in [
        &["convert", "-O", "raw", "disk.img", "-"][..],
        &["convert", "-f", "-O", "qcow2", "disk.img", "-"],
        &["convert", "disk.img", "-"],
        &["build", "-", "--from", "tree", "-t", "ext4"],
    ] {
        let output = obento(folder.path(), args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {said}");
        assert!(said.contains("standard output") && said.contains("'./-'"), "{said}");
        assert!(!folder.path().join("-").exists(), "{args:?}");
    }
    succeed(folder.path(), &["convert", "-q", "-O", "raw", "disk.img", "./-"]);
    assert_eq!(fs::read(folder.path().join("-")).unwrap(), vec![1; 4096]);
}
