//! Operands that name nothing, the wrong kind of object, or an object of the host.

use std::os::unix::fs::PermissionsExt as _;

use super::{check_in, folder_of_images, obento};

/// Checks the exit status and standard error of command lines without output.
#[track_caller]
fn refused(at: &std::path::Path, lines: &[(&str, i32, &str)]) {
    for (line, status, stderr) in lines {
        let args: Vec<&str> = line.split(' ').collect();
        check_in(at, &args, *status, "", &format!("obento: {stderr}\n"));
    }
}

#[test]
fn an_operand_that_is_not_an_image_is_reported_with_its_type() {
    let folder = folder_of_images();
    let at = folder.path();
    std::fs::create_dir(at.join("dir")).unwrap();
    const FORM: &str = "a path in an image has the form disk.img:/PATH";
    refused(
        at,
        &[
            (
                "cat none.img",
                1,
                &format!("cannot open 'none.img': no such file\n  help: check the name; {FORM}"),
            ),
            (
                "cat dir",
                1,
                &format!(
                    "cannot open 'dir': is a directory of the host, not an image\n  help: name a file in an image: \
                     {FORM}"
                ),
            ),
            (
                "grep x dir",
                2,
                &format!(
                    "cannot open 'dir': is a directory of the host, not an image\n  help: name a file in an image: \
                     {FORM}"
                ),
            ),
            ("rm none", 1, &format!("cannot change 'none': no such file\n  help: check the name; {FORM}")),
            (
                "rm notes.txt",
                1,
                "cannot change 'notes.txt': not a path inside an image\n  help: if this is an image, add the path: \
                 notes.txt:/PATH",
            ),
            (
                "rm plain.img@1",
                1,
                "cannot change 'plain.img@1': not a path inside an image\n  help: if this is an image, add the path: \
                 plain.img@1:/PATH",
            ),
            (
                "mv notes.txt new.txt",
                1,
                &format!(
                    "cannot move to 'new.txt': source and target are both on the host\n  help: use mv(1); {FORM}"
                ),
            ),
            (
                "ls @1",
                2,
                "invalid address '@1': the image before '@' is missing\n  help: write IMAGE@1, where IMAGE is the \
                 image",
            ),
            (
                "build new.img --from plain.img:/",
                2,
                "cannot build 'new.img': 'plain.img:/' is a path in an image, which cannot be a source\n  help: use \
                 an archive of the files: obento export plain.img:/ | obento build new.img --from -",
            ),
            // Also for a type that the kernel engine builds.
            (
                "build -t xfs new.img --from plain.img:/",
                2,
                "cannot build 'new.img': 'plain.img:/' is a path in an image, which cannot be a source\n  help: use \
                 an archive of the files: obento export plain.img:/ | obento build new.img --from -",
            ),
        ],
    );
    assert!(!at.join("new.img").exists() && at.join("notes.txt").exists());
}

#[test]
fn a_command_that_needs_an_image_does_not_connect_to_a_server() {
    let folder = folder_of_images();
    for (line, status) in [
        ("check fuse:x:/", 8),
        ("resize fuse:x:/ 1M", 2),
        ("tune fuse:x:/ -L a", 2),
        ("undelete fuse:x:/", 2),
        ("convert fuse:x:/ out.img", 2),
        ("part fuse:x:/", 2),
        ("inspect super fuse:x:/", 2),
        ("inspect inode fuse:x:/a", 2),
        ("prov fuse:x:/", 2),
        ("mkfs nfs://127.0.0.1/x 1M", 2),
    ] {
        let output = obento(folder.path(), &line.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("this command needs an image, not a file server"), "{line}: {text}");
        assert_eq!(output.status.code(), Some(status), "{line}");
    }
}

