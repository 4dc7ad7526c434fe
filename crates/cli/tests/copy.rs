//! `cp`, `export`, `diff`, `info` and `inspect` as a user runs them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use obento_testkit::image::small_ext4;
use obento_testkit::oracle::{LoopMount, program};
use obento_testkit::{Oracle, require};

/// A folder with the sample image of the repository.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    folder
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).env("TZ", "UTC0").output().unwrap()
}

#[track_caller]
fn check(folder: &Path, args: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = obento(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), stderr, "{args:?}");
    assert_eq!(text(&output.stdout), stdout, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

#[test]
fn an_archive_copy_equals_that_of_cp_from_the_kernels_mount() {
    let needed = ["mke2fs", "cp", "tar"].map(Oracle::Program);
    if !require(&[&needed[..], &[Oracle::LoopMount, Oracle::Root]].concat()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = small_ext4(folder.path()).unwrap();
    let mount = LoopMount::new(&image, "ro,noload").unwrap();
    for name in ["expected", "found"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let expected = folder.path().join("expected");
    let mut cp = program("cp");
    assert!(cp.arg("-a").arg(mount.path().join(".")).arg(&expected).status().unwrap().success());
    let source = format!("{}:/", image.file_name().unwrap().to_str().unwrap());
    check(folder.path(), &["cp", "-a", &source, "found"], 0, "", "");
    check(folder.path(), &["diff", "-r", "--metadata", "expected", "found"], 0, "", "");
    check(folder.path(), &["diff", "-r", "--metadata", &source, "found"], 0, "", "");
    let links =
        |name: &str| fs::metadata(folder.path().join(name).join("links/hard")).map(|meta| meta.nlink()).ok();
    assert_eq!(links("expected"), links("found"));
}

#[test]
fn a_copy_has_the_name_that_cp_would_give_it() {
    let folder = folder();
    let at = folder.path();
    check(at, &["cp", "disk.img.zst:/etc/passwd", "as"], 0, "", "");
    assert!(at.join("as").is_file());
    fs::create_dir(at.join("dir")).unwrap();
    check(at, &["cp", "disk.img.zst:/etc/passwd", "disk.img.zst:/etc/group", "dir"], 0, "", "");
    check(at, &["cp", "-r", "disk.img.zst:/etc", "dir"], 0, "", "");
    check(at, &["cp", "-r", "disk.img.zst:/etc/.", "made"], 0, "", "");
    check(at, &["cp", "-t", "dir", "disk.img.zst:/etc/os*"], 0, "", "");
    check(at, &["cp", "-rT", "disk.img.zst:/etc", "dir"], 0, "", "");
    for path in ["dir/passwd", "dir/group", "dir/etc/passwd", "made/passwd", "dir/os-release"] {
        assert!(at.join(path).is_file(), "{path}");
    }
    check(
        at,
        &["cp", "disk.img.zst:/etc/passwd", "disk.img.zst:/etc/group", "as"],
        2,
        "",
        "obento: cannot copy several files to 'as': not a directory\n",
    );
    check(
        at,
        &["cp", "disk.img.zst:/etc/passwd", "gone/"],
        2,
        "",
        "obento: cannot copy to 'gone/': no such directory\n  \
         help: create the directory first: mkdir -p gone\n",
    );
}

#[test]
fn a_plain_copy_takes_the_umask_and_an_archive_copy_the_mode() {
    let folder = folder();
    let script = format!(
        "umask 027; {0} cp disk.img.zst:/usr/bin/obento-hello plain; {0} cp -p disk.img.zst:/usr/bin/obento-hello kept",
        env!("CARGO_BIN_EXE_obento")
    );
    assert!(Command::new("sh").args(["-c", &script]).current_dir(folder.path()).status().unwrap().success());
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("plain"), 0o750);
    assert_eq!(mode("kept") & 0o777, 0o755);
    check(
        folder.path(),
        &["cp", "-p", "--untrusted", "disk.img.zst:/usr/bin/obento-hello", "safe"],
        0,
        "",
        {
            "obento: safe: note: 1 file without its set-user-ID or set-group-ID bit (--untrusted): './safe'\n"
        },
    );
    assert_eq!(mode("safe"), 0o755);
}

#[test]
fn a_file_is_written_to_standard_output_and_a_verbose_copy_names_the_copied_files() {
    let folder = folder();
    check(
        folder.path(),
        &["cp", "disk.img.zst:/usr/bin/obento-hello", "-"],
        0,
        "#!/bin/sh\necho obento\n",
        "",
    );
    check(
        folder.path(),
        &["cp", "-rv", "disk.img.zst:/usr", "out"],
        0,
        "'disk.img.zst:/usr' -> 'out'\n'disk.img.zst:/usr/bin' -> 'out/bin'\n'disk.img.zst:/usr/bin/obento-hello' -> \
         'out/bin/obento-hello'\n",
        "",
    );
}

#[test]
fn unsupported_options_of_cp_are_reported_with_the_supported_ones() {
    let folder = folder();
    let at = folder.path();
    check(at, &["cp", "disk.img.zst:/etc", "."], 1, "", {
        "obento: cannot copy 'disk.img.zst:/etc': is a directory\n  help: use -r to copy directories\n"
    });
    check(at, &["cp", "a", "disk.img.zst:/"], 2, "", {
        "obento: cannot change 'disk.img.zst': obento reads the format zstd, but does not write it\n  help: convert the image first: zstd -dc disk.img.zst > plain.img\n"
    });
    check(at, &["cp", "disk.img.zst", "."], 1, "", {
        "obento: cannot copy 'disk.img.zst': not a path inside an image\n  help: use disk.img.zst:/ for the root directory of the image, or cp(1) to copy the image itself\n"
    });
    check(at, &["cp", "disk.img.zst:/nowhere", "."], 1, "", {
        "obento: cannot copy 'disk.img.zst:/nowhere': no such file or directory\n"
    });
    check(at, &["cp", "--max-bytes", "10", "disk.img.zst:/etc/passwd", "x"], 1, "", {
        "obento: the copy is incomplete: cannot copy './x': the limit of bytes (10) is reached\n  \
         help: --max-bytes sets this limit; the files that were copied before remain\n"
    });
    assert!(!at.join("x").exists(), "half a file looks like a whole one");
}

#[test]
fn a_link_at_the_target_is_replaced_and_never_followed() {
    let folder = folder();
    fs::write(folder.path().join("outside"), "mine").unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    symlink("../outside", folder.path().join("dir/passwd")).unwrap();
    check(folder.path(), &["cp", "disk.img.zst:/etc/passwd", "dir"], 0, "", "");
    assert_eq!(fs::read(folder.path().join("outside")).unwrap(), b"mine");
    assert!(folder.path().join("dir/passwd").symlink_metadata().unwrap().is_file());
}

#[test]
fn the_image_that_is_read_is_never_written_over() {
    let folder = folder();
    let at = folder.path();
    symlink("disk.img.zst", at.join("link")).unwrap();
    fs::hard_link(at.join("disk.img.zst"), at.join("hard")).unwrap();
    fs::create_dir(at.join("dir")).unwrap();
    fs::hard_link(at.join("disk.img.zst"), at.join("dir/passwd")).unwrap();
    let before = fs::read(at.join("disk.img.zst")).unwrap();
    let is_input = |path: &str| {
        format!("cannot write '{path}': the command reads this image\n  help: name another target\n")
    };
    for path in ["disk.img.zst", "link", "hard"] {
        let is_image = format!(
            "obento: cannot export to '{path}': the file is a disk image\n  help: name another file; to put files into \
             the image, use 'obento cp'; --force replaces the image\n"
        );
        check(at, &["export", "disk.img.zst", "-o", path], 2, "", &is_image);
        let is_read = format!("obento: {}", is_input(path));
        check(at, &["export", "--force", "disk.img.zst", "-o", path], 2, "", &is_read);
    }
    for (target, path) in [
        ("disk.img.zst", "./disk.img.zst"),
        ("hard", "./hard"),
        ("dir", "dir/passwd"),
        ("dir/.", "dir/./passwd"),
    ] {
        let expected = format!("obento: cannot copy 'disk.img.zst:/etc/passwd': {}", is_input(path));
        check(at, &["cp", "--force", "disk.img.zst:/etc/passwd", target], 1, "", &expected);
    }
    assert!(fs::read(at.join("disk.img.zst")).unwrap() == before);
    assert!(fs::read(at.join("dir/passwd")).unwrap() == before);
}

#[test]
fn an_export_empties_the_file_that_it_replaces() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("old"), vec![1; 1 << 22]).unwrap();
    check(at, &["export", "disk.img.zst:/etc", "-o", "old"], 0, "", "");
    check(at, &["export", "disk.img.zst:/etc", "-o", "new"], 0, "", "");
    assert!(fs::read(at.join("old")).unwrap() == fs::read(at.join("new")).unwrap());
}

