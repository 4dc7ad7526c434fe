//! Metadata that a format cannot store: it is omitted or changed, counted, and reported once.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use obento_testkit::oracle::{Oracle, call};
use obento_testkit::require;

/// Exit code, standard output and standard error.
fn obento(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder).args(line.split(' ')).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn says(folder: &Path, line: &str, code: i32, stderr: &str) {
    let (status, out, err) = obento(folder, line);
    assert_eq!((status, err.as_str()), (Some(code), stderr), "{line}: {out}");
}

/// A tree with three examples of everything that FAT lacks, and files that it can store.
fn tree(folder: &Path) {
    let tree = folder.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents").unwrap();
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    for n in 0..3 {
        symlink("file", tree.join(format!("link{n}"))).unwrap();
        UnixListener::bind(tree.join(format!("socket{n}"))).unwrap();
        fs::hard_link(tree.join("file"), tree.join(format!("second{n}"))).unwrap();
        fs::write(tree.join(format!("what:{n}")), "").unwrap();
    }
    fs::create_dir(tree.join("why?")).unwrap();
    fs::write(tree.join("why?/inside"), "").unwrap();
}

fn judge(folder: &Path, image: &str) {
    if require(&[Oracle::Program("fsck.fat")]) {
        call("fsck.fat", ["-n".as_ref(), folder.join(image).as_os_str()]).unwrap();
    }
}

#[test]
fn cp_counts_the_properties_that_fat_cannot_store_and_names_one_file_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tree(folder);
    says(folder, "mkfs -q -t vfat fat.img 4M", 0, "");
    let (status, _, err) = obento(folder, "cp -r --preserve=links tree fat.img:/");
    let lines: Vec<&str> = err.lines().collect();
    let beginnings = [
        "obento: fat.img:/: note: 3 hard links copied as separate files (the file system does not support hard \
         links), such as 'fat.img:/tree/",
        "obento: cannot create 3 FIFOs and sockets, such as 'fat.img:/tree/socket",
        "  help: use -v to list them",
        "obento: cannot create 3 symbolic links, such as 'fat.img:/tree/link",
        "  help: use -L to copy the files instead, or -v to list the links",
        "obento: cannot create 4 entries with unsupported names, such as 'fat.img:/tree/wh",
        "  help: use -v to list them",
    ];
    assert_eq!(lines.len(), beginnings.len(), "{err}");
    for (line, beginning) in lines.iter().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line}");
    }
    let why = "', in 'fat.img:/': the file system does not support this type";
    assert!(lines[1].ends_with(why) && lines[3].ends_with(why), "{err}");
    assert_eq!(status, Some(1), "entries are missing");
    let (_, listed, _) = obento(folder, "ls fat.img:/tree");
    assert_eq!(listed, "file\nsecond0\nsecond1\nsecond2\n");
    assert_eq!(obento(folder, "cat fat.img:/tree/second2").1, "contents");
    judge(folder, "fat.img");
}

#[test]
fn cp_with_v_lists_the_entries_that_the_target_lacks_and_shows_no_copy_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tree(folder);
    says(folder, "mkfs -q -t vfat fat.img 4M", 0, "");
    let (status, out, err) = obento(folder, "cp -av tree fat.img:/");
    assert_eq!(status, Some(1), "{err}");
    let copied = |name: &str| out.lines().any(|line| line.starts_with(&format!("'tree/{name}' -> ")));
    assert!(copied("file") && copied("second0"), "{out}");
    for name in ["link0", "link1", "link2", "socket0", "socket1", "socket2"] {
        assert!(!copied(name), "{name}: {out}");
        assert!(err.contains(&format!("obento: tree/{name}: note: not copied\n")), "{name}: {err}");
    }
    for name in ["what:0", "what:1", "what:2", "why?"] {
        assert!(!copied(name), "{name}: {out}");
        assert!(err.contains(&format!("cannot copy 'tree/{name}'")), "{name}: {err}");
    }
    assert!(!err.contains("use -v"), "{err}");
}

