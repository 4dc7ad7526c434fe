//! Wrong usage, invalid values and exit codes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::{check, check_in, command, folder, folder_of_images, obento, volume};

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for args in [
        &["frobnicate"][..],
        &["ls"],
        &["ls", "--nope", "disk.img.zst"],
        &["du", "-a", "-s", "disk.img.zst"],
        &["du", "-s", "-d", "1", "disk.img.zst"],
        &["prov", "disk.img.zst", "--of", "/x", "-n", "1"],
        &["mount", "--status", "--log", "x"],
    ] {
        assert_eq!(obento(folder().path(), args).status.code(), Some(2), "{args:?}");
    }
    let output = obento(folder().path(), &["check", "--rescue", "disk.img.zst"]);
    assert_eq!(output.status.code(), Some(16), "{output:?}");
    for args in [&["--help"][..], &["ls", "--help"], &["-h"], &["--version"]] {
        assert_eq!(obento(folder().path(), args).status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn each_command_reports_wrong_usage_with_its_exit_code() {
    let folder = volume();
    let help = String::from_utf8(obento(folder.path(), &["help"]).stdout).unwrap();
    let group = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = group.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(["ls", "mkfs", "build", "check", "bench"].iter().all(|name| names.contains(name)), "{names:?}");
    for name in names {
        let expected = if name == "check" { 16 } else { 2 };
        let output = obento(folder.path(), &[name, "--no-such-option"]);
        assert_eq!(output.status.code(), Some(expected), "{name}: {output:?}");
    }
    for line in [
        "build x.img",
        "build --from gone",
        "build -t ntfs x.img --from .",
        "build x.img --from . --size ten",
        "mkfs x.img",
        "mkfs x.img ten",
        "mkfs x.img 0",
        "mkfs -t nosuch x.img 8M",
        "mkfs -b 1000 x.img 8M",
        "mkfs -O nosuch x.img 8M",
        "mkfs -J foo=1 x.img 8M",
        "mkfs --journal x x.img 8M",
        "build --journal x x.img --from .",
        "mkfs.fat -A x.img",
        "mkfs.exfat x.img",
        "convert disk.img",
        "touch -d foo disk.img:/x",
        "touch -t foo disk.img:/x",
        "chmod 999 disk.img:/",
        "truncate -s ten disk.img:/x",
        "find disk.img -size ten",
        "grep [ disk.img:/",
        "getfattr -m [ disk.img:/",
        "tree -L x disk.img",
        "resize disk.img ten",
        "bench --limit 0 quick",
        "recover disk.img:/nope out",
    ] {
        let output = obento(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(!folder.path().join("x.img").exists() && !output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn a_value_that_is_not_a_number_is_reported_in_one_line() {
    let folder = volume();
    let first = |args: &[&str]| {
        let output = obento(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(["", "  help: use - to show all attributes\n"].contains(&rest), "{args:?}: {text}");
        first.to_owned()
    };
    for (args, line) in [
        (
            &["tree", "-L", "x", "disk.img"][..],
            "obento: invalid value 'x' for -L (--level): not a whole number",
        ),
        (
            &["tree", "-L", "99999999999999999999", "disk.img"],
            "obento: invalid value '99999999999999999999' for -L (--level): the number is too large",
        ),
        (
            &["bench", "compare", "--least", "x", "a", "b"],
            "obento: invalid value 'x' for --least: not a number",
        ),
        (
            &["bench", "--limit", "0", "quick"],
            "obento: invalid value '0' for --limit: not a time above 0, such as 10 or 0.5",
        ),
        (
            &["getfattr", "-m", "[", "disk.img:/"],
            "obento: cannot use the pattern '[': not a regular expression",
        ),
        (&["grep", "[", "disk.img:/"], "obento: cannot use the pattern '[': a bracket is not closed"),
        (
            &["find", "disk.img:/", "-regex", "["],
            "obento: cannot search: -regex '[': a bracket is not closed",
        ),
    ] {
        assert_eq!(first(args), line);
    }
}

#[test]
fn a_project_is_refused_by_name_where_the_volume_keeps_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "").unwrap();
    for fs_type in ["vfat", "xv6", "ext4"] {
        assert!(
            obento(folder.path(), &["mkfs", "-t", fs_type, "-q", "disk.img", "16M", "-F"]).status.success()
        );
        assert!(obento(folder.path(), &["cp", "f", "disk.img:/"]).status.success());
        let reported =
            "obento: cannot set the project of 'disk.img:/f': the volume does not support projects\n";
        check_in(folder.path(), &["chattr", "-p", "5", "disk.img:/f"], 1, "", reported);
    }
}

#[test]
fn a_rejected_setting_is_named_by_its_option_and_its_value() {
    let folder = folder_of_images();
    for (args, stderr) in [
        (
            &["tune", "plain.img", "-m", "99"][..],
            "cannot change the settings of 'plain.img': invalid value '99' for -m: must be a percentage from 0 to 50\n",
        ),
        (
            &["tune", "plain.img", "-L", "a label of more than 16 bytes"],
            "cannot change the settings of 'plain.img': invalid value 'a label of more than 16 bytes' for -L: \
             must have at most 16 bytes, and no NUL\n  help: write a shorter label, without special characters\n",
        ),
        (
            &["tune", "fat.img", "-m", "1"],
            "cannot change the settings of 'fat.img': -m is not available: FAT does not have this setting\n",
        ),
        (
            &["mkfs", "-F", "-U", "1234-ABCD", "plain.img"],
            "cannot create a file system on 'plain.img': ext4 has a UUID, and no volume ID\n  \
             help: write a UUID such as 01234567-89ab-cdef-0123-456789abcdef, or random\n",
        ),
        (
            &["mkfs", "-F", "-O", "^extent,64bit", "plain.img"],
            "cannot create a file system on 'plain.img': 64bit requires extent\n  \
             help: add -O extent, or remove 64bit: -O ^64bit\n",
        ),
        (
            &["cmp", "-i", "x", "notes.txt", "notes.txt"],
            "invalid value 'x' for -i: not a size such as 4096, 10M or 10MB\n",
        ),
    ] {
        check_in(folder.path(), args, 2, "", &format!("obento: {stderr}"));
    }
}

#[test]
fn recover_distinguishes_a_partial_success_from_a_failure() {
    let folder = volume();
    let output = obento(folder.path(), &["recover", "disk.img", "/proc/x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_limit_of_one_byte_is_in_the_singular() {
    check(
        &["--max-unpacked", "1", "ls", "disk.img.zst"],
        2,
        "",
        "obento: cannot decompress 'disk.img.zst': its contents exceed the limit of 1 byte\n  \
         help: use --max-unpacked SIZE to allow more\n",
    );
}

#[test]
fn a_value_that_is_not_text_is_named() {
    let folder = folder_of_images();
    let bytes = |bytes| OsStr::from_bytes(bytes).to_owned();
    for (image, expected) in [
        (bytes(b"plain.img"), r"argument 'ext\377' is not valid UTF-8"),
        (bytes(b"\xfe.img"), r"the value of an option is not valid UTF-8: 'ext\377' or '\376.img'"),
    ] {
        let output = command(folder.path(), &["ls", "--fs-type"]).arg(bytes(b"ext\xff")).arg(&image).output();
        let output = output.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("obento: {expected}\n"), "{image:?}");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
