//! Images that were copied while the kernel changed them. A read-only open shows the same contents as the kernel's own
//! replay of the same copy, and changes no byte of the image.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use obento_testkit::entries::{self, Differences};
use obento_testkit::image::{self, ImageSpec, Tune};
use obento_testkit::oracle::{LoopMount, Oracle, call, run};
use obento_testkit::tree::{TreeSpec, pattern};
use obento_testkit::{matrix, require};

/// The changes before the image is copied: every kind of change, some of them committed, some not.
fn busy(root: &Path) -> Result<()> {
    let folder = root.join("busy");
    fs::create_dir(&folder)?;
    for number in 0..400 {
        fs::write(folder.join(format!("new-{number:03}")), pattern(number * 37))?;
    }
    fs::rename(root.join("files/000"), folder.join("moved-directory"))?;
    fs::rename(root.join("names/..."), folder.join("moved-file"))?;
    fs::hard_link(root.join("third"), folder.join("fourth"))?;
    symlink("x".repeat(300), folder.join("slow-link"))?;
    fs::remove_dir_all(root.join("times"))?;
    fs::remove_file(root.join("sizes/300000"))?;
    // Freed metadata blocks become data blocks: revokes.
    for number in 0..40 {
        fs::remove_file(root.join(format!("wide/entry-{number:06}")))?;
    }
    let mut file = File::options().append(true).open(root.join("sizes/4097"))?;
    // The data begins with the magic number of the journal, so that journalled data must be escaped.
    file.write_all(&[0xc0, 0x3b, 0x39, 0x98])?;
    file.sync_all()?;
    let magic = [[0xc0, 0x3b, 0x39, 0x98].as_slice(), &pattern(8188)].concat();
    fs::write(folder.join("magic"), magic)?;
    let file = File::options().write(true).open(root.join("sizes/1200000"))?;
    file.set_len(5_000)?;
    file.sync_all()?;
    File::open(&folder)?.sync_all()?;
    // After the last commit: these changes may be missing.
    fs::write(folder.join("late"), b"perhaps")?;
    Ok(())
}

/// Calls only fsync, so that a volume with `fast_commit` uses it.
fn busy_with_fast_commits(root: &Path) -> Result<()> {
    let folder = root.join("quick");
    fs::create_dir(&folder)?;
    rustix::fs::syncfs(File::open(root)?)?;
    for number in 0..30 {
        let path = folder.join(format!("file-{number:02}"));
        let mut file = File::create(&path)?;
        file.write_all(&pattern(number * 999))?;
        file.sync_all()?;
        if number % 3 == 0 {
            fs::rename(&path, folder.join(format!("renamed-{number:02}")))?;
            file.write_all(b"more")?;
            file.sync_all()?;
        }
        if number % 5 == 0 {
            fs::hard_link(root.join("third"), folder.join(format!("link-{number:02}")))?;
            File::open(root.join("third"))?.sync_all()?;
        }
        if number % 7 == 3 && number % 3 != 0 {
            file.set_len(10)?;
            file.sync_all()?;
            fs::remove_file(&path)?;
        }
    }
    let file = File::options().write(true).open(root.join("sizes/5000000"))?;
    file.set_len(77_777)?;
    file.sync_all()?;
    Ok(())
}

fn obento(arguments: &[&str], image: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.args(arguments).arg(image);
    command
}

