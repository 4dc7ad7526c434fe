//! Messages for users, and protection against mistakes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento_testkit::oracle::{program, run};

use crate::support::{Disk, text};

/// Commands that change an image, each with one operand missing at its end.
const CHANGING: [&str; 19] = [
    "mkdir",
    "rmdir",
    "rm -rf",
    "mv disk.img:/a",
    "ln -s x",
    "touch",
    "chmod 700",
    "chown 1",
    "chgrp 1",
    "truncate -s 0",
    "write",
    "fallocate -l 9",
    "mkfifo",
    "setfattr -x user.a",
    "setfacl -b",
    "chattr +i",
    "sync",
    "rm -i",
    "ln -f disk.img:/a",
];

#[test]
fn a_forgotten_path_overwrites_no_file_of_the_host() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let victim = disk.folder().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    // `mv` may move files out of the image; these tests are about the whole volume, in which no file is lost.
    let may = |command: &&str| ["mv", "sync", "trim"].contains(&command.split(' ').next().unwrap());
    for command in CHANGING.into_iter().filter(|command| !may(command)) {
        for operand in ["victim", "disk.img", "-"] {
            let line = format!("{command} {operand}");
            let output = disk.obento(&line.split(' ').collect::<Vec<_>>());
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
            assert!(errors.contains("not a path inside an image"), "{line}: {errors}");
        }
    }
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    disk.check(
        "rm -rf disk.img",
        1,
        "",
        "obento: cannot change 'disk.img': not a path inside an image\n  \
         help: if this is an image, add the path: disk.img:/PATH\n",
    );
}

#[test]
fn a_missing_path_is_an_error_for_a_command_that_acts_on_the_whole_volume() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    for (command, code) in [("sync", 1), ("trim", 1), ("df", 1)] {
        let missing = "obento: cannot access 'disk.img:/none': no such file or directory\n";
        disk.check(&format!("{command} disk.img:/none"), code, "", missing);
        for path in ["disk.img", "disk.img:/", "disk.img:/lost+found"] {
            let output = disk.obento(&[command, path]);
            assert_eq!(
                (output.status.code(), text(&output.stderr)),
                (Some(0), String::new()),
                "{command} {path}"
            );
        }
    }
}

#[test]
fn a_reference_may_be_in_another_image_and_a_missing_one_is_named() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    std::fs::copy(disk.image(), disk.folder().join("other.img")).unwrap();
    disk.quietly(&[
        "touch disk.img:/g",
        "truncate -s 5 other.img:/f",
        "chmod 640 other.img:/f",
        "chown 7:8 other.img:/f",
        "touch -t 200001011200 other.img:/f",
        "truncate -r other.img:/f disk.img:/g",
        "chmod --reference=other.img:/f disk.img:/g",
        "chown --reference=other.img:/f disk.img:/g",
        "touch -r other.img:/f disk.img:/g",
    ]);
    disk.check("stat -c %a,%u,%g,%s,%Y disk.img:/g", 0, "640,7,8,5,946728000\n", "");
    let missing = "obento: cannot open 'none.img': no such file\n  help: check the name, or write 'host:' before a host path \
                   that contains ':/'\n";
    for command in ["touch -r", "truncate -r", "chmod --reference", "chown --reference", "chgrp --reference"]
    {
        disk.check(&format!("{command} none.img:/f disk.img:/g"), 1, "", missing);
    }
}

#[test]
fn a_volume_without_attributes_says_so() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkfs -t vfat -q fat.img 4M", "touch fat.img:/f"]);
    disk.check(
        "setfattr -n user.a -v 1 fat.img:/f",
        1,
        "",
        "obento: cannot set attribute 'user.a' of 'fat.img:/f': the file system does not support extended attributes\n",
    );
    disk.check(
        "setfacl -m u:7:rw fat.img:/f",
        1,
        "",
        "obento: cannot set ACL on 'fat.img:/f': the file system does not support ACLs\n",
    );
    disk.check(
        "setfattr -n a -v 1 disk.img:/lost+found",
        1,
        "",
        "obento: cannot set attribute 'a' of 'disk.img:/lost+found': operation not supported\n  \
         help: the name of an attribute starts with user., trusted., security. or system.\n",
    );
}

