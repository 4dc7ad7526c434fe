//! Volumes that are randomly damaged and repaired in one run, with fixed seeds, and compared with the checker of the
//! format.
//!
//! After one `check -y`, our check and the other checker find no damage. The volume opens, and everything in it can be
//! read. It contains every name of the sound volume that the other checker's repair keeps. For formats with only files
//! and directories, in this process and on small images.

use std::collections::BTreeSet;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento_base::{FileKind, Ino};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{CheckOptions, Cookie, FileSystem, Finding, RepairMode};
use obento_env::FixedClock;

use crate::changes::read;
use crate::mutants::Random;
use crate::scratch::memory_folder;
use crate::trials::format::Format;

/// A limit for the check of an image of a few MiB.
const LIMIT: Duration = Duration::from_secs(20);

/// A sound volume.
pub struct Base {
    /// The name.
    pub name: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A format, how its volumes are damaged, and the checker.
pub struct Repairs {
    /// The format.
    pub format: &'static Format,
    /// Damages a volume.
    pub harm: fn(&mut [u8], &mut Random),
    /// Checks an image without changing it, and returns the damage.
    pub faults: fn(&Path) -> Result<(), String>,
    /// Returns whether this damage, which the checker reports after our repair, is excused.
    pub is_excused: fn(&str) -> bool,
}

/// The mutants to test.
pub struct Which {
    /// Test only this base.
    pub only: Option<String>,
    /// The seeds.
    pub seeds: Range<u64>,
}

impl Which {
    /// Reads the environment, which `cargo xtask check-mutants` sets.
    pub fn of_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str| text(name).and_then(|n| n.parse::<u64>().ok());
        let first = number("OBENTO_SEED").unwrap_or(1);
        Self { only: text("OBENTO_ONLY"), seeds: first..first + number("OBENTO_MUTANTS").unwrap_or(1000) }
    }
}

impl Repairs {
    /// Tests mutants of each base. Panics if one fails.
    pub fn run(&self, bases: &[Base], which: &Which) {
        let bases: Vec<_> =
            bases.iter().filter(|base| which.only.as_ref().is_none_or(|only| base.name == only)).collect();
        let outcomes = bases.iter().map(|base| {
            let mutants = which.seeds.clone().map(|seed| (format!("seed {seed}"), self.mutant(base, seed)));
            self.try_all(base, mutants)
        });
        Self::finish(outcomes);
    }

    /// Tests a volume for each bit of `places` of each base, with this bit flipped. Panics if one fails.
    pub fn run_bits(&self, bases: &[Base], places: impl Fn(&Base) -> Vec<usize>) {
        let outcomes = bases.iter().map(|base| {
            let places = places(base);
            let bits = places.iter().flat_map(|&at| (0..8).map(move |bit| (at, bit)));
            let mutants = bits.map(|(at, bit)| {
                let mut bytes = base.bytes.clone();
                bytes[at] ^= 1 << bit;
                (format!("byte {at:#x}, bit {bit}"), bytes)
            });
            self.try_all(base, mutants)
        });
        Self::finish(outcomes);
    }

    fn finish(outcomes: impl Iterator<Item = (usize, Vec<String>)>) {
        let (mut judged, mut failures) = (0, Vec::new());
        for (count, failed) in outcomes {
            judged += count;
            failures.extend(failed);
        }
        println!("{judged} mutants, {} differences", failures.len());
        assert!(judged > 0, "no base has the requested name");
        assert!(failures.is_empty(), "{} of {judged}:\n{}", failures.len(), failures.join("\n"));
    }

