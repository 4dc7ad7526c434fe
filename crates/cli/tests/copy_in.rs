//! `cp` into images as a user runs it: from the host, from standard input, and from images.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use obento_testkit::entries::{self, Differences, Entries};
use obento_testkit::image::tar_of;
use obento_testkit::oracle::{LoopMount, call};
use obento_testkit::tree::{self, TreeSpec};
use obento_testkit::{Oracle, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];

/// The message for a volume without free blocks.
const VOLUME_IS_FULL: &str = "no space left\n  help: the volume has too few free blocks: remove files, or enlarge the \
                              volume with 'obento resize IMAGE SIZE'\n";

/// Creates an empty volume of `mib` MiB.
fn image(folder: &Path, name: &str, mib: u64, arguments: &[&str]) -> PathBuf {
    let image = folder.join(name);
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    call("mke2fs", [&["-q", "-F"], arguments, &[image.to_str().unwrap()]].concat()).unwrap();
    image
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).env("TZ", "UTC0");
    command
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

#[track_caller]
fn check(folder: &Path, args: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = obento(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), stderr, "{args:?}");
    assert_eq!(text(&output.stdout), stdout, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

#[track_caller]
fn copied(folder: &Path, args: &[&str]) {
    check(folder, &[&["cp"], args].concat(), 0, "", "");
}

#[track_caller]
fn e2fsck(folder: &Path, image: &str) {
    call("e2fsck", ["-fn".as_ref(), folder.join(image).as_os_str()]).unwrap();
}

#[track_caller]
fn holds(folder: &Path, file: &str, expected: &str) {
    check(folder, &["cat", file], 0, expected, "");
}

/// Returns the output of `stat -c FORMAT`.
fn stat(folder: &Path, format: &str, file: &str) -> String {
    let output = obento(folder, &["stat", "-c", format, file]);
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Returns the contents of an archive, without the sizes of holes.
fn listing(tar: &Path) -> Entries {
    let mut entries = entries::from_tar(File::open(tar).unwrap()).unwrap();
    entries.values_mut().for_each(|entry| entry.map = None);
    entries
}

#[test]
fn an_archive_copy_of_everything_round_trips_and_equals_what_the_kernel_reads() {
    if !require(&[TOOLS, &[Oracle::LoopMount, Oracle::Root, Oracle::Program("tar")]].concat()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("tree")).unwrap();
    tree::write(&at.join("tree"), &TreeSpec::SMALL).unwrap();
    tar_of(&at.join("tree"), &at.join("tree.tar")).unwrap();
    let expected = listing(&at.join("tree.tar"));
    let volumes: [(&str, &[&str]); 5] = [
        ("ext4.img", &["-t", "ext4"]),
        ("small-blocks.img", &["-t", "ext4", "-b", "1024"]),
        ("ext3.img", &["-t", "ext3", "-I", "256"]),
        ("inline.img", &["-t", "ext4", "-O", "inline_data,ea_inode"]),
        ("clusters.img", &["-t", "ext4", "-O", "bigalloc,^resize_inode", "-C", "16384"]),
    ];
    for (name, arguments) in volumes {
        image(at, name, 128, arguments);
        let place = format!("{name}:/srv");
        copied(at, &["-a", "tree", &place]);
        e2fsck(at, name);
        check(at, &["diff", "-r", "--metadata", "tree", &place], 0, "", "");
        let mount = LoopMount::new(&at.join(name), "ro").unwrap();
        tar_of(&mount.path().join("srv"), &at.join("found.tar")).unwrap();
        mount.unmount().unwrap();
        let difference = Differences::between(&expected, &listing(&at.join("found.tar")));
        assert!(difference.is_empty(), "{name}: {difference}");
        copied(at, &["-a", &place, "back"]);
        check(at, &["diff", "-r", "--metadata", "tree", "back"], 0, "", "");
        fs::remove_dir_all(at.join("back")).unwrap();
    }
    image(at, "other.img", 128, &["-t", "ext4", "-b", "2048"]);
    copied(at, &["-a", "ext4.img:/srv", "other.img:/"]);
    check(at, &["diff", "-r", "--metadata", "tree", "other.img:/srv"], 0, "", "");
    copied(at, &["-a", "other.img:/srv/links", "other.img:/again"]);
    check(at, &["diff", "-r", "--metadata", "tree/links", "other.img:/again"], 0, "", "");
    e2fsck(at, "other.img");
}

#[test]
fn a_copy_in_an_image_has_the_name_that_cp_would_give_it() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 8, &["-t", "ext4"]);
    fs::create_dir_all(at.join("dir/below")).unwrap();
    for name in ["one", "two", "dir/file"] {
        fs::write(at.join(name), name).unwrap();
    }
    copied(at, &["one", "disk.img:/"]);
    copied(at, &["one", "disk.img:/as"]);
    copied(at, &["-r", "dir", "disk.img:/new"]);
    copied(at, &["-r", "dir", "disk.img:/new"]);
    copied(at, &["-r", "dir/.", "disk.img:/new/below"]);
    copied(at, &["-rT", "dir", "disk.img:/new/dir/below"]);
    copied(at, &["one", "two", "disk.img:/new/"]);
    copied(at, &["-t", "disk.img:/new/below", "two"]);
    copied(at, &["-r", "dir", "disk.img:/made/"]);
    let list = "/as\n/lost+found\n/made\n/made/below\n/made/file\n/new\n/new/below\n/new/below/below\n\
                /new/below/file\n/new/below/two\n/new/dir\n/new/dir/below\n/new/dir/below/below\n\
                /new/dir/below/file\n/new/dir/file\n/new/file\n/new/one\n/new/two\n/one\n";
    let found = obento(at, &["find", "disk.img:/", "-mindepth", "1", "-printf", "/%P\n"]);
    let mut names: Vec<_> = std::str::from_utf8(&found.stdout).unwrap().lines().collect();
    names.sort_unstable();
    assert_eq!(names.join("\n") + "\n", list);
    check(
        at,
        &["cp", "one", "two", "disk.img:/as"],
        2,
        "",
        "obento: cannot copy several files to 'disk.img:/as': not a directory\n",
    );
    check(
        at,
        &["cp", "one", "disk.img:/gone/"],
        2,
        "",
        "obento: cannot copy to 'disk.img:/gone/': no such directory\n  \
         help: create the directory first: obento mkdir -p disk.img:/gone\n",
    );
    check(
        at,
        &["cp", "one", "disk.img:/gone/one"],
        2,
        "",
        "obento: cannot write 'disk.img:/gone/one': no such file or directory\n  \
         help: create the directory first: obento mkdir -p disk.img:/gone\n",
    );
    e2fsck(at, "disk.img");
}