#[test]
fn import_makes_files_of_hard_links_and_counts_them_once() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tree(folder);
    for n in 0..3 {
        fs::remove_file(folder.join(format!("tree/socket{n}"))).unwrap();
    }
    let (archive, source) = (folder.join("tree.tar"), folder.join("tree"));
    call("tar", ["-cf".as_ref(), archive.as_os_str(), "-C".as_ref(), source.as_os_str(), ".".as_ref()])
        .unwrap();
    for kind in ["vfat", "exfat"] {
        says(folder, &format!("mkfs -q -t {kind} {kind}.img 8M"), 0, "");
        let (_, _, err) = obento(folder, &format!("import {kind}.img:/ tree.tar"));
        let links: Vec<&str> = err.lines().filter(|line| line.contains("not support hard links")).collect();
        let beginning = format!("obento: {kind}.img:/: note: 3 hard links copied as separate files");
        assert!(links.len() == 1 && links[0].starts_with(&beginning), "{err}");
        assert_eq!(obento(folder, &format!("ls {kind}.img:/")).1, "file\nsecond0\nsecond1\nsecond2\n");
        for name in ["file", "second0", "second1", "second2"] {
            assert_eq!(obento(folder, &format!("cat {kind}.img:/{name}")).1, "contents", "{name}");
        }
    }
    judge(folder, "vfat.img");
}

#[test]
fn cp_counts_owners_and_modes_that_it_was_to_keep() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(folder.join("tree").join(name), "").unwrap();
        fs::set_permissions(folder.join("tree").join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(folder.join("tree"), fs::Permissions::from_mode(0o755)).unwrap();
    says(folder, "mkfs -q -t exfat exfat.img 4M", 0, "");
    let modes = "obento: exfat.img:/: note: 2 files whose permissions are not preserved (the file system does not store permissions), such as 'exfat.img:/tree/a'\n";
    let owners = match fs::metadata(folder).unwrap().uid() {
        0 => String::new(),
        _ => "obento: exfat.img:/: note: 3 owners not preserved (operation not permitted), such as 'exfat.img:/tree/a'\n".into(),
    };
    says(folder, "cp -a tree exfat.img:/", 0, &(owners + modes));
    says(folder, "cp -r tree/a exfat.img:/", 0, "");
}

#[test]
fn mv_keeps_a_source_that_cannot_be_moved_completely() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tree(folder);
    says(folder, "mkfs -q -t vfat fat.img 4M", 0, "");
    let (status, _, err) = obento(folder, "mv tree fat.img:/tree");
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("not everything was copied"), "{err}");
    assert!(folder.join("tree/link0").is_symlink() && folder.join("tree/file").is_file());
}

#[test]
fn build_refuses_by_reasons_and_makes_files_of_hard_links() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tree(folder);
    let (status, _, err) = obento(folder, "build -q -t vfat fat.img --from tree");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 4, "{err}");
    assert!(lines[0].starts_with("obento: cannot store 6 files, such as '/"), "{err}");
    assert!(lines[0].ends_with(": the format does not support files of this type"), "{err}");
    assert!(lines[1].starts_with("obento: cannot store 4 files, such as '/wh"), "{err}");
    assert!(lines[1].ends_with(": the name has characters that cannot be stored"), "{err}");
    assert!(lines[2].contains("10 files cannot be stored; nothing was written"), "{err}");
    assert_eq!(status, Some(2));
    assert!(!folder.join("fat.img").exists());
    let excluded = "--exclude link* --exclude socket* --exclude what* --exclude why*";
    let (status, out, err) = obento(folder, &format!("build -t vfat fat.img --from tree {excluded}"));
    assert_eq!(status, Some(0), "{err}");
    let reported = out + &err;
    assert!(reported.contains("3") && reported.contains("hard links"), "{reported}");
    for name in ["file", "second0", "second1", "second2"] {
        assert_eq!(obento(folder, &format!("cat fat.img:/{name}")).1, "contents");
    }
    judge(folder, "fat.img");
}