#[test]
fn a_fifo_as_the_target_takes_the_bytes_and_stays() {
    let folder = folder();
    let at = folder.path();
    let fifo = at.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    check(at, &["cp", "disk.img.zst:/etc/passwd", "pipe"], 0, "", "");
    let passwd = obento(at, &["cat", "disk.img.zst:/etc/passwd"]).stdout;
    assert!(fs::metadata(&fifo).is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_fifo(&meta.file_type())));
    assert_eq!(reader.join().unwrap(), passwd);
}

#[test]
fn no_command_waits_for_a_fifo_of_another_user() {
    let folder = folder();
    let at = folder.path();
    let fifo = at.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    fs::create_dir(at.join("pages")).unwrap();
    fs::rename(&fifo, at.join("pages/obento.1")).unwrap();
    std::os::unix::fs::symlink("pages/obento.1", &fifo).unwrap();
    if std::os::unix::fs::lchown(at.join("pages/obento.1"), Some(12345), None).is_err() {
        return println!("skipped: only root can change the owner of a FIFO");
    }
    for arguments in [
        &["cp", "disk.img.zst:/etc/passwd", "pipe"][..],
        &["export", "disk.img.zst:/etc", "pipe"],
        &["export", "disk.img.zst:/etc", "-o", "pipe"],
        &["find", "disk.img.zst:/etc", "-fprint", "pipe"],
        &["recover", "disk.img.zst", "all", "--report", "pipe"],
        &["man", "pages"],
    ] {
        let output = obento(at, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("it is a FIFO of another user"), "{arguments:?}: {said}");
        assert!(!output.status.success(), "{arguments:?}");
    }
    // A pipe without a name belongs to the process that started the command.
    let passwd = obento(at, &["cat", "disk.img.zst:/etc/passwd"]).stdout;
    assert_eq!(obento(at, &["cp", "disk.img.zst:/etc/passwd", "/dev/stdout"]).stdout, passwd);
}