#[test]
fn a_replacement_keeps_mode_and_owner_of_the_file_unless_it_has_its_own() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 8, &["-t", "ext4"]);
    fs::write(at.join("old"), "old").unwrap();
    fs::write(at.join("new"), "new").unwrap();
    fs::set_permissions(at.join("old"), fs::Permissions::from_mode(0o751)).unwrap();
    copied(at, &["-p", "old", "disk.img:/file"]);
    copied(at, &["new", "disk.img:/file"]);
    holds(at, "disk.img:/file", "new");
    assert_eq!(stat(at, "%a", "disk.img:/file"), "751");
    copied(at, &["-p", "new", "disk.img:/file"]);
    let mode = fs::metadata(at.join("new")).unwrap().mode() & 0o7777;
    assert_eq!(stat(at, "%a", "disk.img:/file"), format!("{mode:o}"));
    copied(at, &["-n", "old", "disk.img:/file"]);
    holds(at, "disk.img:/file", "new");
    fs::File::options()
        .write(true)
        .open(at.join("old"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    copied(at, &["-u", "old", "disk.img:/file"]);
    holds(at, "disk.img:/file", "new");
    copied(at, &["old", "disk.img:/file"]);
    holds(at, "disk.img:/file", "old");
    // Through a link to a file, as cp(1) does.
    symlink("file", at.join("link")).unwrap();
    copied(at, &["-P", "link", "disk.img:/link"]);
    copied(at, &["new", "disk.img:/link"]);
    assert_eq!(stat(at, "%F", "disk.img:/link"), "symbolic link");
    holds(at, "disk.img:/file", "new");
    e2fsck(at, "disk.img");
    let left = obento(at, &["ls", "-A", "disk.img:/"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "file\nlink\nlost+found\n");
}

#[test]
fn piped_bytes_become_a_file_and_are_read_back() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 16, &["-t", "ext4"]);
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).take(3_000_001).collect();
    let mut child = command(at, &["cp", "-", "disk.img:/stream"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(obento(at, &["cp", "disk.img:/stream", "-"]).stdout == bytes);
    check(
        at,
        &["cp", "-", "disk.img:/"],
        2,
        "",
        "obento: cannot copy standard input: cannot write 'disk.img:/': is a directory\n",
    );
    e2fsck(at, "disk.img");
}

#[test]
fn a_full_image_is_reported_for_each_file_and_the_files_that_fit_exist() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 4, &["-t", "ext4", "-b", "1024"]);
    fs::create_dir(at.join("tree")).unwrap();
    fs::write(at.join("tree/a-small"), "small").unwrap();
    fs::write(at.join("tree/b-huge"), vec![1; 8 << 20]).unwrap();
    fs::write(at.join("tree/c-small"), "small").unwrap();
    let reported =
        format!("obento: cannot copy 'tree/b-huge': cannot write 'disk.img:/tree/b-huge': {VOLUME_IS_FULL}");
    check(at, &["cp", "-a", "tree", "disk.img:/"], 1, "", &reported);
    holds(at, "disk.img:/tree/c-small", "small");
    e2fsck(at, "disk.img");
    let found = obento(at, &["ls", "-A", "disk.img:/tree"]);
    assert_eq!(String::from_utf8_lossy(&found.stdout), "a-small\nc-small\n");
}

