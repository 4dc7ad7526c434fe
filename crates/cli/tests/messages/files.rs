//! Files, directories and inodes of an image: what is printed, and what is reported.

use std::process::{Output, Stdio};

use obento_testkit::oracle::program;
use obento_testkit::{Oracle, mutants, require};

use super::{check, check_in, command, folder, folder_of_images, obento, volume};

#[test]
fn a_bare_image_is_its_root() {
    check(&["ls", "disk.img.zst"], 0, "etc\nhome\nlost+found\nusr\nvar\n", "");
    check(&["ls", "disk.img.zst:/etc"], 0, "group\nos-release\npasswd\n", "");
}

#[test]
fn owners_are_called_as_the_image_calls_them() {
    check(
        &["ls", "-l", "--time-style=+%Y", "disk.img.zst:/home/bento/hello.txt"],
        0,
        "-rw-r--r-- 2 bento bento 66 2026 disk.img.zst:/home/bento/hello.txt\n",
        "",
    );
    check(&["stat", "-c", "%U %G %u", "disk.img.zst:/home/bento"], 0, "bento bento 1000\n", "");
}

#[test]
fn patterns_are_matched_inside_the_image() {
    check(
        &["ls", "-d", "disk.img.zst:/etc/*s*"],
        0,
        "disk.img.zst:/etc/os-release\ndisk.img.zst:/etc/passwd\n",
        "",
    );
    check(
        &["cat", "disk.img.zst:/etc/*.conf"],
        1,
        "",
        "obento: cannot read 'disk.img.zst:/etc/*.conf': no file has this name or matches it as a pattern\n",
    );
}

#[test]
fn missing_files_are_reported_and_the_rest_is_done() {
    check(
        &["ls", "disk.img.zst:/nope", "disk.img.zst:/etc"],
        2,
        "disk.img.zst:/etc:\ngroup\nos-release\npasswd\n",
        "obento: cannot access 'disk.img.zst:/nope': no such file or directory\n",
    );
    check(
        &["cat", "disk.img.zst:/nope", "disk.img.zst:/etc/os-release"],
        1,
        "NAME=\"obento sample\"\nID=obento\n",
        "obento: cannot read 'disk.img.zst:/nope': no such file or directory\n",
    );
}

#[test]
fn df_reports_a_missing_file_and_shows_the_rest() {
    let missing = "obento: cannot access 'disk.img.zst:/none': no such file or directory\n";
    check(&["df", "disk.img.zst:/none"], 1, "", missing);
    let folder = folder();
    let both = obento(folder.path(), &["df", "disk.img.zst:/none", "disk.img.zst:/etc/passwd"]);
    assert_eq!((both.status.code(), String::from_utf8_lossy(&both.stderr).as_ref()), (Some(1), missing));
    let alone = obento(folder.path(), &["df", "disk.img.zst@1"]);
    let numbers = |output: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().unwrap_or_default().split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!((numbers(&both), alone.status.code()), (numbers(&alone), Some(0)));
}

#[test]
fn a_directory_cannot_be_read_as_a_file() {
    check(
        &["cat", "disk.img.zst:/etc"],
        1,
        "",
        "obento: cannot read 'disk.img.zst:/etc': is a directory\n  \
         help: to list its contents: obento ls disk.img.zst:/etc\n",
    );
    check(
        &["cat", "disk.img.zst"],
        1,
        "",
        "obento: cannot open 'disk.img.zst': not a path inside an image\n  \
         help: if this is an image, add the path: disk.img.zst:/PATH\n",
    );
    check(
        &["grep", "root", "disk.img.zst"],
        2,
        "",
        "obento: cannot open 'disk.img.zst': not a path inside an image\n  \
         help: if this is an image, add the path: disk.img.zst:/PATH; or use -r to read all files of the image\n",
    );
}

#[test]
fn the_image_stays_as_it_was() {
    let folder = folder();
    let image = folder.path().join("disk.img.zst");
    let before = std::fs::read(&image).unwrap();
    for args in [&["ls", "-lR", "disk.img.zst"][..], &["du", "disk.img.zst"], &["df", "disk.img.zst"]] {
        assert!(obento(folder.path(), args).status.success());
    }
    assert_eq!(std::fs::read(&image).unwrap(), before);
}

