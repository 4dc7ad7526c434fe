//! Images and volumes that cannot be opened or are damaged.

use std::process::Command;

use obento_testkit::oracle::program;
use obento_testkit::{Oracle, mutants, require};

use super::{check_in, folder, obento, volume};

#[test]
fn a_file_that_is_not_an_image_is_refused_with_a_hint() {
    let folder = folder();
    std::fs::write(folder.path().join("notes.txt"), "Just some text.\n".repeat(400)).unwrap();
    std::fs::write(folder.path().join("empty.img"), "").unwrap();
    for (args, words) in [
        (["ls", "nope.img:/"], "no such file"),
        (["ls", "notes.txt"], "no supported file system"),
        (["ls", "empty.img"], "the file is empty"),
        (["ls", "disk.img.zst@7"], "no such partition"),
        (["ls", "."], "is a directory of the host"),
    ] {
        let output = obento(folder.path(), &args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.starts_with("obento: ") && errors.contains(words), "{args:?}: {errors}");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    }
}

#[test]
fn a_missing_super_block_is_reported_with_the_option_that_opens_the_volume() {
    let folder = folder();
    let by = |block: &str| {
        let output = obento(folder.path(), &["ls", "--superblock", block, "disk.img.zst"]);
        assert_eq!(output.status.code(), Some(2), "{block}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let past = "the block is past the end of the volume, which has 14 MiB (14680064 bytes)\n  help: omit the number of the super block: the volume opens without it\n";
    for block in ["999999", "18446744073709551615"] {
        let reported = by(block);
        assert!(reported.ends_with(past) && reported.contains(&format!("at block {block}: ")), "{reported}");
    }
    let reported = by("5");
    assert!(
        reported.contains("magic number")
            && reported
                .ends_with("\n  help: omit the number of the super block: the volume opens without it\n"),
        "{reported}"
    );
}

#[test]
fn a_qcow2_image_with_a_backing_file_is_reported_with_the_option_that_opens_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let create = program("qemu-img")
        .current_dir(folder.path())
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([raw.file_name().unwrap(), "over.qcow2".as_ref()])
        .status();
    assert!(create.unwrap().success());
    for args in [&["cp", "over.qcow2", "."][..], &["info", "over.qcow2"], &["ls", "over.qcow2"]] {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("\n  help: use --allow-backing"), "{args:?}: {errors}");
    }
    let output = obento(folder.path(), &["cp", "--allow-backing", "over.qcow2", "."]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("help: use over.qcow2:/ for the root"));
}

#[test]
fn an_unreadable_qcow2_image_is_reported_with_the_command_that_converts_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let convert = |options: &str, name: &str| {
        let mut command = program("qemu-img");
        command.current_dir(folder.path()).args(["convert", "-c", "-O", "qcow2", "-o", options]);
        assert!(command.args([raw.file_name().unwrap(), name.as_ref()]).status().unwrap().success());
    };
    convert("compression_type=zstd", "zstd.qcow2");
    check_in(folder.path(), &["ls", "zstd.qcow2:/etc"], 0, "group\nos-release\npasswd\n", "");
    convert("extended_l2=on,cluster_size=64k", "sub.qcow2");
    for args in [&["ls", "sub.qcow2:/"][..], &["info", "sub.qcow2"], &["cp", "sub.qcow2", "."]] {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            errors.contains("subclusters (extended L2 entries) is not supported\n"),
            "{args:?}: {errors}"
        );
        assert!(
            errors.contains("help: convert the image: qemu-img convert -O qcow2 sub.qcow2 plain.qcow2"),
            "{errors}"
        );
    }
    let args = ["convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat", "raw", "flat.vmdk"];
    std::fs::write(folder.path().join("raw"), [0; 4096]).unwrap();
    assert!(Command::new("qemu-img").current_dir(folder.path()).args(args).status().unwrap().success());
    let errors = String::from_utf8(obento(folder.path(), &["ls", "flat.vmdk"]).stderr).unwrap();
    assert!(errors.contains("help: convert the image: qemu-img convert -O qcow2 flat.vmdk"), "{errors}");
}

#[test]
fn a_structure_that_cannot_be_shown_has_no_heading() {
    let folder = volume();
    for args in [
        &["group", "disk.img", "999"][..],
        &["block", "disk.img", "99999999"],
        &["dir", "disk.img:#11", "disk.img:#12"],
    ] {
        let output = obento(folder.path(), &[&["inspect"], args].concat());
        let headings = String::from_utf8(output.stdout).unwrap().matches("offset length").count();
        assert_eq!(
            (output.status.code(), headings),
            (Some(1), args.len() - 2 - usize::from(args[0] != "dir")),
            "{args:?}"
        );
    }
    let output = obento(folder.path(), &["inspect", "group", "disk.img", "999", "0"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.trim_start().starts_with("offset length") && shown.contains("bg_"), "{shown}");
}

#[test]
fn check_reports_that_the_volume_is_marked_with_errors() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let folder = volume();
    let mark = ["-w", "-R", "ssv state 3", "disk.img"];
    assert!(program("debugfs").args(mark).current_dir(folder.path()).output().unwrap().status.success());
    let output = obento(folder.path(), &["check", "disk.img"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.lines().count() == 2 && said.contains("error"), "{said}");
}

#[test]
fn a_build_without_the_kernel_of_the_kernel_engine_is_reported_with_the_next_step() {
    let folder = folder();
    let layout =
        "[[partition]]\ntype = \"linux-generic\"\nsize = \"400M\"\ncontent = \"xfs\"\nfrom = \".\"\n";
    std::fs::write(folder.path().join("layout.toml"), layout).unwrap();
    let why = "xfs volumes need the kernel engine, and OBENTO_LINUX names no program\n  help: correct OBENTO_LINUX, or \
               unset it and install the kernel: apt-get install user-mode-linux\n";
    for (args, what) in [
        (["build", "new.img", "--type=xfs", "--from=."], "cannot build 'new.img': "),
        (["build", "-q", "new.img", "--disk=layout.toml"], "cannot use 'layout.toml:4': content: "),
    ] {
        let output = super::command(folder.path(), &args).env("OBENTO_LINUX", "/none").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("obento: {what}{why}"), "{args:?}");
    }
}
