//! Archives from a pipe. The image equals that of the same archive in a file. With `--stream`, its files have the order
//! of the archive.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Stdio;

use obento_testkit::oracle::{Oracle, program, require};

use super::{Bench, JUDGES, entries_of, text};

/// Builds from a pipe that returns `bytes` in pieces of `chunk` bytes. Returns standard error if that failed.
#[track_caller]
fn piped(bench: &Bench, line: &str, bytes: &[u8], chunk: usize) -> Result<(), String> {
    let mut command = bench.command(line);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for part in bytes.chunks(chunk) {
        if stdin.write_all(part).is_err() {
            break;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
}

/// Creates an archive of files with these names, lengths and bytes.
fn archive(files: &[(&str, usize, u8)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, len, byte) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_mtime(1_600_000_000);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(*len as u64);
        tar.append_data(&mut header, path, &vec![*byte; *len][..]).unwrap();
    }
    tar.into_inner().unwrap()
}

#[test]
fn an_archive_from_a_pipe_is_what_the_kernel_reads_in_its_image_whatever_the_type() {
    if !require(JUDGES) {
        return;
    }
    let bench = Bench::new();
    let expected = entries_of(&bench, &bench.tree());
    let tar = fs::read(bench.path("expected.tar")).unwrap();
    for (name, options) in [
        ("ext4.img", "-t ext4"),
        ("ext3.img", "-t ext3 -I 256"),
        ("ext2.img", "-t ext2 -I 256 -b 1024"),
        ("least.img", "-t ext4 --minimize"),
        ("small.img", "-t ext4 -b 1024 --minimize"),
        ("clusters.img", "-O bigalloc -b 4096"),
        ("given.img", "--size 400M -O ^metadata_csum,uninit_bg,^64bit"),
        ("alone.img", "-O ^flex_bg -b 2048"),
        ("copies.img", "-O ^sparse_super,^resize_inode -b 1024"),
        ("more.img", "-O sparse_super2,orphan_file,meta_bg,^resize_inode -b 1024 -N 100000"),
    ] {
        piped(&bench, &format!("build {options} {name} --from - -q --stream"), &tar, 1 << 20).unwrap();
        let mut expected = expected.clone();
        if name == "clusters.img" {
            expected.values_mut().for_each(|entry| entry.map = None);
        }
        bench.expect_same(&expected, name);
        fs::remove_file(bench.path(name)).unwrap();
    }
}

#[test]
fn a_pipe_that_has_a_path_loses_no_byte() {
    let bench = Bench::new();
    let tar = archive(&[("a", 5000, 1)]);
    piped(&bench, "build -q -t ext2 disk.img --from /dev/stdin", &tar, 1 << 20).unwrap();
    assert_eq!(bench.run("cat disk.img:/a", 0).0, "\u{1}".repeat(5000));
}

#[test]
fn an_archive_is_read_without_the_right_to_do_anything_else() {
    let bench = Bench::new();
    let mut command = bench.command("build disk.img --from -");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than the pipe can contain: when all was written, some was read.
    stdin.write_all(super::header_of_a_file(8 << 20).as_bytes()).unwrap();
    stdin.write_all(&vec![1; 4 << 20]).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    stdin.write_all(&vec![1; 4 << 20]).unwrap();
    stdin.write_all(&[0; 1024]).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    // 2: a filter. A container may forbid filters.
    assert!(status.contains("Seccomp:\t2") || status.contains("Seccomp:\t0"), "{status}");
}

#[test]
fn a_stream_gives_the_same_image_however_its_bytes_come() {
    let bench = Bench::new();
    let files: Vec<(String, usize, u8)> = (0..400_u16)
        .map(|at| (format!("d{}/file{at}", at % 7), usize::from(at) * 37 % 9000, at as u8))
        .collect();
    let files: Vec<_> = files.iter().map(|(name, len, byte)| (name.as_str(), *len, *byte)).collect();
    let tar = archive(&files);
    piped(&bench, "build one.img --from - -q --stream", &tar, 1 << 20).unwrap();
    piped(&bench, "build two.img --from - -q --stream --threads 1", &tar, 777).unwrap();
    assert!(fs::read(bench.path("one.img")).unwrap() == fs::read(bench.path("two.img")).unwrap());
    // The contents do not depend on the kind of source.
    fs::write(bench.path("all.tar"), &tar).unwrap();
    bench.run("build file.img --from all.tar -q", 0);
    assert_eq!(bench.run("diff -r one.img:/ file.img:/", 0).0, "");
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("one.img");
    }
}

