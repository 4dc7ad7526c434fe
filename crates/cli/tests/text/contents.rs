//! `file`.

use std::fs;

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
