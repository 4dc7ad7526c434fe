//! The damaged images of e2fsprogs' own tests. Both checkers must find something or nothing, and e2fsck must find
//! nothing after our repair. Nothing may be lost that e2fsck keeps.
//!
//! Each difference has a row with the reason in `docs/check.md`. A difference without a row fails, and so does a row
//! without its difference, for the images that are available. `OBENTO_ONLY=NAME` selects images of that name.

mod common;
mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use lab::judge::{self, Contents, contents, e2fsck, line, lost};
use obento_base::Ino;
use obento_block::MemDevice;
use obento_ext4::{Ext4, open_volume};
use obento_testkit::oracle::{Oracle, corpus, require};

/// Longer than any image may take, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/check.md");
/// Number of images of e2fsprogs 1.47.4. If all of them are available, a row of another image is out of date.
const WHOLE: usize = 218;
/// Maximum number of lines of output that are shown per image.
const MOST_LINES: usize = 24;
/// The first line of the table.
const HEAD: &str = "| image | difference | reason |";

/// An image, and the kind of difference.
type Difference = (String, String);

/// Returns the rows of the documentation's table.
fn documented() -> BTreeSet<Difference> {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let rows = text.lines().skip_while(|line| *line != HEAD).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let [image, how, reason] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("a row is IMAGE | DIFFERENCE | REASON, not {row}");
        };
        assert!(!reason.trim().is_empty(), "{row}: why?");
        (image.trim().trim_matches('`').to_owned(), how.trim().to_owned())
    })
    .collect()
}

fn images() -> Vec<PathBuf> {
    let files = corpus().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "gz")).collect();
    images.sort();
    images
}

fn unpack(packed: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(File::open(packed).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns the result of `work`, or an error if it panics or takes too long.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, &'static str> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(LIMIT).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => "does not end",
        mpsc::RecvTimeoutError::Disconnected => "panics",
    })
}

/// Returns the differences from e2fsck for an image, with the output of the checker that finds something.
fn compare(bytes: &Arc<Vec<u8>>) -> Vec<(&'static str, String)> {
    let mut differences = Vec::new();
    let second = judge::e2fsck_is_clean(bytes);
    let copy = Arc::clone(bytes);
    match within(move || judge::findings(&copy)) {
        Err(what) => return vec![("the check", what.into())],
        Ok(Err(error)) if second.is_clean() => differences.push(("only we refuse", error.to_string())),
        Ok(Err(_)) => {}
        Ok(Ok(found)) if found.is_empty() && !second.is_clean() => {
            differences.push(("only e2fsck finds something", second.text));
        }
        Ok(Ok(found)) if !found.is_empty() && second.is_silent() => {
            differences.push(("only we find something", lines(&found)));
        }
        Ok(Ok(_)) => {}
    }
    let copy = Arc::clone(bytes);
    match within(move || judge::repaired(&copy)) {
        Err(what) => differences.push(("the repair", what.into())),
        // e2fsck does not repair an image that cannot be opened, either.
        Ok(Err(_)) if e2fsck_repaired(bytes).is_none() => {}
        Ok(Err(error)) => differences.push(("we cannot repair", error.to_string())),
        Ok(Ok(fixed)) => differences.extend(compare_repaired(bytes, &fixed)),
    }
    differences
}

fn lines(found: &[obento_driver::Finding]) -> String {
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn compare_repaired(bytes: &[u8], fixed: &[u8]) -> Vec<(&'static str, String)> {
    let mut differences = Vec::new();
    let second = judge::e2fsck_is_clean(fixed);
    if !second.is_silent() {
        differences.push(("e2fsck finds something after our repair", second.text));
    }
    match judge::findings(fixed) {
        Ok(found) if found.is_empty() => {}
        Ok(found) => differences.push(("we find something after our repair", lines(&found))),
        Err(error) => differences.push(("we find something after our repair", error.to_string())),
    }
    let Some((said, theirs)) = e2fsck_repaired(bytes) else { return differences };
    let (before, theirs, ours) =
        (VolumeContents::of(bytes), VolumeContents::of(&theirs), VolumeContents::of(fixed));
    let mut files = lost(&before.contents, &ours.contents);
    let lost_by_both = lost(&before.contents, &theirs.contents);
    files.retain(|ino| !lost_by_both.contains(ino));
    if !files.is_empty() {
        differences.push(("we lose a file", format!("inodes {files:?}\n{said}")));
    }
    let names = before.names.intersection(&theirs.names).filter(|name| !ours.names.contains(name));
    let names: Vec<_> = names.map(|(path, ino)| format!("{} {}", ino.0, path.escape_ascii())).collect();
    if !names.is_empty() {
        differences.push(("we lose a name", format!("{}\n{said}", names.join("\n"))));
    }
    differences
}

/// Returns the output of two runs of e2fsck and the resulting image, if both runs end.
fn e2fsck_repaired(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let (verdict, first) = e2fsck(bytes, &["-fy"]);
    let (second, fixed) = e2fsck(&first, &["-fy"]);
    matches!(second.code, 0..=1).then_some((verdict.text, fixed))
}

/// The contents of a volume.
struct VolumeContents {
    contents: Contents,
    /// Every name that refers to an inode, with that inode.
    names: BTreeSet<(Vec<u8>, Ino)>,
}

impl VolumeContents {
    fn of(bytes: &[u8]) -> Self {
        let device = Arc::new(MemDevice::read_only(bytes.to_vec()));
        let entries = open_volume(device, &common::options())
            .map_or_else(|_| Vec::new(), |volume| common::read_everything(&Ext4::new(volume)).entries);
        let names = entries.into_iter().map(|(path, attr)| (path, attr.ino)).collect();
        Self { contents: contents(bytes), names }
    }
}

#[test]
fn check_and_repair_agree_with_e2fsck_on_every_image_except_for_documented_differences() {
    if !require(&[Oracle::Corpus, Oracle::Program("e2fsck"), Oracle::Program("timeout")]) {
        return;
    }
    let only = std::env::var("OBENTO_ONLY").unwrap_or_default();
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut waiting = images();
    waiting.retain(|path| name(path).contains(&only));
    assert!(!only.is_empty() || waiting.len() > 50, "{} images", waiting.len());
    let names: BTreeSet<_> = waiting.iter().map(name).collect();
    let (waiting, found) = (Mutex::new(waiting), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = { waiting.lock().unwrap().pop() } {
                    for (how, words) in compare(&Arc::new(unpack(&path))) {
                        found.lock().unwrap().insert((name(&path), how.to_owned()), words);
                    }
                }
            });
        }
    });
    let (found, mut known) = (found.into_inner().unwrap(), documented());
    let absent: Vec<_> = known.iter().filter(|(image, _)| !names.contains(image)).collect();
    assert!(names.len() < WHOLE || absent.is_empty(), "rows whose images do not exist: {absent:?}");
    known.retain(|(image, _)| names.contains(image));
    let new: Vec<_> = found.iter().filter(|(difference, _)| !known.contains(*difference)).collect();
    for ((image, how), words) in &new {
        let words: Vec<_> = words.lines().filter(|line| !line.is_empty()).take(MOST_LINES).collect();
        println!("| `{image}` | {how} |\n{:.4000}\n", words.join("\n"));
    }
    let new: Vec<_> = new.iter().map(|((image, how), _)| format!("{image}: {how}")).collect();
    let gone: Vec<_> = known.iter().filter(|difference| !found.contains_key(*difference)).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "not in docs/check.md:\n{}\nonly in docs/check.md: {gone:#?}",
        new.join("\n")
    );
}