#[test]
fn an_archive_makes_the_same_image_from_a_pipe_and_from_a_file() {
    let bench = Bench::new();
    let tar = archive(&[("z", 100_000, 1), ("d/b", 3, 2), ("d/a", 0, 0), ("y", 4096, 3), ("d/b", 9000, 4)]);
    fs::write(bench.path("all.tar"), &tar).unwrap();
    for options in [
        "-t ext4",
        "-t ext4 --minimize",
        "-t ext4 --size 40M",
        "-t ext3 -b 1024",
        "-t ext2",
        "-t exfat",
        "-t vfat",
        "-t xv6",
    ] {
        bench.run(&format!("build -F {options} file.img --from all.tar -q"), 0);
        piped(&bench, &format!("build -F {options} pipe.img --from - -q"), &tar, 4000).unwrap();
        let (file, pipe) =
            (fs::read(bench.path("file.img")).unwrap(), fs::read(bench.path("pipe.img")).unwrap());
        assert!(file == pipe, "{options}: {} and {} bytes", file.len(), pipe.len());
    }
}

#[test]
fn files_of_a_pipe_that_later_sources_replace_leave_no_byte_in_the_image() {
    let bench = Bench::new();
    let secret = *b"SECRET!SECRET!SE";
    let mut tar = archive(&[
        ("a", 5000, 1),
        ("gone", 3 << 20, 0),
        ("twice", 9000, 2),
        ("twice", 100, 3),
        ("z", 70_000, 4),
    ]);
    let at = tar.windows(4).position(|window| window == b"gone").unwrap();
    tar[at + 512..at + 512 + (1 << 20)].chunks_exact_mut(16).for_each(|chunk| chunk.copy_from_slice(&secret));
    fs::create_dir(bench.path("over")).unwrap();
    fs::write(bench.path("over/gone"), "new").unwrap();
    fs::create_dir(bench.path("under")).unwrap();
    fs::write(bench.path("under/z"), "old").unwrap();
    fs::write(bench.path("under/kept"), vec![9; 20_000]).unwrap();
    for way in ["", " --stream"] {
        piped(&bench, &format!("build -F disk.img --from under - over -q{way}"), &tar, 4096).unwrap();
        assert_eq!(bench.run("cat disk.img:/gone", 0).0, "new");
        assert_eq!(bench.run("stat -c %s disk.img:/twice", 0).0, "100\n");
        assert_eq!(bench.run("stat -c %s disk.img:/z", 0).0, "70000\n");
        assert!(bench.run("cat disk.img:/kept", 0).0 == "\t".repeat(20_000));
        let image = fs::read(bench.path("disk.img")).unwrap();
        assert!(!image.windows(7).any(|window| window == b"SECRET!"));
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck("disk.img");
        }
    }
}

#[test]
fn a_size_too_small_for_a_pipe_is_reported_with_a_sufficient_one() {
    let bench = Bench::new();
    let tar = archive(&[("a", 9 << 20, 1), ("b", 30 << 20, 2), ("c", 1, 3)]);
    let said = piped(&bench, "build disk.img --from - --stream --size 20M", &tar, 1 << 20).unwrap_err();
    let needed: u64 = said.split("too small; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((39 << 20..46 << 20).contains(&needed), "{said}");
    assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 0);
    piped(
        &bench,
        &format!("build disk.img --from - -q --stream --size {}k", needed.div_ceil(1024)),
        &tar,
        1 << 20,
    )
    .unwrap();
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
}