#[test]
fn an_entry_that_cannot_be_copied_is_reported_and_the_rest_is_copied() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("tree/below")).unwrap();
    fs::write(at.join("tree/file"), "file").unwrap();
    image(&at.join("tree"), "disk.img", 8, &["-t", "ext4"]);
    check(at, &["cp", "-r", "tree", "tree/disk.img:/"], 1, "", {
        "obento: cannot copy 'tree/disk.img': is the image that this command changes\n"
    });
    holds(at, "tree/disk.img:/tree/file", "file");
    check(at, &["cp", "-r", "tree/disk.img:/tree", "tree/disk.img:/tree/below"], 1, "", {
        "obento: cannot copy 'tree/disk.img:/tree': a directory cannot be copied into itself\n"
    });
    check(at, &["cp", "tree/disk.img:/tree/file", "tree/disk.img:/tree"], 1, "", {
        "obento: cannot copy 'tree/disk.img:/tree/file': source and target are the same file\n"
    });
    check(at, &["cp", "tree", "nowhere", "tree/file", "tree/disk.img:/tree/below"], 1, "", {
        "obento: cannot copy 'tree': is a directory\n  help: use -r to copy directories\n\
         obento: cannot copy 'nowhere': no such file or directory\n"
    });
    holds(at, "tree/disk.img:/tree/below/file", "file");
    check(at, &["cp", "tree/file", "tree/disk.img:/tree"], 0, "", "");
    check(at, &["cp", "tree/file", "tree/disk.img:/tree/below/file/x"], 2, "", {
        "obento: cannot write 'tree/disk.img:/tree/below/file/x': 'tree/disk.img:/tree/below/file' is not a directory\n"
    });
    check(at, &["cp", "tree/file", "tree/disk.img:/tree/below/file"], 0, "", "");
    check(at, &["cp", "--reflink=always", "tree/file", "tree/disk.img:/f"], 2, "", {
        "obento: cannot copy: --reflink=always is not supported: obento cannot share blocks between files\n  \
         help: use --reflink=auto to copy the data\n"
    });
    let mut forbidden = command(at, &["cp", "tree/file", "tree/disk.img:/f"]);
    let output = forbidden.env("OBENTO_READONLY", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    e2fsck(at, "tree/disk.img");
}

