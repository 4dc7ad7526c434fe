//! Damaged images: every command ends with a result or a clear error, in bounded time and memory.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use obento_testkit::oracle::{self, Oracle, program, run};
use obento_testkit::{mutants, require};

/// Seconds: longer than any damaged image of a few MiB may take.
const LIMIT: &str = "20";
/// The address space that a command may use, in KiB: its budget of memory, its stacks and its own text.
const MEMORY_KIB: u64 = 512 * 1024;

/// Every way of reading an image, each with a place for the image and one for an output folder.
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

/// Runs obento with `arguments` under both limits; panics if it breaks one or dies by a signal.
fn read(image: &Path, arguments: &[&str], what: &str) -> ExitStatus {
    let out = tempfile::tempdir().unwrap();
    let place = |argument: &str| {
        argument.replace("IMAGE", image.to_str().unwrap()).replace("OUT", out.path().to_str().unwrap())
    };
    let mut command = Command::new("timeout");
    command.args([
        "--signal=KILL",
        LIMIT,
        "sh",
        "-c",
        &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""),
    ]);
    command.arg(env!("CARGO_BIN_EXE_obento")).args(arguments.iter().map(|argument| place(argument)));
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.reopen().unwrap());
    let status = command.status().unwrap();
    let messages = String::from_utf8_lossy(&fs::read(log.path()).unwrap()).into_owned();
    assert!(status.code() != Some(137), "{what}: {arguments:?} did not end within {LIMIT} s:\n{messages}");
    assert!(status.signal().is_none(), "{what}: {arguments:?} died of {status}:\n{messages}");
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
fn an_image_cut_anywhere_is_read_as_far_as_it_goes() {
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