#[test]
fn no_command_waits_for_a_fifo_of_another_user_as_its_input() {
    let folder = folder();
    let at = folder.path();
    let fifo = at.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    assert!(obento(at, &["mkfs", "-t", "ext4", "new.img", "8M"]).status.success());
    // An own FIFO is read.
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::write(fifo, "root").unwrap()
    });
    let found = obento(at, &["grep", "-c", "-f", "pipe", "disk.img.zst:/etc/passwd"]);
    assert!(String::from_utf8_lossy(&found.stdout).starts_with('1'), "{found:?}");
    writer.join().unwrap();
    if std::os::unix::fs::lchown(&fifo, Some(12345), None).is_err() {
        return println!("skipped: only root can change the owner of a FIFO");
    }
    for arguments in [
        &["import", "new.img:/", "pipe"][..],
        &["cp", "pipe", "new.img:/file"],
        &["cmp", "pipe", "disk.img.zst:/etc/passwd"],
        &["grep", "-f", "pipe", "disk.img.zst:/etc/passwd"],
        &["sha256sum", "-c", "pipe"],
        &["setfattr", "--restore", "pipe", "new.img:/"],
        &["setfacl", "--restore", "pipe", "new.img:/"],
        &["recover", "disk.img.zst", "all", "--map", "pipe"],
        &["build", "built.img", "--from", "pipe"],
        &["build", "built.img", "--from", "mtree:pipe"],
        &["build", "built.img", "--disk", "pipe"],
        &["bench", "report", "pipe"],
    ] {
        let output = obento(at, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("it is a FIFO of another user"), "{arguments:?}: {said}");
        assert!(!output.status.success(), "{arguments:?}");
    }
}