    /// Returns the number of tested mutants and the failures. `OBENTO_KEEP` is a folder for failed mutants.
    fn try_all(&self, base: &Base, mutants: impl Iterator<Item = (String, Vec<u8>)>) -> (usize, Vec<String>) {
        let folder = tempfile::Builder::new().tempdir_in(memory_folder()).expect("a folder");
        let image = folder.path().join("judged.img");
        let (mut judged, mut failures) = (0, Vec::new());
        let sound = self.walk(&base.bytes).expect("the base is sound");
        self.is_sound(base, &image).expect("the base is sound");
        for (name, bytes) in mutants {
            judged += 1;
            let judge = || self.judge(&sound, &bytes, &image);
            let outcome = catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| Err("panics".into()));
            if let Err(reason) = outcome {
                println!("{} {name}: {reason:.2000}\n", base.name);
                failures.push(format!("{} {name}: {reason:.300}", base.name));
                if let Some(folder) = std::env::var_os("OBENTO_KEEP") {
                    let file = format!("{} {name}.img", base.name).replace(' ', "-");
                    fs::write(Path::new(&folder).join(file), &bytes).expect("the folder can be written to");
                }
            }
        }
        println!("{}: {judged} mutants, {} differences", base.name, failures.len());
        (judged, failures)
    }

    /// Returns the mutant with this seed.
    pub fn mutant(&self, base: &Base, seed: u64) -> Vec<u8> {
        let mut bytes = base.bytes.clone();
        (self.harm)(&mut bytes, &mut Random::new(seed));
        bytes
    }

    fn is_sound(&self, base: &Base, image: &Path) -> Result<(), String> {
        fs::write(image, &base.bytes).expect("room");
        (self.faults)(image)?;
        let found = self.check(&base.bytes, RepairMode::Nothing)?.1;
        if found.is_empty() { Ok(()) } else { Err(reported(&found)) }
    }

    /// Tests one mutant. Fails with a description.
    fn judge(&self, sound: &BTreeSet<String>, bytes: &[u8], image: &Path) -> Result<(), String> {
        let (after, repaired) = match self.check(bytes, RepairMode::All) {
            Ok(repaired) => repaired,
            // A mutant that is no longer recognised as a volume cannot be repaired.
            Err(reason) => {
                let theirs = self.theirs(bytes, image).unwrap_or_default();
                let lost: Vec<_> = sound.intersection(&theirs).collect();
                return if lost.is_empty() { Ok(()) } else { Err(format!("is not repaired: {reason}")) };
            }
        };
        let context = reported(&repaired);
        if repaired.iter().any(|finding| finding.code == "truncated") {
            return Ok(());
        }
        let (_, left) = self.check(&after, RepairMode::Nothing)?;
        if !left.is_empty() {
            return Err(format!("after the repair of {context} we find {}", reported(&left)));
        }
        let ours = self.walk(&after).map_err(|error| format!("after the repair of {context}: {error}"))?;
        fs::write(image, &after).expect("room");
        if let Err(said) = (self.faults)(image)
            && !(self.is_excused)(&said)
        {
            return Err(format!("after the repair of {context} the other checker reports {said}"));
        }
        let lost: BTreeSet<String> = sound.difference(&ours).cloned().collect();
        if !lost.is_empty()
            && let Ok(theirs) = self.theirs(bytes, image)
        {
            let lost: Vec<_> = lost.intersection(&theirs).collect();
            if !lost.is_empty() {
                return Err(format!("the repair of {context} loses {lost:?}"));
            }
        }
        if repaired.is_empty() {
            fs::write(image, bytes).expect("room");
            return (self.faults)(image).or_else(|said| match (self.is_excused)(&said) {
                true => Ok(()),
                false => Err(format!("only the other checker reports {said}")),
            });
        }
        Ok(())
    }

    /// Returns the names after the repair by the other checker.
    fn theirs(&self, bytes: &[u8], image: &Path) -> Result<BTreeSet<String>, String> {
        fs::write(image, bytes).expect("room");
        let mut command = crate::oracle::program(self.format.judge);
        let _ = command.arg(self.format.repair).arg(image).output().expect("the program starts");
        self.walk(&fs::read(image).expect("an image"))
    }

    /// Returns the bytes after a check, and its findings without notes.
    fn check(&self, bytes: &[u8], repair_mode: RepairMode) -> Result<(Vec<u8>, Vec<Finding>), String> {
        let device = Arc::new(MemDevice::new(bytes.to_vec()));
        let clock = Arc::new(FixedClock(self.format.now));
        let options = CheckOptions { repair_mode, ..CheckOptions::new(clock) };
        let mut found: Vec<Finding> = Vec::new();
        let started = Instant::now();
        let driver = (self.format.driver)();
        let check = driver.check().expect("the driver checks");
        check.check(device.clone(), &options, &mut found).map_err(|error| error.to_string())?;
        if started.elapsed() > LIMIT {
            return Err(format!("the check takes {:?}", started.elapsed()));
        }
        let mut after = bytes.to_vec();
        device.read_at(0, &mut after).expect("memory");
        found.retain(|finding| finding.severity > obento_driver::Severity::Note);
        Ok((after, found))
    }

    /// Returns all names of a volume, each of which must be found and readable.
    fn walk(&self, bytes: &[u8]) -> Result<BTreeSet<String>, String> {
        let fs = self.format.open_bytes(bytes).map_err(|error| format!("it does not open: {error}"))?;
        let mut names = BTreeSet::new();
        let mut todo = vec![(String::new(), fs.root())];
        while let Some((path, dir)) = todo.pop() {
            for (name, ino) in children(&*fs, dir).map_err(|error| format!("{path:?}: {error}"))? {
                let path = format!("{path}/{}", String::from_utf8_lossy(&name));
                let there = fs.lookup(dir, obento_base::Name::new(&name).expect("it was listed"));
                if there != Ok(ino) {
                    return Err(format!("{path:?} is listed as {ino:?} and found as {there:?}"));
                }
                let attr = fs.getattr(ino).map_err(|error| format!("{path:?}: {error}"))?;
                if attr.kind == FileKind::Directory {
                    todo.push((path.clone(), ino));
                } else {
                    read(&*fs, ino, attr.size).map_err(|error| format!("{path:?}: {error}"))?;
                }
                names.insert(path);
            }
        }
        Ok(names)
    }
}

/// Returns the names in a directory. Fails with the first error of the listing.
fn children(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, obento_base::Error> {
    let (mut children, mut failed) = (Vec::new(), None);
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        match entry {
            Ok(entry) => children.push((entry.name.as_bytes().to_vec(), entry.ino)),
            Err(error) => failed = failed.or(Some(error)),
        }
        ControlFlow::Continue(())
    })?;
    failed.map_or(Ok(children), Err)
}

fn reported(found: &[Finding]) -> String {
    let lines: Vec<String> =
        found.iter().take(8).map(|finding| format!("{}: {finding}", finding.code)).collect();
    format!("{} findings {lines:?}", found.len())
}