#[test]
fn nothing_changes_while_the_environment_forbids_it() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/a"]);
    let before = std::fs::read(disk.image()).unwrap();
    for command in CHANGING {
        let line = format!("{command} disk.img:/a");
        let output =
            disk.command(&line.split(' ').collect::<Vec<_>>()).env("OBENTO_READONLY", "1").output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
        assert!(errors.contains("OBENTO_READONLY is set"), "{line}: {errors}");
    }
    assert!(before == std::fs::read(disk.image()).unwrap(), "the image changed");
}

#[test]
fn failures_are_reported_and_the_rest_is_done() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.check(
        "mkdir disk.img:/a disk.img:/no/b disk.img:/c",
        1,
        "",
        "obento: cannot create directory 'disk.img:/no/b': no such file or directory\n  \
         help: use -p to create the parent directories too\n",
    );
    disk.check(
        "rm disk.img:/a disk.img:/none disk.img:/c",
        1,
        "",
        "obento: cannot remove 'disk.img:/a': is a directory\n  help: use -r to remove it with its contents\n\
         obento: cannot remove 'disk.img:/none': no such file or directory\n\
         obento: cannot remove 'disk.img:/c': is a directory\n  help: use -r to remove it with its contents\n",
    );
    disk.check(
        "rm -rv disk.img:/a disk.img:/none disk.img:/c",
        1,
        "removed directory 'disk.img:/a'\nremoved directory 'disk.img:/c'\n",
        "obento: cannot remove 'disk.img:/none': no such file or directory\n",
    );
}

#[test]
fn directories_go_with_those_above_them_until_one_holds_something() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir -p disk.img:/a/b/c/d", "touch disk.img:/a/file"]);
    disk.check(
        "rmdir -pv disk.img:/a/b/c/d",
        1,
        "rmdir: removing directory, 'disk.img:/a/b/c/d'\nrmdir: removing directory, 'disk.img:/a/b/c'\n\
         rmdir: removing directory, 'disk.img:/a/b'\nrmdir: removing directory, 'disk.img:/a'\n",
        "obento: cannot remove directory 'disk.img:/a': directory not empty\n  \
         help: use 'obento rm -r' to remove it with its contents\n",
    );
    disk.quietly(&["mkdir disk.img:/a/b", "rmdir -p --ignore-fail-on-non-empty disk.img:/a/b"]);
    assert_eq!(disk.read("find disk.img:/a"), "disk.img:/a\ndisk.img:/a/file\n");
}

#[test]
fn the_root_is_not_removed_by_accident() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/a"]);
    for root in ["disk.img:/", "disk.img:/a/..", "disk.img:/.", "disk.img:<2>"] {
        let output = disk.obento(&["rm", "-rf", root]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("--no-preserve-root"), "{}", text(&output.stderr));
    }
    assert_eq!(disk.read("ls disk.img:/"), "a\nlost+found\n");
    let output = disk.obento(&["rm", "-rf", "--no-preserve-root", "disk.img:/"]);
    assert_eq!(
        text(&output.stderr),
        "obento: cannot remove 'disk.img:/': the root directory itself cannot be removed\n"
    );
    assert_eq!(disk.read("ls -a disk.img:/"), ".\n..\n");
}

#[test]
fn options_are_recognised_after_the_operands() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir -m 755 disk.img:/a", "touch disk.img:/a/file", "chmod 644 disk.img:/a/file"]);
    let modes = |expected: &str| {
        assert_eq!(disk.read("find disk.img:/ -not -name lost+found -printf %p=%m,"), expected);
    };
    let before = "disk.img:/=755,disk.img:/a=755,disk.img:/a/file=644,";
    for line in [
        "chmod -R 700 disk.img:/ --preserve-root",
        "chmod -R 700 disk.img:/a/.. --no-preserve-root --preserve-root",
        "chown -R 7 disk.img:/ --preserve-root",
        "chgrp -R 7 disk.img:/ --preserve-root",
        "rm -r disk.img:/ --preserve-root",
    ] {
        let output = disk.obento(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(text(&output.stderr).contains("is the root directory"), "{line}: {}", text(&output.stderr));
        modes(before);
    }
    disk.quietly(&["chmod 700 disk.img:/ -R --preserve-root --no-preserve-root"]);
    modes("disk.img:/=700,disk.img:/a=700,disk.img:/a/file=700,");
    disk.quietly(&["chmod -w -x disk.img:/a/file", "chattr +d disk.img:/a/file -R"]);
    modes("disk.img:/=700,disk.img:/a=700,disk.img:/a/file=400,");
    assert!(disk.read("lsattr disk.img:/a/file").split(' ').next().unwrap().contains('d'));
    disk.quietly(&["chattr -d disk.img:/a/file"]);
}