#[test]
fn a_truncated_image_shows_its_existing_files_and_is_reported_once() {
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&raw).unwrap().set_len(6 << 20).unwrap();
    let raw = raw.to_str().unwrap();
    let output = obento(folder.path(), &["ls", raw, &format!("{raw}:/etc")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        errors.matches("the image is truncated: the volume has 14680064 bytes").count(),
        1,
        "{errors}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("os-release"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_damaged_directory_costs_itself_and_the_rest_is_listed() {
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let mut bytes = std::fs::read(&raw).unwrap();
    // A directory entry: length of the name, type, name.
    let at = bytes.windows(12).position(|w| w == b"\x0a\x01os-release").unwrap();
    bytes[at + 2] = b'x';
    std::fs::write(&raw, bytes).unwrap();
    let output = obento(folder.path(), &["ls", "-R", raw.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(":/etc': directory 12: stored checksum is"), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("compartment-300"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn directories_that_run_in_a_circle_are_listed_once() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("circle.img");
    assert!(program("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).arg("8M").status().unwrap().success());
    for request in ["mkdir a", "mkdir a/b", "link a a/b/up", "link a/b a/twin", "link a again"] {
        assert!(
            program("debugfs").args(["-w", "-R", request]).arg(&image).output().unwrap().status.success()
        );
    }
    for command in [&["ls", "-R"][..], &["tree"], &["du", "-a"], &["find"], &["getfattr", "-R"]] {
        let output = obento(folder.path(), &[command, &["circle.img"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // `up` closes the cycle. The first name of its directories depends on the order of the walk, and
        // without sorting on the volume's random hash seed.
        let sorted = matches!(command[0], "ls" | "tree" | "du");
        let ways = ["/a/b/up", "/a/twin/up", "/again/b/up", "/again/twin/up"];
        let ways = if sorted { &ways[..1] } else { &ways[..] };
        assert!(
            ways.iter().any(|way| errors.contains(&format!("circle.img:{way}"))),
            "{command:?}: {errors}"
        );
        assert!(matches!(output.status.code(), Some(1 | 2)), "{command:?}: {errors}");
        assert!(output.stdout.len() < 2000, "{command:?}");
    }
}

#[test]
fn standard_input_is_one_of_the_files() {
    let folder = folder();
    let mut child = command(folder.path(), &["cat", "-", "disk.img.zst:/etc/os-release"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"first\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"first\nNAME=\"obento sample\"\nID=obento\n");
}

#[test]
fn a_comparison_of_trees_refuses_files_without_a_file_system() {
    let folder = folder();
    for (name, bytes) in [("one", "1"), ("other", "2")] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let refused = "obento: cannot compare 'one': not a directory or an image with a file system\n  \
                   help: omit -r to compare the bytes of two files\n";
    for sides in [["one", "other"], ["disk.img.zst", "one"], ["one", "disk.img.zst"]] {
        check_in(folder.path(), &[&["diff", "-r"], &sides[..]].concat(), 2, "", refused);
    }
    check_in(folder.path(), &["diff", "one", "other"], 1, "Files one and other differ\n", "");
}

#[test]
fn an_inode_has_an_address() {
    check(
        &["stat", "-c", "%F %i", "disk.img.zst:<2>", "disk.img.zst:2"],
        0,
        "directory 2\ndirectory 2\n",
        "",
    );
    check(&["cat", "disk.img.zst:<14>"], 0, "NAME=\"obento sample\"\nID=obento\n", "");
    let none = "obento: cannot read 'disk.img.zst:#999999': no file has this inode number\n";
    check(&["cat", "disk.img.zst:<999999>"], 1, "", none);
}

#[test]
fn an_inode_that_has_no_name_can_be_inspected() {
    let folder = folder();
    let journal = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<8>"]);
    assert!(journal.status.success() && journal.stdout.starts_with(b"       offset"), "{journal:?}");
    let none = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<999999>"]);
    let reported = "obento: cannot inspect 'disk.img.zst:#999999': the volume has no inode 999999\n";
    assert_eq!((String::from_utf8(none.stderr).unwrap().as_str(), none.status.code()), (reported, Some(1)));
}

#[test]
fn a_place_past_the_end_of_the_image_is_reported_as_such() {
    let size = obento(folder().path(), &["info", "--json", "disk.img.zst"]).stdout;
    let size = String::from_utf8(size).unwrap();
    let size = size.split("\"size\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let reported = format!(
        "obento: cannot open 'disk.img.zst@+99999999999': the offset is past the end of the image, which has {size} bytes\n"
    );
    check(&["ls", "disk.img.zst@+99999999999:/"], 2, "", &reported);
}

#[test]
fn a_missing_source_is_named_once_and_as_the_user_wrote_it() {
    let folder = folder_of_images();
    for args in [&["cp", "nope", "plain.img:/"][..], &["cp", "-a", "nope", "plain.img:/"]] {
        check_in(folder.path(), args, 1, "", "obento: cannot copy 'nope': no such file or directory\n");
    }
    for (source, shown) in [("nope", "nope"), ("./nope", "./nope")] {
        let reported =
            format!("obento: cannot build 'o.img': cannot examine '{shown}': no such file or directory\n");
        check_in(folder.path(), &["build", "--add", &format!("{source}:/x"), "o.img"], 2, "", &reported);
    }
    assert!(!folder.path().join("o.img").exists());
}

#[test]
fn touch_leaves_no_file_behind_if_the_time_cannot_be_stored() {
    let folder = volume();
    let late = ["touch", "-d", "9999-01-01", "disk.img:/late"];
    check_in(
        folder.path(),
        &late,
        1,
        "",
        "obento: cannot touch 'disk.img:/late': the volume cannot store this time\n  \
         help: FAT and exFAT store the years 1980 to 2107, and ext4 the years 1901 to 2446, or to 2038 with inodes of 128 bytes\n",
    );
    check_in(folder.path(), &["ls", "disk.img"], 0, "lost+found\n", "");
}