#[test]
fn a_copy_of_an_untrusted_file_has_a_limit_of_data_without_holes() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("big"), vec![7; 100_000]).unwrap();
    let succeeds = |arguments: &[&str]| {
        let output = obento(at, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    succeeds(&["mkfs", "-t", "ext4", "new.img", "8M"]);
    succeeds(&["cp", "big", "new.img:/big"]);
    succeeds(&["truncate", "-s", "1M", "new.img:/sparse"]);
    let small = ["--max-unpacked", "50000"];
    for (arguments, option) in [
        (&["exec", "new.img:/big", "--", "true"][..], "--max-unpacked"),
        (&["find", "new.img:/big", "-exec", "true", "{}", ";"], "--max-unpacked"),
        (&["find", "new.img:/big", "-exec", "true", "{}", "+"], "--max-unpacked"),
        (&["recover", "new.img", "recovered"], "--max-unpacked"),
        (&["cp", "-a", "--untrusted", "new.img:/big", "copy"], "--max-bytes"),
    ] {
        let output = obento(at, &[&arguments[..1], &small, &arguments[1..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("limit") && said.contains(option), "{arguments:?}: {said}");
        assert!(!output.status.success(), "{arguments:?}");
        let _ = fs::remove_dir_all(at.join("recovered"));
        succeeds(arguments);
    }
    succeeds(&["exec", "--max-unpacked", "50000", "new.img:/sparse", "--", "true"]);
    succeeds(&["cp", "--untrusted", "--max-unpacked", "50000", "new.img:/sparse", "sparse"]);
}

#[test]
fn the_limit_on_bytes_holds_for_standard_output_too() {
    let folder = folder();
    let reported = "obento: the copy is incomplete: cannot copy 'disk.img.zst:/etc/passwd': the limit of bytes (10) is \
                    reached\n  help: --max-bytes sets this limit; the files that were copied before remain\n";
    let passwd = obento(folder.path(), &["cat", "disk.img.zst:/etc/passwd"]).stdout;
    let start = String::from_utf8(passwd[..10].to_vec()).unwrap();
    check(folder.path(), &["cp", "--max-bytes=10", "disk.img.zst:/etc/passwd", "-"], 1, &start, reported);
}

#[test]
fn an_export_is_a_tar_that_tar_reads() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = folder();
    check(folder.path(), &["export", "disk.img.zst:/etc", "etc.tar"], 0, "", "");
    let listed = program("tar").args(["tf", "etc.tar"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "./\n./group\n./os-release\n./passwd\n");
    let piped = obento(folder.path(), &["export", "disk.img.zst:/etc"]);
    assert_eq!(piped.stdout, fs::read(folder.path().join("etc.tar")).unwrap());
    let script = format!("{} export disk.img.zst | head -c 100 | wc -c", env!("CARGO_BIN_EXE_obento"));
    let closed = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&closed.stdout).trim(), closed.stderr.as_slice()), ("100", &b""[..]));
}