#[test]
fn a_file_that_is_replaced_is_the_old_or_the_new_one_whenever_the_copy_is_killed() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 32, &["-t", "ext4"]);
    let contents = |byte: u8| vec![byte; 3 << 20];
    for byte in [b'a', b'b'] {
        fs::write(at.join(char::from(byte).to_string()), contents(byte)).unwrap();
    }
    copied(at, &["a", "disk.img:/file"]);
    for round in 0..20_u64 {
        let name = if round % 2 == 0 { "b" } else { "a" };
        let mut child = command(at, &["cp", name, "disk.img:/file"]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * round * 120));
        let _ = child.kill();
        child.wait().unwrap();
        let found = obento(at, &["cat", "disk.img:/file"]).stdout;
        assert!(found == contents(b'a') || found == contents(b'b'), "round {round}");
    }
    // A note says that a journal was replayed, if the last copy was killed after a transaction.
    assert!(obento(at, &["cp", "a", "disk.img:/file"]).status.success());
    e2fsck(at, "disk.img");
    let left = obento(at, &["ls", "-A", "disk.img:/"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "file\nlost+found\n");
}

#[test]
fn a_directory_is_not_moved_onto_itself_under_another_name_of_its_image() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 8, &["-t", "ext4"]);
    fs::hard_link(at.join("disk.img"), at.join("same.img")).unwrap();
    check(at, &["mkdir", "disk.img:/empty"], 0, "", "");
    check(at, &["mv", "-T", "disk.img:/empty", "same.img:/empty"], 1, "", {
        "obento: cannot move 'disk.img:/empty' to 'same.img:/empty': source and target are the same file\n"
    });
    let left = obento(at, &["ls", "-A", "disk.img:/"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "empty\nlost+found\n");
}

#[test]
fn a_tree_deeper_than_the_limit_of_open_files_is_moved_into_an_image() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 8, &["-t", "ext4"]);
    let below = "d/".repeat(400);
    fs::create_dir_all(at.join("deep").join(&below)).unwrap();
    fs::write(at.join("deep").join(&below).join("file"), "file").unwrap();
    let line = format!("ulimit -n 256 && exec {} mv deep disk.img:/", env!("CARGO_BIN_EXE_obento"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(at).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert!(!at.join("deep").exists());
    holds(at, &format!("disk.img:/deep/{below}file"), "file");
    e2fsck(at, "disk.img");
}

#[test]
fn a_move_across_the_border_leaves_nothing_behind_unless_something_could_not_be_copied() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", 8, &["-t", "ext4"]);
    image(at, "other.img", 4, &["-t", "ext4"]);
    fs::create_dir_all(at.join("tree/below")).unwrap();
    fs::write(at.join("tree/below/file"), "file").unwrap();
    fs::write(at.join("single"), "single").unwrap();
    check(at, &["mv", "tree", "single", "disk.img:/"], 0, "", "");
    assert!(!at.join("tree").exists() && !at.join("single").exists());
    check(at, &["mv", "disk.img:/tree", "other.img:/moved"], 0, "", "");
    holds(at, "other.img:/moved/below/file", "file");
    check(at, &["mv", "-v", "other.img:/moved", "back"], 0, "moved 'other.img:/moved' -> 'back'\n", "");
    assert_eq!(fs::read_to_string(at.join("back/below/file")).unwrap(), "file");
    for image in ["disk.img", "other.img"] {
        e2fsck(at, image);
        let left = obento(at, &["ls", "-A", &format!("{image}:/")]);
        let expected = if image == "disk.img" { "lost+found\nsingle\n" } else { "lost+found\n" };
        assert_eq!(String::from_utf8_lossy(&left.stdout), expected);
    }
    fs::write(at.join("back/huge"), vec![1; 16 << 20]).unwrap();
    let reported = format!(
        "obento: cannot copy 'back/huge': cannot write 'disk.img:/back/huge': {VOLUME_IS_FULL}\
         obento: cannot move 'back' to 'disk.img:/back': not everything was copied\n  \
         help: the source is unchanged\n"
    );
    check(at, &["mv", "back", "disk.img:/"], 1, "", &reported);
    assert!(at.join("back/below/file").exists() && at.join("back/huge").exists());
    fs::write(at.join("single"), "other").unwrap();
    check(at, &["mv", "-n", "single", "disk.img:/single"], 0, "", "");
    assert!(at.join("single").exists());
    check(at, &["mv", "single", "back"], 1, "", {
        "obento: cannot move to 'back': source and target are both on the host\n  \
         help: use mv(1); a path in an image has the form disk.img:/PATH\n"
    });
}