/// Returns a dirty copy of a volume in `folder` that the kernel replays. The kernel has refused one of its
/// own fast commits ("journal recovery failed"), and then there is no result to compare with.
fn replayable_copy(spec: &ImageSpec, folder: &Path, busy: fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let (copy, tried) = (folder.join("copy.img"), folder.join("tried.img"));
    let mut refused = None;
    for _ in 0..3 {
        let image = spec.build(folder)?;
        image::dirty_copy(&image, spec.mount, &copy, busy)?;
        call("cp", ["--sparse=always".as_ref(), copy.as_os_str(), tried.as_os_str()])?;
        match LoopMount::new(&tried, "") {
            Ok(mount) => {
                mount.unmount()?;
                return Ok(copy);
            }
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.context("nothing was tried")?)
}

fn compare(spec: &ImageSpec, busy: fn(&Path) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = replayable_copy(spec, folder.path(), busy)?;
    let before = image::file_hash(&copy)?;
    let tar = folder.path().join("ours.tar");
    let output = run(obento(&["export"], &copy).stdout(File::create(&tar)?))?;
    ensure!(image::file_hash(&copy)? == before, "the image was changed by reading it");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(notes.contains("journal"), "nothing was said of the journal: {notes:?}");
    let mut found = entries::from_tar(File::open(&tar)?)?;
    LoopMount::new(&copy, "")?.unmount()?;
    let mut expected = image::kernel_entries(&copy, spec)?;
    // When the kernel replays a fast commit, it adds names again and sets the time of their directory to that of the
    // replay.
    for entry in [&mut expected, &mut found].into_iter().filter_map(|list| list.get_mut(&b"quick"[..])) {
        entry.mtime = (0, 0);
    }
    let differences = Differences::between(&expected, &found);
    ensure!(differences.is_empty(), "{differences}");
    // The kernel's own replay leaves an inode's block count at 0, which e2fsck reports.
    if spec.name != "fast-commit-inline" {
        call("e2fsck", ["-fn".as_ref(), copy.as_os_str()])?;
    }
    Ok(())
}

fn compare_all(specs: Vec<ImageSpec>, busy: fn(&Path) -> Result<()>) {
    let failures: Vec<String> = specs
        .iter()
        .filter_map(|spec| compare(spec, busy).err().map(|error| format!("{}: {error:#}", spec.name)))
        .collect();
    assert!(failures.is_empty(), "{} images differ:\n{}", failures.len(), failures.join("\n"));
}

const ORACLES: &[Oracle] =
    &[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("tune2fs"), Oracle::Program("e2fsck")];

#[test]
fn a_dirty_journal_is_shown_as_the_kernel_replays_it() {
    if !require(ORACLES) {
        return;
    }
    let tree = TreeSpec { xattr_len: 700, ..TreeSpec::SMALL };
    let make =
        |name, options: &[&'static str], mount| ImageSpec { mount, ..matrix::base(name, options, tree) };
    compare_all(
        vec![
            make("csum-v3", &["-t", "ext4"], ""),
            make("no-csum", &["-t", "ext4", "-O", "^metadata_csum"], ""),
            make("no-csum-32bit", &["-t", "ext4", "-O", "^metadata_csum,^64bit"], ""),
            make("csum-v1", &["-t", "ext4", "-O", "^metadata_csum"], "journal_checksum"),
            make("async", &["-t", "ext4"], "data=writeback,journal_async_commit"),
            make("data-journal", &["-t", "ext4"], "data=journal"),
            make("data-journal-1k", &["-t", "ext4", "-b", "1024"], "data=journal"),
            make("ext3", &["-t", "ext3"], ""),
            make("wrapped", &["-t", "ext4", "-J", "size=4", "-b", "1024"], "data=journal"),
            ImageSpec {
                tune: vec![Tune::Tune2fs(vec!["-O", "^metadata_csum"])],
                ..make("tuned", &["-t", "ext4", "-O", "metadata_csum,64bit"], "")
            },
        ],
        busy,
    );
}

#[test]
fn fast_commits_are_shown_as_the_kernel_replays_them() {
    if !require(ORACLES) {
        return;
    }
    let make = |name, options: &[&'static str]| matrix::base(name, options, TreeSpec::SMALL);
    compare_all(
        vec![
            make("fast-commit", &["-t", "ext4", "-O", "fast_commit"]),
            make("fast-commit-no-csum", &["-t", "ext4", "-O", "fast_commit,^metadata_csum"]),
            make("fast-commit-inline", &["-t", "ext4", "-O", "fast_commit,inline_data"]),
        ],
        busy_with_fast_commits,
    );
}

#[test]
fn without_replay_the_state_before_the_journal_is_shown() {
    if !require(ORACLES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image::small_ext4(folder.path()).unwrap();
    let copy = folder.path().join("copy.img");
    image::dirty_copy(&image, "", &copy, |root| {
        fs::write(root.join("after"), b"new")?;
        File::open(root)?.sync_all()?;
        Ok(())
    })
    .unwrap();
    let list =
        |arguments: &[&str]| String::from_utf8(run(&mut obento(arguments, &copy)).unwrap().stdout).unwrap();
    assert!(list(&["ls"]).lines().any(|line| line == "after"));
    assert!(!list(&["ls", "--no-replay"]).lines().any(|line| line == "after"));
}