#[test]
fn a_stream_needs_hardly_more_than_a_directory() {
    let bench = Bench::new();
    let small = archive(&[("a", 3, 1)]);
    let large = archive(&[("a", 3, 1), ("b", 30_000_000, 2), ("c", 5000, 3)]);
    let len = |name| fs::metadata(bench.path(name)).unwrap().len();
    fs::write(bench.path("all.tar"), &small).unwrap();
    bench.run("build -F -t ext2 file.img --from all.tar -q --minimize", 0);
    // The minimum: mke2fs creates no group of fewer than 50 blocks besides its metadata.
    assert!(len("file.img") <= 56 * 4096, "{}", len("file.img"));
    for (options, tar) in [
        ("--size 1M", &small),
        ("-t ext3 --size 6M", &small),
        ("--minimize", &small),
        ("-t ext2 --minimize", &small),
        ("--minimize", &large),
        ("-t ext3 --minimize", &large),
        ("-O ^has_journal --minimize -b 1024", &large),
        ("-t ext2 --size 31M", &large),
        ("--size 35M", &large),
    ] {
        fs::write(bench.path("all.tar"), tar).unwrap();
        bench.run(&format!("build -F {options} file.img --from all.tar -q"), 0);
        piped(&bench, &format!("build -F {options} pipe.img --from - -q --stream"), tar, 1 << 20).unwrap();
        let (file, pipe) = (len("file.img"), len("pipe.img"));
        assert!(pipe * 99 <= file * 100, "{options}: {pipe} bytes where {file} suffice");
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck("pipe.img");
        }
    }
}

#[test]
fn insufficient_inodes_are_reported_without_a_size() {
    let bench = Bench::new();
    let names: Vec<String> = (0..500).map(|at| format!("file{at}")).collect();
    let tar = archive(&names.iter().map(|name| (name.as_str(), 5, 1)).collect::<Vec<_>>());
    fs::write(bench.path("all.tar"), &tar).unwrap();
    let (_, file) = bench.run("build disk.img --from all.tar -N 100 --size 8M", 2);
    let pipe = piped(&bench, "build disk.img --from - --stream -N 100 --size 8M", &tar, 1 << 20).unwrap_err();
    assert!(
        file.contains("cannot store the contents, which need")
            && file.contains("omit -N, or use at least as many inodes: -N ")
            && file == pipe,
        "{file}{pipe}"
    );
}

#[test]
fn a_stream_over_many_groups_leaves_their_copies_where_they_are() {
    if !require(&[Oracle::Program("e2fsck")]) {
        return;
    }
    let bench = Bench::new();
    let names: Vec<String> = (0..9).map(|at| format!("part{at}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), 11 << 20, 5)).collect();
    let tar = archive(&files);
    for options in
        ["-t ext4", "-t ext3", "-t ext4 -O ^sparse_super,^flex_bg,^resize_inode", "-t ext4 -O sparse_super2"]
    {
        piped(&bench, &format!("build -F {options} -b 1024 disk.img --from - -q --stream"), &tar, 1 << 20)
            .unwrap();
        bench.fsck("disk.img");
        // A copy of the super block is as good as the first one.
        let image = File::options().write(true).open(bench.path("disk.img")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&image, &[0; 1024], 1024).unwrap();
        let mut command = program("e2fsck");
        let output = command.args(["-fy", "-b", "8193", "-B", "1024"]).arg(bench.path("disk.img")).output();
        let output = output.unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{options}: {}", text(&output.stdout));
        bench.fsck("disk.img");
        for name in &names {
            assert_eq!(bench.run(&format!("stat -c %s disk.img:/{name}"), 0).0, format!("{}\n", 11 << 20));
        }
    }
}