#[test]
fn a_word_that_starts_with_two_dashes_is_a_file_only_after_two_dashes() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["touch disk.img:/a"]);
    for command in CHANGING {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.extend(["disk.img:/a", "--frobnicate"]);
        let output = disk.obento(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains("unknown option '--frobnicate'"), "{args:?}");
    }
    let output = disk.obento(&["chmod", "600", "--", "disk.img:/a", "--frobnicate"]);
    assert!(text(&output.stderr).contains("cannot change '--frobnicate': no such file"));
    assert_eq!((output.status.code(), disk.read("stat -c %a disk.img:/a")), (Some(1), "600\n".into()));
}

#[test]
fn a_file_that_is_not_a_list_of_attributes_restores_nothing_and_is_refused() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["touch disk.img:/a"]);
    for (wrong, line) in [("junk\n", 1), ("\nuser.a=\"1\"\n# file: a\n", 2), ("# a comment\n", 1)] {
        let output = disk.obento_with(&["setfattr", "--restore=-", "disk.img:/"], wrong.as_bytes());
        assert_eq!(
            text(&output.stderr),
            format!(
                "obento: cannot restore attributes from '-': line {line} is not preceded by a line '# file: PATH'\n  \
                 help: name a file that 'obento getfattr -d' or getfattr(1) wrote\n"
            )
        );
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    for right in ["", "\n", "# made by a program\n# file: a\nuser.a=\"1\"\n"] {
        let output = disk.obento_with(&["setfattr", "--restore=-", "disk.img:/"], right.as_bytes());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{right}");
    }
    assert_eq!(disk.read("getfattr -n user.a --only-values disk.img:/a"), "1");
}

#[test]
fn patterns_match_existing_files_and_never_new_ones() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&[
        "touch disk.img:/a.c disk.img:/b.c disk.img:/b.h disk.img:/*.c",
        "mkdir disk.img:/x*",
        "chmod 640 disk.img:/[ab].c",
        "mv disk.img:/b.* disk.img:/x*",
    ]);
    assert_eq!(disk.read("find disk.img:/ -name a.c -perm 640"), "disk.img:/a.c\n");
    assert_eq!(disk.read("find disk.img:/x* -perm 640 -name b.c"), "disk.img:/x*/b.c\n");
    disk.check("rm -v disk.img:/*.c", 0, "removed 'disk.img:/*.c'\n", "");
    disk.check("rm -v disk.img:/*.c", 0, "removed 'disk.img:/a.c'\n", "");
    disk.check(
        "rm -v disk.img:/*.c",
        1,
        "",
        "obento: cannot remove 'disk.img:/*.c': no file has this name or matches it as a pattern\n",
    );
    disk.quietly(&["rm -f disk.img:/*.c"]);
}