#[test]
fn names_that_end_with_dots_and_spaces_are_counted_and_one_of_them_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("tree/dots..")).unwrap();
    for name in ["kept.txt", "dots../inside", "dot.", "...", "dot. .", "space ", "spaces  "] {
        fs::write(folder.join("tree").join(name), name).unwrap();
    }
    for kind in ["vfat", "exfat"] {
        says(folder, &format!("mkfs -q -t {kind} {kind}.img 4M"), 0, "");
        let why = "a name on this volume is UTF-8, contains no control character and none of \" * / : < > ? \\ |, and does not end with a dot or a space";
        let what = format!("6 entries with unsupported names, such as '{kind}.img:/tree/...'");
        let copied =
            format!("obento: cannot create {what}, in '{kind}.img:/': {why}\n  help: use -v to list them\n");
        says(folder, &format!("cp -r tree {kind}.img:/"), 1, &copied);
        assert_eq!(obento(folder, &format!("ls -A {kind}.img:/tree")).1, "kept.txt\n");
        let refused = "obento: cannot store 6 files, such as '/...': the name ends with a dot or a space, \
            which the format does not allow\n\
            obento: cannot build 'built.img': 6 files cannot be stored; nothing was written\n  \
            help: rename or remove these files, or omit them with --exclude\n";
        says(folder, &format!("build -q -t {kind} built.img --from tree"), 2, refused);
        assert!(!folder.join("built.img").exists());
    }
    judge(folder, "vfat.img");
}

#[test]
fn free_clusters_go_back_to_the_host_by_the_name_of_the_image_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data: Vec<u8> = (0..6_000_000_u32).map(|at| (at % 250 + 1) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    for (fs_type, judge) in [("vfat", "fsck.fat"), ("exfat", "fsck.exfat")] {
        let image = format!("{fs_type}.img");
        says(folder, &format!("mkfs -q -t {fs_type} {image} 24M"), 0, "");
        for name in ["kept", "gone"] {
            says(folder, &format!("cp data {image}:/{name}"), 0, "");
        }
        says(folder, &format!("rm {image}:/gone"), 0, "");
        let allocated = || fs::metadata(folder.join(&image)).unwrap().blocks() * 512;
        let before = allocated();
        let (status, out, err) = obento(folder, &format!("trim -v {image}"));
        assert_eq!((status, err.as_str()), (Some(0), ""));
        assert!(out.ends_with(" bytes) trimmed\n"), "{out}");
        assert!(allocated() + 5_500_000 < before, "{} of {before} bytes are left", allocated());
        if require(&[Oracle::Program(judge)]) {
            call(judge, ["-n".as_ref(), folder.join(&image).as_os_str()]).unwrap();
        }
        says(folder, &format!("cp {image}:/kept back"), 0, "");
        assert!(fs::read(folder.join("back")).unwrap() == data);
        // The discarded space can be used again.
        says(folder, &format!("cp data {image}:/again"), 0, "");
        let (_, out, _) = obento(folder, &format!("trim -v -m 1G {image}"));
        assert!(out.contains("0 bytes"), "{out}");
        says(folder, &format!("sync {image}"), 0, "");
    }
}

#[test]
fn options_of_mount_say_how_every_command_shows_a_fat() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a"), "").unwrap();
    for fs_type in ["vfat", "exfat"] {
        let image = format!("{fs_type}.img");
        says(folder, &format!("mkfs -q -t {fs_type} {image} 4M"), 0, "");
        says(folder, &format!("cp a {image}:/"), 0, "");
        let stat = |options: &str| obento(folder, &format!("{options} stat -c %a-%u-%g {image}:/a"));
        let (status, out, err) = stat("--mount-options uid=1000,gid=100,fmask=0137,iocharset=utf8");
        assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "640-1000-100\n", ""));
        assert_eq!(stat("-o umask=077,uid=3").1, "700-3-0\n");
        says(folder, &format!("cp -p --mount-options uid=12345,umask=027 {image}:/a out"), 0, "");
        assert_eq!(fs::metadata(folder.join("out")).unwrap().mode() & 0o777, 0o750);
        // Options that only a mount uses, and unknown options.
        for (words, why) in [("ro", "without a mount"), ("unask=022", "did you mean 'umask'?")] {
            let (status, _, err) = stat(&format!("-o {words}"));
            assert!(status == Some(2) && err.contains(why), "{err}");
        }
    }
    says(
        folder,
        "-o keep_last_dots ls vfat.img",
        2,
        "obento: cannot open 'vfat.img': the option keep_last_dots is not available for vfat\n  \
         help: omit keep_last_dots\n",
    );
    says(folder, "mkfs -q -t ext2 ext2.img 4M", 0, "");
    let (status, _, err) = obento(folder, "ls --mount-options uid=7 ext2.img");
    assert!(status == Some(0) && err.contains("has no effect: the file system stores owners"), "{err}");
}

