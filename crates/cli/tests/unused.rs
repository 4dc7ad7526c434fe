//! Options without effect are refused, and messages of misuse say what to do.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Exit code and standard error.
fn obento(folder: &Path, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder).args(line.split(' ')).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn runs(folder: &Path, line: &str) {
    let (status, err) = obento(folder, line);
    assert_eq!(status, Some(0), "{line}: {err}");
}

/// The command fails with `code`, and its message contains each of `words`.
#[track_caller]
fn fails(folder: &Path, line: &str, code: i32, words: &[&str]) {
    let (status, err) = obento(folder, line);
    assert_eq!(status, Some(code), "{line}: {err}");
    words.iter().for_each(|words| assert!(err.contains(words), "{line}: no '{words}' in {err}"));
}

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("tree/d")).unwrap();
    fs::write(folder.path().join("tree/f"), vec![b'f'; 100_000]).unwrap();
    folder
}

#[test]
fn build_refuses_options_without_effect() {
    let folder = tree();
    let folder = folder.path();
    for (options, words) in [
        ("--minimize --size 16M", "cannot combine --minimize and --size"),
        ("--free 20% --size 16M", "cannot combine --free and --size"),
        ("--image latest", "no source is a layout"),
        ("--contents tree", "no source is a manifest"),
    ] {
        fails(folder, &format!("build out.img --from tree {options}"), 2, &[words, "help: "]);
        assert!(!folder.join("out.img").exists(), "{options}");
    }
    fs::write(folder.join("m.mtree"), "#mtree\n./x type=dir\n").unwrap();
    for (contents, words) in [("none", "no such file"), ("tree/f", "not a directory")] {
        let line = format!("build out.img --from m.mtree --contents {contents}");
        fails(folder, &line, 2, &["cannot use --contents", words]);
    }
    runs(folder, "build -q out.img --from m.mtree --contents tree --size auto --minimize");
}

#[test]
fn problems_of_a_manifest_are_in_the_order_of_its_lines() {
    let folder = tree();
    let lines: String = (0..12).map(|at| format!("./x{at} type=bogus{at}\n")).collect();
    fs::write(folder.path().join("m.mtree"), format!("#mtree\n{lines}")).unwrap();
    let (_, err) = obento(folder.path(), "build out.img --from m.mtree");
    let found: Vec<usize> = err
        .lines()
        .filter_map(|line| line.split_once("m.mtree:")?.1.split_once('\'')?.0.parse().ok())
        .collect();
    assert_eq!(found, (2..14).collect::<Vec<_>>(), "{err}");
}

#[test]
fn a_journal_that_nothing_uses_is_refused() {
    let folder = tree();
    let folder = folder.path();
    runs(folder, "build -q ext.img --from tree --size 16M");
    runs(folder, "mkfs -q -t vfat fat.img 4M");
    runs(folder, "mkfs -q -O journal_dev log.img 4M");
    runs(folder, "mkfs -q -J device=log.img own.img 16M");
    for line in
        ["ls fat.img", "ls ext.img", "check ext.img", "df fat.img", "tune -L x ext.img", "mkdir ext.img:/new"]
    {
        let (status, err) = obento(folder, &format!("{line} --journal log.img"));
        assert!(status != Some(0) && err.contains("the volume has no external journal"), "{line}: {err}");
    }
    for line in ["part ext.img", "convert ext.img copy.img", "types"] {
        fails(folder, &format!("{line} --journal log.img"), 2, &["--journal cannot be used with"]);
    }
    runs(folder, "ls own.img --journal log.img");
    runs(folder, "cp tree/f own.img:/copied --journal log.img");
    // Of two images, one may use the journal.
    fails(folder, "diff -r ext.img own.img --journal log.img", 1, &[]);
    runs(folder, "check own.img --journal log.img");
}

#[test]
fn a_truncated_image_is_named_as_such_with_the_number_of_missing_bytes() {
    let folder = tree();
    let folder = folder.path();
    runs(folder, "build -q ext4.img --from tree --size 16M");
    for (name, make) in [("vfat.img", "vfat"), ("exfat.img", "exfat")] {
        runs(folder, &format!("mkfs -q -t {make} {name} 16M"));
        runs(folder, &format!("cp tree/f {name}:/"));
    }
    for name in ["ext4", "vfat", "exfat"] {
        let cut = format!("{name}.img");
        File::options().write(true).open(folder.join(&cut)).unwrap().set_len(2 << 20).unwrap();
        for line in [format!("mkdir {cut}:/new"), format!("resize {cut} 32M"), format!("tune -L x {cut}")] {
            let (status, err) = obento(folder, &line);
            assert!(
                status != Some(0) && err.contains("the image or its partition is truncated"),
                "{line}: {err}"
            );
            assert!(!err.contains("check -y"), "{line}: {err}");
        }
    }
    runs(folder, "build -q disk.img --from tree --size 16M");
    for (format, len) in [("simg", 40_000), ("qcow2", 70_000)] {
        let name = format!("disk.{format}");
        runs(folder, &format!("convert disk.img {name}"));
        File::options().write(true).open(folder.join(&name)).unwrap().set_len(len).unwrap();
        let (status, err) = obento(folder, &format!("cat {name}:/f"));
        assert!(
            status != Some(0) && err.contains("the image or its partition is truncated"),
            "{name}: {err}"
        );
    }
}

#[test]
fn messages_of_misuse_say_what_to_do() {
    let folder = tree();
    let folder = folder.path();
    runs(folder, "build -q e.img --from tree --size 16M");
    fails(folder, "rmdir e.img:/d/..", 1, &["'.' or '..'", "help: name the directory itself"]);
    fails(folder, "rmdir e.img:/d/.", 1, &["'.' or '..'"]);
    fails(folder, "diff -r e.img@1 tree", 2, &["no valid partition table", "help: omit '@'"]);
    runs(folder, "mkfs -q -t ext4 small.img 1M");
    fs::write(folder.join("big"), vec![1; 2 << 20]).unwrap();
    for line in ["cp big small.img:/", "fallocate -l 2M small.img:/file"] {
        fails(folder, line, 1, &["no space left", "too few free blocks", "obento resize"]);
    }
}

#[test]
fn the_number_of_members_of_an_archive_has_a_limit() {
    let folder = tree();
    let folder = folder.path();
    let mut builder = tar::Builder::new(File::create(folder.join("many.tar")).unwrap());
    for at in 0..30 {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        // Each member replaces the one before, so that the number of files stays small.
        builder.append_data(&mut header, format!("file{}", at % 2), &[][..]).unwrap();
    }
    builder.into_inner().unwrap();
    runs(folder, "mkfs -q i.img 4M");
    fails(folder, "import --max-files 29 i.img:/ many.tar", 1, &["the limit of files (29)", "--max-files"]);
    runs(folder, "import --max-files 30 i.img:/ many.tar");
    fails(
        folder,
        "build --max-files 29 o.img --from many.tar",
        2,
        &["the limit of files (29)", "--max-files"],
    );
    fails(
        folder,
        "build --max-files 1 o.img --from tree",
        2,
        &["cannot add 'tree", "the limit of files (1)"],
    );
    assert!(!folder.join("o.img").exists());
    runs(folder, "build -q --max-files 30 o.img --from many.tar");
}
