//! Damaged images: every command ends with a result or a clear error, in bounded time and memory.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use obento_testkit::oracle::{self, Oracle, program, run};
use obento_testkit::{mutants, require};

/// The limit of processor time in seconds, which no damaged image of a few MiB may exceed.
const PROCESSOR_SECONDS: u64 = 20;
/// The number of seconds after which a command counts as hung. It is large, because a copy of 47,000 files waits for
/// the journal of a busy host.
const HANG_SECONDS: &str = "240";
/// The address space of a command in KiB: its memory budget, its stacks and its code.
const MEMORY_KIB: u64 = 512 * 1024;

/// Every command that reads an image, with placeholders for the image and an output folder.
const READERS: &[&[&str]] = &[
    &["ls", "-laRis", "IMAGE"],
    &["find", "IMAGE", "-printf", "%p %s %i\\n"],
    &["export", "IMAGE", "-o", "OUT/tree.tar"],
    &["cp", "-a", "--untrusted", "--max-bytes", "200M", "IMAGE:/", "OUT/tree/"],
    &["du", "-a", "IMAGE"],
    &["df", "IMAGE"],
    &["info", "IMAGE"],
    &["inspect", "super", "IMAGE"],
    &["inspect", "journal", "IMAGE"],
    &["ls", "--no-replay", "-lR", "IMAGE"],
];

/// Runs obento with `arguments` and these limits. Panics if a limit is exceeded or a signal ends the process.
fn read(image: &Path, arguments: &[&str], what: &str) -> ExitStatus {
    let out = tempfile::tempdir().unwrap();
    let place = |argument: &str| {
        argument.replace("IMAGE", image.to_str().unwrap()).replace("OUT", out.path().to_str().unwrap())
    };
    let mut command = Command::new("timeout");
    command.args([
        HANG_SECONDS,
        "sh",
        "-c",
        &format!("ulimit -v {MEMORY_KIB}; ulimit -t {PROCESSOR_SECONDS}; exec \"$0\" \"$@\""),
    ]);
    command.arg(env!("CARGO_BIN_EXE_obento")).args(arguments.iter().map(|argument| place(argument)));
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.reopen().unwrap());
    let status = command.status().unwrap();
    let messages = String::from_utf8_lossy(&fs::read(log.path()).unwrap()).into_owned();
    assert!(status.code() != Some(124), "{what}: {arguments:?} hung for {HANG_SECONDS} s:\n{messages}");
    let signal = status.code().filter(|code| *code > 128);
    assert!(
        signal.is_none() && status.signal().is_none(),
        "{what}: {arguments:?} died of {status}:\n{messages}"
    );
    assert!(!messages.contains("panicked"), "{what}: {arguments:?} panicked:\n{messages}");
    assert!(matches!(status.code(), Some(0..=2)), "{what}: {arguments:?} exited with {status}:\n{messages}");
    assert!(status.success() || !messages.is_empty(), "{what}: {arguments:?} failed without a word");
    status
}

fn unzip(packed: &Path, folder: &Path) -> PathBuf {
    let image = folder.join("image");
    run(program("gzip").arg("-dc").arg(packed).stdout(fs::File::create(&image).unwrap())).unwrap();
    image
}

#[test]
fn every_image_of_the_corpus_is_read_to_its_end_or_refused() {
    if !require(&[Oracle::Corpus, Oracle::Program("gzip")]) {
        return;
    }
    let folder = oracle::corpus().unwrap();
    let mut images: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    images.sort();
    assert!(images.len() > 50, "{} images", images.len());
    for packed in images {
        let folder = tempfile::tempdir().unwrap();
        let image = unzip(&packed, folder.path());
        for reader in READERS {
            read(&image, reader, &packed.display().to_string());
        }
    }
}

