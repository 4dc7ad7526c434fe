//! Operands that are symbolic links, and images that stand for their trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use obento_testkit::Oracle;

use crate::{Bench, text};

#[test]
fn an_operand_that_is_a_link_is_copied_as_gnu_copies_it() {
    let Some(bench) = Bench::new(&[Oracle::Program("cp")]) else { return };
    bench.write("real/f", "x");
    bench.write("f", "file");
    fs::create_dir(bench.at("u")).unwrap();
    for (name, target) in
        [("lib", "../real"), ("gone", "nowhere"), ("file", "../f"), ("abs", "/etc/hostname")]
    {
        symlink(target, bench.at("u").join(name)).unwrap();
    }
    for option in ["-a", "-r", "-P", "-H", "-d", "-rL", "-rH", "-dH"] {
        bench.mkfs("ext4", "t.img");
        for source in ["u/lib", "u/gone", "u/file", "u/abs", "u/lib/", "u/lib/."] {
            let _ = fs::remove_dir_all(bench.at("gnu"));
            fs::create_dir(bench.at("gnu")).unwrap();
            let gnu =
                Command::new("cp").current_dir(bench.path()).args([option, source, "gnu/"]).output().unwrap();
            bench.obento(&["rm", "-rf", "t.img:/t"]);
            bench.quiet(&["mkdir", "t.img:/t"]);
            let ours = bench.obento(&["cp", option, source, "t.img:/t"]);
            let context = format!("{option} {source}: {}", text(&ours.stderr));
            assert_eq!(gnu.status.code(), ours.status.code(), "{context}");
            assert_eq!(bench.prints(&["diff", "-r", "gnu", "t.img:/t"]), "", "{context}");
        }
    }
}

#[test]
fn two_images_are_compared_by_the_files_in_them() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.write("f", "one");
    bench.write("g", "two");
    bench.mkfs("ext4", "a.img");
    bench.mkfs("vfat", "b.img");
    bench.quiet(&["cp", "f", "g", "a.img:/"]);
    bench.quiet(&["cp", "f", "b.img:/"]);
    let only = bench.obento(&["diff", "-r", "a.img", "b.img"]);
    let expected = "Only in a.img:/: g\nOnly in a.img:/: lost+found\n";
    let mut lines: Vec<_> = text(&only.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.join("\n") + "\n", expected, "{}", text(&only.stderr));
    assert_eq!(only.status.code(), Some(1));
    bench.write("b/f", "one");
    assert_eq!(bench.prints(&["diff", "-r", "b.img", "b"]), "");
    // Two files of the host that are no images stay files.
    assert_eq!(bench.prints(&["diff", "-r", "f", "f"]), "");
}

#[test]
fn an_inode_can_be_named_without_characters_that_a_shell_takes_for_its_own() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.write("f", "text");
    bench.mkfs("ext4", "t.img");
    bench.quiet(&["cp", "f", "t.img:/"]);
    let number = bench.prints(&["stat", "-c", "%i", "t.img:/f"]);
    let shell = format!("{} cat t.img:#{}", env!("CARGO_BIN_EXE_obento"), number.trim());
    let output = Command::new("sh").current_dir(bench.path()).args(["-c", &shell]).output().unwrap();
    assert_eq!(text(&output.stdout), "text", "{}", text(&output.stderr));
}
