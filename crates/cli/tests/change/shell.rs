//! The prompt of `shell` as scripts use it.

use crate::support::{Disk, text};

/// Returns output, errors and exit code of a script on standard input.
fn script(disk: &Disk, args: &[&str], lines: &str) -> (String, String, Option<i32>) {
    let output = disk.obento_with(&[&["shell", "disk.img"], args].concat(), lines.as_bytes());
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn a_script_changes_and_reads_one_open_image_from_its_current_directory() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    let lines = "\
mkdir -p a/b 'c d' # a comment
cd a
touch one $'two\\nlines'; mv one b/
pwd
ls b
cd ../c\\ d
pwd
ln -s ../a link && readlink link || ls nowhere
cd link
pwd
find b $'two\\nlines' -type f -printf %f.
rm -r /a
ls /
";
    let (stdout, stderr, code) = script(&disk, &[], lines);
    assert_eq!(stderr, "");
    assert_eq!(stdout, "/a\none\n/c d\n../a\n/c d/link\none.two\nlines.c d\nlost+found\n");
    assert_eq!(code, Some(0));
    assert_eq!(disk.read("ls disk.img:/"), "c d\nlost+found\n");
}

#[test]
fn files_cross_to_the_host_and_back_and_programs_of_the_host_run() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    std::fs::write(disk.folder().join("in"), "from the host").unwrap();
    let lines = "\
mkdir d
cp host:in d/
cd d
cp in copy
cat copy
exec copy -- sed -i s/from/to/
cp copy host:out
mv in ../moved
ls . /
";
    let (stdout, stderr, code) = script(&disk, &[], lines);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.starts_with("from the host"), "{stdout}");
    assert!(stdout.contains("copy\n") && stdout.contains("moved\n"), "{stdout}");
    assert_eq!(std::fs::read(disk.folder().join("out")).unwrap(), b"to the host");
    assert_eq!(disk.read("cat disk.img:/moved"), "from the host");
}

#[test]
fn the_exit_code_is_that_of_the_last_command_or_of_exit() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    assert_eq!(script(&disk, &[], "ls nowhere\n").2, Some(2));
    assert_eq!(script(&disk, &[], "rm nowhere\n").2, Some(1));
    assert_eq!(script(&disk, &[], "rm nowhere\nls\n").2, Some(0));
    assert_eq!(script(&disk, &[], "rm nowhere || exit 7; ls\nls\n").2, Some(7));
    assert_eq!(script(&disk, &["-c", "touch a; exit"], "").2, Some(0));
    assert_eq!(script(&disk, &["-c", "frobnicate"], "").2, Some(2));
    assert_eq!(script(&disk, &["-c", "ls 'a"], "").2, Some(2));
    let (stdout, stderr, code) = script(&disk, &["-c", "touch b && ls; rm a b c"], "");
    assert_eq!(stdout, "a\nb\nlost+found\n");
    assert_eq!(stderr, "obento: cannot remove 'disk.img:/c': no such file or directory\n");
    assert_eq!(code, Some(1));
    assert_eq!(disk.read("ls disk.img:/"), "lost+found\n");
}

#[test]
fn a_command_reads_the_following_lines_of_the_script() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let (_, stderr, code) = script(&disk, &[], "write note\nthese lines\nare the file\n");
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert_eq!(disk.read("cat disk.img:/note"), "these lines\nare the file\n");
}

#[test]
fn an_image_that_must_not_change_can_still_be_looked_at() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let before = std::fs::read(disk.image()).unwrap();
    let (stdout, stderr, code) = script(&disk, &["--read-only"], "ls\ntouch a\n");
    assert_eq!(stdout, "lost+found\n");
    assert_eq!(stderr, "obento: cannot change 'a': the image is open read-only\n");
    assert_eq!(code, Some(1));
    let mut command = disk.command(&["shell", "disk.img", "-c", "ls; rm -r lost+found"]);
    let output = command.env("OBENTO_READONLY", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("OBENTO_READONLY is set"), "{}", text(&output.stderr));
    assert!(before == std::fs::read(disk.image()).unwrap());
}

#[test]
fn the_shell_starts_in_the_given_directory_and_reports_an_invalid_one() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir -p disk.img:/x/y"]);
    let output = disk.obento(&["shell", "disk.img:/x", "-c", "pwd; cd y; pwd; cd; pwd; cd none; pwd"]);
    assert_eq!(text(&output.stdout), "/x\n/x/y\n/\n/\n");
    assert_eq!(text(&output.stderr), "obento: cannot change to '/none': no such file or directory\n");
    disk.check(
        "shell disk.img:/none -c ls",
        2,
        "",
        "obento: cannot start in 'disk.img:/none': no such file or directory\n",
    );
}

#[test]
fn other_images_take_part_in_copies_and_moves_and_are_read_and_changed_in_turn() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    std::fs::copy(disk.image(), disk.folder().join("other.img")).unwrap();
    let lines = "\
mkdir d
write d/f
hello
";
    assert_eq!(script(&disk, &[], lines).2, Some(0));
    let lines = "\
ls image:other.img
cp -r d image:other.img:/copy
cat image:other.img:/copy/f
mv image:other.img:/copy moved
ls image:other.img:/ moved
rm image:none.img:/x
";
    let (stdout, stderr, code) = script(&disk, &[], lines);
    assert_eq!(stdout, "lost+found\nhello\ndisk.img:/moved:\nf\n\nother.img:/:\nlost+found\n");
    assert!(stderr.starts_with("obento: ") && stderr.contains("none.img"), "{stderr}");
    assert_eq!(code, Some(1));
    let (_, stderr, code) =
        script(&disk, &["--read-only"], "cp -r d image:other.img:/again\ncp image:other.img:/again/f /\n");
    assert_eq!(stderr, "obento: cannot change 'disk.img': the image is open read-only\n");
    assert_eq!(code, Some(2));
    assert_eq!(disk.read("cat other.img:/again/f"), "hello\n");
}
