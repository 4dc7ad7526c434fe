//! `obento export` against GNU tar on the kernel's mount of the same image, over every combination of features.
//!
//! `OBENTO_MATRIX=all` fills each image with the full tree: 5,000 files, 60,000 entries in one directory, and a sparse
//! file of 1 TiB. `OBENTO_MATRIX=full`, as in CI, does so for nine images, and the directory of the others has 8,000
//! entries. Otherwise the tree is small.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use obento_testkit::entries::{self, Differences, Entries};
use obento_testkit::image::{self, ImageSpec};
use obento_testkit::oracle::{LoopMount, Oracle, program, run};
use obento_testkit::tree::{self, TreeSpec};
use obento_testkit::{matrix, require};

fn obento() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
    command
}

/// The tree of an image with these features.
fn tree(name: &str) -> TreeSpec {
    match std::env::var("OBENTO_MATRIX").as_deref() {
        Ok("all") => TreeSpec::FULL,
        Ok("full") if WHOLE.contains(&name) => TreeSpec::FULL,
        Ok("full") => MEDIUM,
        _ => TreeSpec::SMALL,
    }
}

/// The images that CI fills with the full tree: those whose directories, block maps or allocation differ most.
const WHOLE: [&str; 9] = [
    "ext4",
    "ext4-1k",
    "ext2",
    "ext3-1k",
    "bigalloc",
    "no-extents-1k",
    "large-dir-1k",
    "hash-tea-unsigned",
    "data-journal",
];

/// The tree of other images: indexes with one level less than in the full tree.
const MEDIUM: TreeSpec = TreeSpec { files: 1_000, wide: 8_000, ..TreeSpec::FULL };

/// Returns the images of `matrix`, each with its tree.
fn with_trees(matrix: impl Fn(TreeSpec) -> Vec<ImageSpec>) -> Vec<ImageSpec> {
    let names: Vec<_> = matrix(TreeSpec::SMALL).into_iter().map(|spec| spec.name).collect();
    let of_name =
        |name| matrix(tree(name)).into_iter().find(|spec| spec.name == name).expect("the same names");
    names.into_iter().map(of_name).collect()
}

fn export(image: &Path) -> Result<Entries> {
    let tar = tempfile::NamedTempFile::new()?;
    run(obento().arg("export").arg(image).stdout(tar.reopen()?))?;
    entries::from_tar(File::open(tar.path())?)
}

fn expect_equal(expected: &Entries, found: &Entries) -> Result<()> {
    let differences = Differences::between(expected, found);
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

/// Runs `check` on each image and lists all failures, so that one run shows the whole matrix.
fn for_each(specs: Vec<ImageSpec>, check: impl Fn(&ImageSpec, &Path) -> Result<()>) {
    let only = std::env::var("OBENTO_MATRIX_ONLY").ok();
    let specs = specs.into_iter().filter(|spec| only.as_deref().is_none_or(|name| name == spec.name));
    let failures: Vec<String> = specs
        .filter_map(|spec| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let result = check(&spec, folder.path());
            result.err().map(|error| format!("{}: {error:#}", spec.name))
        })
        .collect();
    assert!(failures.is_empty(), "{} images differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn an_export_equals_the_archive_that_tar_creates_from_the_kernels_mount() {
    if !require(&[
        Oracle::LoopMount,
        Oracle::Program("mke2fs"),
        Oracle::Program("tune2fs"),
        Oracle::Program("debugfs"),
    ]) {
        return;
    }
    let specs = with_trees(matrix::ext4).into_iter().filter(matrix::mounts).collect();
    for_each(specs, |spec, folder| {
        let image = spec.build(folder)?;
        let before = image::file_hash(&image)?;
        let found = export(&image)?;
        ensure!(image::file_hash(&image)? == before, "the image was changed by reading it");
        expect_equal(&image::kernel_entries(&image, spec)?, &found)
    });
}

#[test]
fn blocks_larger_than_a_page_read_as_debugfs_reads_them() {
    if !require(&[Oracle::Root, Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    for_each(with_trees(matrix::large_blocks), |spec, folder| {
        let source = folder.join("source");
        std::fs::create_dir(&source)?;
        tree::write(&source, &spec.tree)?;
        let image = spec.build_from(&source, folder)?;
        let tar = folder.join("source.tar");
        image::tar_of(&source, &tar)?;
        let mut expected = entries::from_tar(File::open(tar)?)?;
        let mut found = export(&image)?;
        // `mke2fs -d` stores whole seconds, and maps a sparse file in larger blocks.
        found.remove(&b"lost+found"[..]).context("no lost+found")?;
        for entry in expected.values_mut().chain(found.values_mut()) {
            entry.mtime = (0, 0);
            entry.map = None;
        }
        expect_equal(&expected, &found)?;
        compare_with_debugfs(&image)
    });
}

/// Returns mode, owner, size, links and time of every inode, in the common format of `find` and `debugfs`.
fn compare_with_debugfs(image: &Path) -> Result<()> {
    let output = run(obento().arg("find").arg(image).args(["-printf", "%i %m %U %G %s %n %T@\\n"]))?;
    let lines: Vec<Vec<String>> = String::from_utf8(output.stdout)?
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    let inodes = lines.iter().map(|line| Ok(line[0].parse()?)).collect::<Result<Vec<u64>>>()?;
    for (line, stat) in lines.iter().zip(image::debugfs_stats(image, &inodes)?) {
        let secs: i64 = line[6].split('.').next().context("no seconds")?.parse()?;
        let ours = image::DebugfsStat {
            mode: u32::from_str_radix(&line[1], 8)?,
            uid: line[2].parse()?,
            gid: line[3].parse()?,
            size: line[4].parse()?,
            links: line[5].parse()?,
            mtime: u32::try_from(secs & 0xffff_ffff)?,
        };
        ensure!(ours == stat, "inode {}: debugfs says {stat:?}, obento {ours:?}", line[0]);
    }
    Ok(())
}

#[test]
fn sockets_are_shown_as_the_kernel_shows_them() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image::small_ext4(folder.path()).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    let sockets = image::sockets(mount.path());
    assert!(!sockets.is_empty());
    for socket in sockets {
        let format = "%F %a %u %g %h %s %Y";
        let kernel = run(program("stat").args(["-c", format]).arg(mount.path().join(&socket))).unwrap();
        let address = format!("{}:/{}", image.display(), socket.display());
        let ours = run(obento().args(["stat", "-c", format, &address])).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&ours.stdout),
            String::from_utf8_lossy(&kernel.stdout),
            "{address}"
        );
    }
}