#[test]
fn files_that_a_format_cannot_store_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let names = "a name on this volume is UTF-8, contains no control character and none of \" * / : < > ? \\ |, and does not end with a dot or a space";
    let dots = "a name on this volume does not end with a dot; --mount-options keep_last_dots allows it";
    for (kind, last_dot) in [("vfat", names), ("exfat", dots)] {
        says(folder, &format!("mkfs -q -t {kind} {kind}.img 4M"), 0, "");
        says(folder, &format!("mkdir {kind}.img:/d"), 0, "");
        says(folder, &format!("touch {kind}.img:/f"), 0, "");
        for (line, what, why, help) in [
            ("mkdir @/a:b", "create directory '@/a:b'", "invalid name", names),
            ("touch @/dot.", "touch '@/dot.'", "invalid name", last_dot),
            ("mkdir @/dot.", "create directory '@/dot.'", "invalid name", last_dot),
            ("mv @/d @/dot.", "move '@/d' to '@/dot.'", "invalid name", last_dot),
            ("mv @/f @/what?", "move '@/f' to '@/what?'", "invalid name", names),
            (
                "ln -s f @/l",
                "create symbolic link '@/l'",
                "the file system has no symbolic links",
                "use 'obento cp' to create a copy",
            ),
            (
                "ln @/f @/l",
                "create hard link '@/l' to '@/f'",
                "the file system has no hard links",
                "use 'obento cp' to create a copy",
            ),
            ("mkfifo @/p", "create '@/p'", "the file system supports only files and directories", ""),
            (
                "chown 7 @/f",
                "change the owner of '@/f'",
                "the file system stores no owners",
                "use --mount-options uid=,gid= to set the shown owner",
            ),
        ] {
            let at = |text: &str| text.replace('@', &format!("{kind}.img:"));
            let help = if help.is_empty() { String::new() } else { format!("  help: {help}\n") };
            let expected = format!("obento: cannot {}: {why}\n{help}", at(what));
            says(folder, &at(line), 1, &expected);
        }
    }
    says(folder, "--mount-options keep_last_dots mkdir exfat.img:/dot.", 0, "");
}

#[test]
fn chmod_reports_the_permissions_that_fat_cannot_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for kind in ["vfat", "exfat"] {
        let image = format!("{kind}.img");
        says(folder, &format!("mkfs -q -t {kind} {image} 8M"), 0, "");
        says(folder, &format!("touch {image}:/file"), 0, "");
        // A file is read-only or not.
        for mode in ["555", "755", "a-w", "u+w"] {
            says(folder, &format!("chmod {mode} {image}:/file"), 0, "");
        }
        let refused = |path: &str| {
            format!(
                "obento: cannot change the mode of '{image}:/{path}': the file system cannot store these \
                 permissions; the mode is 0755\n  help: FAT and exFAT store only whether a file is read-only; \
                 use --mount-options fmask=,dmask=,umask= to set the shown permissions\n"
            )
        };
        for mode in ["600", "4755", "u-x"] {
            says(folder, &format!("chmod {mode} {image}:/file"), 1, &refused("file"));
        }
        says(folder, &format!("chmod -f 600 {image}:/file"), 1, "");
        says(folder, &format!("chmod -R u+rwX {image}:/"), 0, "");
        says(folder, &format!("mkdir -m 755 {image}:/a"), 0, "");
        says(folder, &format!("mkdir -m 700 {image}:/private"), 1, &refused("private"));
        assert_eq!(obento(folder, &format!("ls {image}:/")).1, "a\nfile\nprivate\n");
    }
}