#[test]
fn a_comparison_reads_like_diff_and_ends_with_0_1_or_2() {
    let folder = folder();
    let at = folder.path();
    check(at, &["cp", "-a", "disk.img.zst:/etc", "etc"], 0, "", "");
    check(at, &["diff", "-r", "disk.img.zst:/etc", "etc"], 0, "", "");
    fs::write(at.join("etc/group"), "other").unwrap();
    fs::set_permissions(at.join("etc/os-release"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(at.join("etc/passwd")).unwrap();
    fs::create_dir(at.join("etc/passwd")).unwrap();
    fs::write(at.join("etc/\u{1b}new"), "").unwrap();
    let lines = "Only in etc: \u{1b}new\nFiles disk.img.zst:/etc/group and etc/group differ\n";
    let kinds = "File disk.img.zst:/etc/passwd is a regular file while file etc/passwd is a directory\n";
    check(at, &["diff", "-r", "disk.img.zst:/etc", "etc"], 1, &format!("{lines}{kinds}"), "");
    let output = obento(at, &["diff", "-r", "--metadata", "disk.img.zst:/etc", "etc"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mode = "Files disk.img.zst:/etc/os-release and etc/os-release differ in mode: 0664 and 0600\n";
    assert!(text.contains(mode), "{text}");
    check(at, &["diff", "disk.img.zst:/etc", "etc"], 2, "", {
        "obento: cannot compare 'disk.img.zst:/etc': is a directory\n  help: use -r to compare directories\n"
    });
    let output = obento(at, &["diff", "disk.img.zst:/etc/group", "etc/group", "--json"]);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "{\"schema\":\"obento/1\",\"kind\":\"difference\",\"what\":\"size\",\"left\":\"disk.img.zst:/etc/group\",\
         \"right\":\"etc/group\",\"left_size\":24,\"right_size\":5}\n"
    );
    assert_eq!(obento(at, &["diff", "disk.img.zst:/gone", "etc/group"]).status.code(), Some(2));
}

#[test]
fn a_comparison_names_the_side_that_is_missing() {
    let reported = "obento: cannot open 'none': no such file or directory\n";
    check(folder().path(), &["diff", "-r", "disk.img.zst:/etc", "none"], 2, "", reported);
}

#[test]
fn a_comparison_shows_times_in_the_time_zone_of_the_user() {
    if !Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        println!("skipped: no zoneinfo");
        return;
    }
    let folder = folder();
    let at = folder.path();
    check(at, &["cp", "disk.img.zst:/etc/group", "group"], 0, "", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(at).args(["diff", "-m", "disk.img.zst:/etc/group", "group"]).env("TZ", "Asia/Tokyo");
    let reported = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(reported.contains("modification: 2026-11-21 23:07:20.000000000 +0900 and "), "{reported}");
}

#[test]
fn info_shows_the_layers_from_outside_inwards() {
    let folder = folder();
    let output = obento(folder.path(), &["info", "disk.img.zst"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let order = [
        "disk.img.zst",
        "size",
        "packed in",
        "zstd",
        "partition table",
        "partition 1",
        "file system",
        "ext4",
        "state",
    ];
    let mut rest = text.as_str();
    for word in order {
        rest = rest.split_once(word).unwrap_or_else(|| panic!("{word} in {text}")).1;
    }
    let output = obento(folder.path(), &["info", "disk.img.zst", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(
        "{\"schema\":\"obento/1\",\"kind\":\"image\",\"path\":\"disk.img.zst\",\"size\":16777216"
    ));
    assert!(text.contains("\"kind\":\"volume\"") && text.contains("\"partition\":1"), "{text}");
    fs::write(folder.path().join("text"), "hello\n".repeat(1000)).unwrap();
    let output = obento(folder.path(), &["info", "text"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("text"));
}

#[test]
fn inspect_shows_fields_with_their_places() {
    let folder = folder();
    let output = obento(folder.path(), &["inspect", "super", "disk.img.zst"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("       offset length  name                        value\nsuper block\n"),
        "{text}"
    );
    assert!(text.contains("         1080      2  s_magic                     0xef53\n"), "{text}");
    for args in [
        &["inspect", "inode", "disk.img.zst:/etc/passwd"][..],
        &["inspect", "dir", "disk.img.zst:/home/bento/box"],
        &["inspect", "group", "disk.img.zst", "0"],
        &["inspect", "block", "disk.img.zst", "1", "2"],
        &["inspect", "journal", "disk.img.zst", "--json"],
    ] {
        let output = obento(folder.path(), args);
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
        assert!(!output.stdout.is_empty());
    }
    check(
        folder.path(),
        &["inspect", "group", "disk.img.zst", "99999"],
        1,
        "",
        "obento: cannot inspect 'disk.img.zst': the volume has no block group 99999\n",
    );
}