#[test]
fn names_that_would_speak_to_a_terminal_or_a_shell_are_only_names() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let long = [b'x'; 255];
    let names: [&[u8]; 7] = [
        b"new\nline",
        b"\x1b[2J",
        b"-rf",
        b"--help",
        b"\xff\xfe",
        &long,
        " \u{202e}'$(touch x)\"".as_bytes(),
    ];
    for name in names {
        let at = |prefix: &str| OsString::from(OsStr::from_bytes(&[prefix.as_bytes(), name].concat()));
        let (path, other) = (at("disk.img:/"), at("disk.img:/dir/"));
        let run = |args: &[&OsStr]| {
            let output = disk.obento(args);
            let said = text(&output.stdout);
            assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
            assert!(
                !said.contains(['\x1b', '\u{202e}', '\u{fffd}']) && said.lines().count() <= 1,
                "{said:?}"
            );
        };
        let word = OsStr::new;
        run(&[word("mkdir"), word("-pv"), word("disk.img:/dir")]);
        run(&[word("touch"), &path]);
        run(&[word("chmod"), word("-v"), word("600"), &path]);
        run(&[word("chown"), word("-v"), word("1"), &path]);
        run(&[word("mv"), word("-v"), &path, word("disk.img:/dir")]);
        run(&[word("ln"), word("-v"), &other, &path]);
        run(&[word("truncate"), word("-s"), word("9"), &path]);
        run(&[word("rm"), word("-v"), &path]);
        run(&[word("rm"), word("-v"), &other]);
        run(&[word("mkdir"), word("-v"), &path]);
        run(&[word("rmdir"), word("-v"), &path]);
    }
    let too_long = format!("disk.img:/{}", "y".repeat(256));
    let output = disk.obento(&["mkdir", &too_long]);
    assert!(
        text(&output.stderr)
            .ends_with("': name too long\n  help: a name on this volume has at most 255 bytes\n"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn standard_input_becomes_a_file_or_its_end() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    let big: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert!(disk.obento_with(&["write", "disk.img:/f"], &big).status.success());
    assert!(disk.obento(&["cat", "disk.img:/f"]).stdout == big);
    assert!(disk.obento_with(&["write", "-a", "disk.img:/f"], b"end").status.success());
    assert!(disk.obento(&["cat", "disk.img:/f"]).stdout.ends_with(b"end"));
    assert!(disk.obento_with(&["write", "disk.img:/f"], b"short").status.success());
    assert_eq!(disk.read("cat disk.img:/f"), "short");
    assert!(disk.obento_with(&["write", "disk.img:/f"], b"").status.success());
    assert_eq!(disk.read("stat -c %s disk.img:/f"), "0\n");
    disk.check("write disk.img:/", 1, "", "obento: cannot write to 'disk.img:/': is a directory\n");
    disk.quietly(&["ln -s made disk.img:/link"]);
    assert!(disk.obento_with(&["write", "disk.img:/link"], b"through").status.success());
    assert_eq!(disk.read("cat disk.img:/made"), "through");
}

#[test]
fn a_full_volume_returns_no_space_and_stays_consistent() {
    let Some(disk) = Disk::new("1M", &["-N", "32", "-O", "^has_journal"]) else { return };
    let output = disk.obento_with(&["write", "disk.img:/f"], &vec![7; 4 << 20]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("cannot write to 'disk.img:/f': no space left (after "), "{errors}");
    disk.fsck();
    let paths: Vec<_> = (0..40).map(|n| format!("disk.img:/{n}")).collect();
    let output = disk.obento(&[vec!["touch".to_owned()], paths].concat());
    let inodes =
        "no inode is free: all 32 are in use\n  help: remove files, or create a volume with more inodes";
    assert!(text(&output.stderr).contains(inodes), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    disk.fsck();
    let output = disk.obento(&["mkdir", "disk.img:/d"]);
    assert!(text(&output.stderr).contains("no inode is free"), "{}", text(&output.stderr));
    disk.quietly(&["rm -rf disk.img:/*", "mkdir disk.img:/d"]);
}

/// Commands that create one more entry in `disk.img`, one of each kind.
fn ways_in(disk: &Disk) -> Vec<(&'static str, Vec<u8>)> {
    std::fs::write(disk.folder().join("file"), "text").unwrap();
    let tar = run(program("tar").current_dir(disk.folder()).args(["-cf", "-", "file"])).unwrap().stdout;
    let lines =
        ["touch disk.img:/more", "mkdir disk.img:/more", "write disk.img:/more", "cp file disk.img:/more"];
    let lines = lines.into_iter().chain(["cp - disk.img:/more", "cp -r . disk.img:/more"]);
    let lines = lines.chain(["truncate -s 1 disk.img:/more", "fallocate -l 1 disk.img:/more"]);
    let mut ways: Vec<_> = lines.map(|line| (line, b"text".to_vec())).collect();
    ways.push(("import disk.img:/", tar));
    ways
}

#[test]
fn the_exhausted_resource_is_named_if_blocks_are_free() {
    let Some(disk) = Disk::new("4M", &["-N", "16"]) else { return };
    let fill = |limit: usize| {
        let paths: Vec<_> = (0..limit).map(|n| format!("disk.img:/{n}")).collect();
        disk.obento(&[vec!["touch".to_owned()], paths].concat());
    };
    let expect = |kind: &str, words: &str, help: &str| {
        for (line, input) in ways_in(&disk) {
            let output = disk.obento_with(&line.split(' ').collect::<Vec<_>>(), &input);
            let said = text(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{kind}: {line}: {said}");
            assert!(said.contains(words) && said.contains(help), "{kind}: {line}: {said}");
        }
    };
    fill(32);
    expect("ext4", "no inode is free: all 16 are in use", "obento mkfs -N COUNT");
    for line in ["ln -s file disk.img:/more", "mkfifo disk.img:/more"] {
        let said = text(&disk.obento(&line.split(' ').collect::<Vec<_>>()).stderr);
        assert!(said.contains("no inode is free: all 16 are in use\n  help: remove files"), "{line}: {said}");
    }
    let value = "a".repeat(5000);
    let said = text(&disk.obento(&["setfattr", "-n", "user.a", "-v", &value, "disk.img:/0"]).stderr);
    assert!(
        said.contains("the space for the attributes of the file is full\n  help: use a smaller value"),
        "{said}"
    );
    for (kind, words, help) in [
        ("mkfs -q -t xv6 -N 32 -F disk.img 4M", "no inode is free: all ", "obento mkfs -N COUNT"),
        (
            "mkfs -q -t vfat -E fat=12,root_entries=32 -F disk.img 2M",
            "the directory is full",
            "root_entries=",
        ),
        (
            "mkfs -q -t vfat -E fat=16,root_entries=32 -F disk.img 32M",
            "the directory is full",
            "root_entries=",
        ),
    ] {
        std::fs::remove_file(disk.image()).unwrap();
        disk.quietly(&[kind]);
        fill(600);
        expect(kind, words, help);
    }
    // The last check requires ext4.
    std::fs::remove_file(disk.image()).unwrap();
    disk.quietly(&["mkfs -q -t ext4 disk.img 4M"]);
}

#[test]
fn a_person_is_asked_where_a_person_wants_to_be() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/d", "touch disk.img:/d/a disk.img:/d/b disk.img:/c"]);
    let output = disk.obento_with(&["rm", "-i", "disk.img:/c"], b"n\n");
    assert_eq!(text(&output.stderr), "obento: remove regular file 'disk.img:/c'? ");
    assert_eq!(output.status.code(), Some(0));
    disk.obento_with(&["rm", "-ri", "disk.img:/d"], b"y\ny\nn\ny\n");
    assert_eq!(
        disk.read("find disk.img:/d -type f").lines().count(),
        1,
        "one was kept, and with it the directory"
    );
    disk.obento_with(&["rm", "-rI", "disk.img:/d"], b"no\n");
    assert!(disk.read("ls disk.img:/").contains('d'));
    disk.obento_with(&["rm", "-rI", "disk.img:/d"], b"yes\n");
    assert_eq!(disk.read("ls disk.img:/"), "c\nlost+found\n");
    disk.quietly(&["touch disk.img:/e"]);
    disk.obento_with(&["mv", "-i", "disk.img:/e", "disk.img:/c"], b"n\n");
    assert_eq!(disk.read("ls disk.img:/"), "c\ne\nlost+found\n");
    disk.obento_with(&["mv", "-i", "disk.img:/e", "disk.img:/c"], b"y\n");
    assert_eq!(disk.read("ls disk.img:/"), "c\nlost+found\n");
}

#[test]
fn owners_are_called_as_the_image_calls_them() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/etc", "touch disk.img:/f"]);
    disk.obento_with(
        &["write", "disk.img:/etc/passwd"],
        b"root:x:0:0::/:/bin/sh\nann:x:1000:100::/:/bin/sh\n",
    );
    disk.obento_with(&["write", "disk.img:/etc/group"], b"root:x:0:\nusers:x:100:\nstaff:x:50:ann\n");
    disk.check(
        "chown -v ann:staff disk.img:/f",
        0,
        "changed ownership of 'disk.img:/f' from root:root to ann:staff\n",
        "",
    );
    disk.check(
        "chown -v ann: disk.img:/f",
        0,
        "changed ownership of 'disk.img:/f' from ann:staff to ann:users\n",
        "",
    );
    disk.check("chgrp -v users disk.img:/f", 0, "group of 'disk.img:/f' retained as users\n", "");
    disk.check(
        "chown bob disk.img:/f",
        1,
        "",
        "obento: unknown user 'bob': not in /etc/passwd of the image\n  help: use a number from 0 to 4294967294\n",
    );
}

#[test]
fn dumps_of_attributes_and_lists_bring_them_back() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/d", "touch disk.img:/d/a disk.img:/d/b", "chmod 2750 disk.img:/d"]);
    disk.obento(&["touch", "disk.img:/d/odd\nname"]);
    disk.quietly(&[
        "setfattr -n user.one -v 1 disk.img:/d/a",
        "setfattr -n user.two -v 0x00ff0a22 disk.img:/d/a",
        "setfacl -m u:7:rwx,d:g:8:r disk.img:/d",
        "setfacl -m u:9:r disk.img:/d/b",
        "chown 5:6 disk.img:/d/b",
    ]);
    disk.obento(&["setfattr", "-n", "user.odd", "-v", "\"a\\012b\"", "disk.img:/d/odd\nname"]);
    let (attributes, lists) = (disk.read("getfattr -dR disk.img:/d"), disk.read("getfacl -R disk.img:/d"));
    std::fs::write(disk.folder().join("attributes"), &attributes).unwrap();
    std::fs::write(disk.folder().join("lists"), &lists).unwrap();
    disk.quietly(&["setfacl -Rb disk.img:/d", "chown -R 0:0 disk.img:/d", "chmod -R 777 disk.img:/d"]);
    disk.quietly(&["setfattr -x user.one disk.img:/d/a", "setfattr -n user.two disk.img:/d/a"]);
    assert_ne!(disk.read("getfacl -R disk.img:/d"), lists);
    disk.quietly(&["setfattr --restore=attributes disk.img:/", "setfacl --restore=lists disk.img:/"]);
    assert_eq!(disk.read("getfattr -dR disk.img:/d"), attributes);
    assert_eq!(disk.read("getfacl -R disk.img:/d"), lists);
}

