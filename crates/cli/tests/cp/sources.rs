//! Operands that are symbolic links, and images that stand for their trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use obento_testkit::Oracle;
use obento_testkit::oracle::LoopMount;

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
    // Two files of the host that are no images have no trees.
    let files = bench.obento(&["diff", "-r", "f", "f"]);
    assert_eq!((files.status.code(), text(&files.stdout)), (Some(2), String::new()));
    assert_eq!(bench.prints(&["diff", "f", "f"]), "");
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

#[test]
fn a_device_or_fifo_of_an_image_is_copied_only_by_a_recursive_copy() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.mkfs("ext4", "t.img");
    bench.mkfs("ext4", "u.img");
    bench.quiet(&["mknod", "t.img:/null", "c", "1", "3"]);
    bench.quiet(&["mkfifo", "t.img:/fifo"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.at("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for (source, target, kind) in [
        ("t.img:/null", "out", "device"),
        ("t.img:/null", "u.img:/out", "device"),
        ("t.img:/fifo", "out", "FIFO"),
    ] {
        let output = bench.obento(&["cp", source, target]);
        let refused = format!(
            "obento: cannot copy '{source}': is a {kind}, whose contents are not copied\n  \
             help: use -r to copy the {kind} itself\n"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), refused));
        assert!(!bench.at("out").exists());
    }
    assert_eq!(bench.prints(&["ls", "u.img:/"]), "lost+found\n");
    bench.quiet(&["cp", "-r", "t.img:/null", "t.img:/fifo", "pipe", "u.img:/"]);
    assert_eq!(
        bench.prints(&["stat", "-c", "%F", "u.img:/null", "u.img:/fifo", "u.img:/pipe"]),
        "character special file\nfifo\nfifo\n"
    );
}

#[test]
fn a_fifo_or_device_of_the_host_is_read_by_a_copy_that_is_not_recursive() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.mkfs("ext4", "t.img");
    let fifo = bench.at("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o640)).unwrap();
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[at as usize % 4]).collect();
    let writer = std::thread::spawn({
        let (fifo, long) = (fifo.clone(), long.clone());
        move || fs::write(fifo, long).unwrap()
    });
    bench.quiet(&["cp", "pipe", "t.img:/out"]);
    writer.join().unwrap();
    assert!(bench.obento(&["cat", "t.img:/out"]).stdout == long);
    bench.quiet(&["cp", "/dev/null", "t.img:/"]);
    let shell = format!("{} cp <(printf text) t.img:/sub", env!("CARGO_BIN_EXE_obento"));
    let output = Command::new("bash").current_dir(bench.path()).args(["-c", &shell]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(bench.prints(&["cat", "t.img:/sub"]), "text");
    assert_eq!(
        bench.prints(&["stat", "-c", "%F %s", "t.img:/out", "t.img:/null", "t.img:/sub"]),
        "regular file 3000000\nregular empty file 0\nregular file 4\n"
    );
    // As in GNU cp, a socket cannot be read.
    let _socket = std::os::unix::net::UnixListener::bind(bench.at("sock")).unwrap();
    let output = bench.obento(&["cp", "sock", "t.img:/s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("is a socket, whose contents are not copied"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn directories_of_a_memory_stick_that_any_user_can_change_get_their_times() {
    let Some(bench) = Bench::new(&[Oracle::LoopMount, Oracle::Root]) else { return };
    bench.write("d/sub/f", "x");
    for name in ["d/sub", "d"] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::open(bench.at(name)).unwrap().set_modified(time).unwrap();
    }
    bench.mkfs("ext4", "a.img");
    bench.quiet(&["cp", "-a", "d", "a.img:/"]);
    bench.mkfs("vfat", "v.img");
    let Ok(mount) = LoopMount::new(&bench.at("v.img"), "rw,uid=1234,umask=000") else { return };
    let copied =
        bench.obento(&["cp", "-r", "--preserve=timestamps", "a.img:/d", mount.path().to_str().unwrap()]);
    assert_eq!((copied.status.code(), text(&copied.stderr).as_str()), (Some(0), ""));
    for name in ["d/sub", "d"] {
        let meta = std::fs::metadata(mount.path().join(name)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mtime(&meta), 1_000_000_000, "{name}");
    }
    mount.unmount().unwrap();
}
