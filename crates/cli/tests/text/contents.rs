//! `file`.

use std::fs;

use obento_testkit::oracle::{Oracle, call, require};

use crate::support::Twins;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn file_names_types_of_inodes_and_of_contents() {
    let twins = Twins::with(&[], "24M", |tree| {
        fs::create_dir(tree.join("dir")).unwrap();
        fs::write(tree.join("dir/empty"), "").unwrap();
        fs::write(tree.join("script"), "#!/bin/sh\nls\n").unwrap();
        fs::write(tree.join("png"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
        fs::copy("/bin/ls", tree.join("ls")).unwrap();
        std::os::unix::fs::symlink("script", tree.join("link")).unwrap();
    });
    let Some(twins) = twins else { return };
    let run = |args: &[&str]| text(&twins.ours(args, b"").stdout);
    assert_eq!(
        run(&["file", "@/dir", "@/dir/empty", "@/script", "@/png", "@/link"]),
        "disk.img:/dir: directory\ndisk.img:/dir/empty: empty\ndisk.img:/script: script for /bin/sh, ASCII text\n\
         disk.img:/png: image/png (png)\ndisk.img:/link: symbolic link to script\n"
    );
    assert!(run(&["file", "-b", "@/ls"]).starts_with("ELF 64-bit LSB"));
    assert_eq!(run(&["file", "-bi", "@/png", "@/dir"]), "image/png\ninode/directory\n");
    assert_eq!(run(&["file", "-bL", "@/link"]), "script for /bin/sh, ASCII text\n");
    let all = run(&["file", "-r", "disk.img"]);
    assert!(
        all.starts_with("disk.img:/: directory\n") && all.contains("disk.img:/dir/empty: empty\n"),
        "{all}"
    );
}

#[test]
fn media_types_are_those_of_file() {
    const NAMES: [&str; 10] = ["dir", "empty", "link", "png", "jpg", "pdf", "gz", "rnd", "text", "umlaut"];
    if !require(&[Oracle::Program("file")]) {
        return;
    }
    let mut paths = Vec::new();
    let twins = Twins::with(&[], "24M", |tree| {
        fs::create_dir(tree.join("dir")).unwrap();
        std::os::unix::fs::symlink("text", tree.join("link")).unwrap();
        for (name, bytes) in [
            ("empty", &b""[..]),
            ("png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0"),
            ("jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
            ("pdf", b"%PDF-1.4\n"),
            ("gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0"),
            ("rnd", &[0xf1, 0x3b, 0, 0x9c, 0x07, 0xd2, 0, 0x81].repeat(9)),
            ("text", b"some words\n"),
            ("umlaut", "Gr\u{fc}n\n".as_bytes()),
        ] {
            fs::write(tree.join(name), bytes).unwrap();
        }
        paths.extend(NAMES.map(|name| tree.join(name)));
    });
    let Some(twins) = twins else { return };
    for (name, path) in NAMES.into_iter().zip(paths) {
        let ours = text(&twins.ours(&["file", "-bi", &format!("@/{name}")], b"").stdout);
        let theirs =
            text(&call("file", ["-b".as_ref(), "--mime-type".as_ref(), path.as_os_str()]).unwrap().stdout);
        assert_eq!(ours.split([';', '\n']).next(), Some(theirs.trim_end()), "{name}");
    }
}