#[test]
fn a_message_names_its_object_once_and_its_limit() {
    let folder = folder_of_images();
    let at = folder.path();
    let (name, target) = ("n".repeat(300), "t".repeat(5000));
    let long = "a name on this volume has at most 255";
    assert!(obento(at, &["ln", "-s", "/none", "plain.img:/dangling"]).status.success());
    refused(
        at,
        &[
            (
                "mknod plain.img:/n c",
                2,
                "cannot create 'plain.img:/n': a device requires a major and a minor number\n  help: usage: obento \
                 mknod disk.img:/dev/null c 1 3",
            ),
            (
                "mknod plain.img:/n p 1 2",
                2,
                "cannot create 'plain.img:/n': a named pipe has no device number\n  help: omit MAJOR and MINOR, or use \
                 the type b or c",
            ),
            (
                "cp notes.txt fat.img:/a:b",
                1,
                "cannot create 'fat.img:/a:b': a name on this volume is UTF-8, contains no control character and none \
                 of \" * / : < > ? \\ |, and does not end with a dot or a space",
            ),
            (
                &format!("touch plain.img:/{name}"),
                1,
                &format!("cannot touch 'plain.img:/{name}': name too long\n  help: {long} bytes"),
            ),
            (
                &format!("touch fat.img:/{name}"),
                1,
                &format!("cannot touch 'fat.img:/{name}': name too long\n  help: {long} UTF-16 units"),
            ),
            (
                &format!("ln -s {target} plain.img:/long"),
                1,
                "cannot create symbolic link 'plain.img:/long': the target is too long\n  help: a target on this \
                 volume has at most 1023 bytes",
            ),
            ("resize plain.img 100E", 2, "invalid value '100E' for SIZE: the size is too large"),
            ("mkfs new.img 100E", 2, "invalid size '100E': the size is too large"),
        ],
    );
    let dangling = "the target of the symbolic link does not exist\n  help: 'obento readlink plain.img:/dangling' \
                    prints the target";
    for (line, action) in [
        ("cat plain.img:/dangling", "cannot read"),
        ("head plain.img:/dangling", "cannot read"),
        ("stat -L plain.img:/dangling", "cannot access"),
        ("ls -L plain.img:/dangling", "cannot access"),
        ("exec plain.img:/dangling -- true", "cannot create a copy of"),
        ("setfattr -n user.a plain.img:/dangling", "cannot access"),
        ("cp -L plain.img:/dangling out", "cannot copy"),
        ("cmp plain.img:/dangling plain.img:/dangling", "cannot compare"),
        ("sha256sum plain.img:/dangling", "cannot read"),
    ] {
        let output = obento(at, &line.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("{action} 'plain.img:/dangling': {dangling}\n")), "{line}: {text}");
    }
}

#[test]
fn an_immutable_file_is_reported_with_its_flags_by_every_command() {
    let folder = folder_of_images();
    let at = folder.path();
    for line in ["touch plain.img:/f", "chattr +i plain.img:/f"] {
        assert!(obento(at, &line.split(' ').collect::<Vec<_>>()).status.success(), "{line}");
    }
    for line in [
        "setfattr -n user.a -v b plain.img:/f",
        "setfattr -x user.a plain.img:/f",
        "truncate -s 1 plain.img:/f",
        "fallocate -l 4096 plain.img:/f",
        "fallocate -p -l 4096 plain.img:/f",
        "fallocate -d plain.img:/f",
        "touch plain.img:/f",
        "chown 7 plain.img:/f",
        "setfacl -m u:7:r plain.img:/f",
    ] {
        let output = obento(at, &line.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("operation not permitted\n  help: the file or its directory may be"),
            "{line}: {text}"
        );
    }
}

#[test]
fn an_editor_that_fails_is_named() {
    let folder = folder_of_images();
    for (editor, end) in [("false", "ended with status 1"), ("kill -9 $$ #", "was ended by signal 9")] {
        let mut command = super::command(folder.path(), &["edit", "plain.img:/new"]);
        let output = command.env("PATH", "/usr/bin:/bin").env("EDITOR", editor).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text, format!("obento: the editor '{editor}' {end}\n"));
        assert!(!output.status.success());
    }
}

#[test]
fn a_directory_that_the_user_cannot_see_is_not_named_in_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let to_mode = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    to_mode(0o000);
    let output = obento(folder.path(), &["man", "closed/m"]);
    to_mode(0o700);
    let text = String::from_utf8(output.stderr).unwrap();
    let expected = match rustix::process::geteuid().is_root() {
        // Root can enter every directory.
        true => "no such file",
        false => "'ls -ld closed' shows its owner and mode",
    };
    assert!(text.contains(expected), "{text}");
}