#[test]
fn space_moves_within_a_file_by_whole_blocks() {
    let Some(disk) = Disk::new("8M", &["-b", "4096"]) else { return };
    let block = |letter: u8| vec![letter; 4096];
    let data = [block(b'a'), block(b'b'), block(b'c')].concat();
    assert!(disk.obento_with(&["write", "disk.img:/f"], &data).status.success());
    disk.check("fallocate -v -c -o 4096 -l 4096 disk.img:/f", 0, "disk.img:/f: 4096 bytes removed\n", "");
    assert!(disk.obento(&["cat", "disk.img:/f"]).stdout == [block(b'a'), block(b'c')].concat());
    disk.quietly(&["fallocate -i -o 4096 -l 4096 disk.img:/f"]);
    assert!(disk.obento(&["cat", "disk.img:/f"]).stdout == [block(b'a'), block(0), block(b'c')].concat());
    disk.check(
        "fallocate -c -o 1 -l 4096 disk.img:/f",
        1,
        "",
        "obento: cannot change the space of 'disk.img:/f': invalid argument\n  \
         help: the range must consist of whole blocks and end before the end of the file\n",
    );
    disk.quietly(&["fallocate -z -l 12288 disk.img:/f"]);
    disk.check("fallocate -dv disk.img:/f", 0, "disk.img:/f: 0 bytes converted to holes\n", "");
}

#[test]
fn a_journal_that_was_left_is_replayed_by_sync() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["sync disk.img:/", "sync disk.img"]);
}

#[test]
fn an_owner_and_a_group_may_have_a_dot_between_them_and_from_holds_for_groups_too() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.quietly(&["touch disk.img:/f", "chown 5.6 disk.img:/f", "chgrp --from=:7 8 disk.img:/f"]);
    assert_eq!(disk.read("stat -c %u:%g disk.img:/f"), "5:6\n");
    disk.quietly(&["chgrp --from=5 8 disk.img:/f"]);
    assert_eq!(disk.read("stat -c %u:%g disk.img:/f"), "5:8\n");
}