#[test]
fn mutants_of_the_sample_are_read_to_their_end_or_refused() {
    if !require(&[Oracle::Program("zstd")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let original = fs::read(&image).unwrap();
    let damaged = folder.path().join("damaged.img");
    for seed in 0..60 {
        mutants::write(&original, seed, &damaged).unwrap();
        let readers = READERS.iter().skip(usize::try_from(seed).unwrap() % 3).step_by(3);
        for reader in readers {
            read(&damaged, reader, &format!("mutant {seed}"));
        }
    }
}

#[test]
fn a_truncated_image_is_read_up_to_its_end() {
    if !require(&[Oracle::Program("zstd")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let original = fs::read(&image).unwrap();
    for len in [0, 1, 511, 512, 1024, 1 << 20, (1 << 20) + 1500, 2 << 20, 5 << 20, 15 << 20] {
        let cut = folder.path().join("cut.img");
        fs::write(&cut, &original[..len]).unwrap();
        for reader in READERS {
            let status = read(&cut, reader, &format!("cut at {len}"));
            assert!(len > 1 << 20 || !status.success(), "an image cut at {len} was read");
        }
    }
}

/// Creates an ext4 image whose directory `full` has 39 names in a block with a wrong checksum. Returns its path and the
/// number of that block.
fn image_with_a_wrong_checksum(folder: &Path) -> (PathBuf, u64) {
    let (tree, image) = (folder.join("tree"), folder.join("image"));
    fs::create_dir_all(tree.join("full")).unwrap();
    for n in 0..39 {
        fs::write(tree.join(format!("full/name-{n}")), format!("contents {n}\n")).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let mut mke2fs = program("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "metadata_csum,^has_journal", "-d"]);
    run(mke2fs.arg(&tree).arg(&image)).unwrap();
    let blocks = run(program("debugfs").args(["-R", "blocks /full"]).arg(&image)).unwrap().stdout;
    let block: u64 = String::from_utf8_lossy(&blocks).trim().parse().unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4], block * 4096 + 4092).unwrap();
    (image, block)
}

/// Runs obento; returns its exit code, standard output and standard error.
fn obento(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn reading_a_directory_block_with_a_wrong_checksum_shows_its_names_and_ends_with_exit_code_1() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, block) = image_with_a_wrong_checksum(folder.path());
    let image = image.to_str().unwrap();
    let (place, name) = (format!("{image}:/full"), format!("{image}:/full/name-7"));
    let copy = folder.path().join("copy");
    let tar = folder.path().join("out.tar");
    let readers: &[&[&str]] = &[
        &["ls", &place],
        &["find", &place],
        &["cat", &name],
        &["cp", "-r", &place, copy.to_str().unwrap()],
        &["export", image, "-o", tar.to_str().unwrap()],
    ];
    for arguments in readers {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {report}");
        assert!(report.contains(&format!("block {block}")), "{arguments:?}: {report}");
        let lines = report.lines().filter(|line| line.contains("checksum")).count();
        assert_eq!(lines, 1, "{arguments:?}: {report}");
    }
    assert_eq!(obento(&["ls", &place]).1.lines().count(), 39);
    assert_eq!(obento(&["cat", &name]).1, "contents 7\n");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 39);
    let listed = run(program("tar").arg("tf").arg(&tar)).unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&listed).lines().filter(|line| line.contains("name-")).count(), 39);
}

#[test]
fn ignored_checksums_are_not_reported_and_forbid_changes() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, _) = image_with_a_wrong_checksum(folder.path());
    let image = image.to_str().unwrap();
    let (place, name) = (format!("{image}:/full"), format!("{image}:/full/name-7"));
    let (code, names, report) = obento(&["ls", "--ignore-checksums", &place]);
    assert_eq!((code, names.lines().count(), report.as_str()), (Some(0), 39, ""));
    for arguments in [&["rm", &name][..], &["rm", "--ignore-checksums", &name]] {
        let (code, _, report) = obento(arguments);
        assert!(code > Some(0), "{arguments:?}: {report}");
    }
    assert_eq!(obento(&["ls", "--ignore-checksums", &place]).1, names);
}

#[test]
fn check_refuses_to_ignore_checksums_and_writes_nothing() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, _) = image_with_a_wrong_checksum(folder.path());
    let before = fs::read(&image).unwrap();
    let image = image.to_str().unwrap();
    for arguments in
        [&["check", "--ignore-checksums", image][..], &["check", "-y", "--ignore-checksums", image]]
    {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(16), "{arguments:?}: {report}");
        assert!(report.contains("--ignore-checksums is for reading only"), "{report}");
    }
    assert!(fs::read(image).unwrap() == before);
}

#[test]
fn diff_of_a_file_whose_name_is_in_a_damaged_block_ends_with_exit_code_2() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, block) = image_with_a_wrong_checksum(folder.path());
    let name = format!("{}:/full/name-7", image.display());
    let same = folder.path().join("tree/full/name-7");
    let (code, differences, report) = obento(&["diff", &name, same.to_str().unwrap()]);
    assert_eq!((code, differences.as_str()), (Some(2), ""));
    assert!(report.contains(&format!("block {block}")), "{report}");
}
