//! Commands that are killed at random times. e2fsck finds nothing wrong after it has replayed the journal, and every
//! file has its old or its new contents.
//!
//! `OBENTO_SEED` repeats a run, except for differences in speed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use obento::fs::FsError;
use obento::walk::Step;
use obento::{Image, Volume};
use obento_testkit::oracle::program;

use super::support::{Disk, text};

/// The number of kills of each command.
const MOMENTS: u64 = 50;
const FILES: u64 = 150;
/// Files of the host that are copied.
const SOURCES: u64 = 60;

/// A sequence of changes, and the states that may follow a part of it.
struct Plan {
    name: &'static str,
    args: fn() -> Vec<String>,
    check: Check,
    /// The result of running the same command again.
    done: Check,
}

/// The problems of a volume and of the folder of the host.
type Check = fn(&Volume, &Path) -> Result<(), String>;

const PLANS: [Plan; 10] = [
    Plan {
        name: "rm -r",
        args: || words("rm -r disk.img:/tree"),
        check: files_are_complete_or_absent,
        done: |volume, _| expect(tree(volume, "/tree")?.is_empty(), "files are left"),
    },
    Plan {
        name: "mkdir -p",
        args: || {
            let paths = (0..60).map(|number| format!("disk.img:/new/{number}/a/b"));
            words("mkdir -p").into_iter().chain(paths).collect()
        },
        check: all_is_there,
        done: |volume, _| expect(volume.exists("/new/59/a/b") == Ok(true), "a directory is missing"),
    },
    Plan {
        name: "mv",
        args: || {
            let paths = (0..FILES).map(|number| format!("disk.img:/tree/{number}"));
            words("mv -t disk.img:/target").into_iter().chain(paths).collect()
        },
        check: each_is_in_one_place,
        done: |volume, _| is_all_of_it(&tree(volume, "/target")?, FILES),
    },
    Plan {
        name: "chmod -R",
        args: || words("chmod -R 600 disk.img:/tree"),
        check: modes_are_old_or_new,
        done: all_is_there,
    },
    Plan {
        name: "ln",
        args: ln_words,
        check: all_is_there,
        done: |volume, _| is_all_of_it(&tree(volume, "/target")?, FILES),
    },
    Plan {
        name: "cp",
        args: || words("cp input disk.img:/tree/0"),
        check: first_is_old_or_new,
        done: first_is_new,
    },
    Plan {
        name: "write",
        args: || words("write disk.img:/tree/0"),
        check: first_is_old_or_a_part_of_the_new,
        done: first_is_new,
    },
    Plan {
        name: "cp -r",
        args: || words("cp -rT source disk.img:/copy"),
        check: copy_is_a_part,
        done: copy_is_whole,
    },
    Plan {
        name: "import",
        args: || words("import disk.img:/copy source.tar"),
        check: copy_is_a_part,
        done: copy_is_whole,
    },
    Plan {
        name: "mv across",
        args: || words("mv -T source disk.img:/copy"),
        check: source_or_copy_is_complete,
        done: copy_is_whole,
    },
];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn ln_words() -> Vec<String> {
    let paths = (0..FILES).map(|number| format!("disk.img:/tree/{number}"));
    words("ln -t disk.img:/target").into_iter().chain(paths).collect()
}

/// Returns the contents of the file with this number.
fn content(number: u64) -> Vec<u8> {
    let len = usize::try_from(number * 137 % 9000).unwrap();
    (0..len).map(|at| (at as u64 * 7 + number) as u8).collect()
}

/// The new contents of the first file.
fn new_content() -> Vec<u8> {
    (0..3 << 20_u32).map(|at: u32| (at / 3 % 251) as u8 + 1).collect()
}

fn fill(image: &Path) {
    let image = Image::builder().for_change().open(image).unwrap();
    let volume = image.volume(None).unwrap();
    volume.create_dir("/tree").unwrap();
    volume.create_dir("/target").unwrap();
    volume.create_dir("/copy").unwrap();
    for number in 0..FILES {
        volume.write(format!("/tree/{number}"), content(number)).unwrap();
    }
    volume.close().unwrap();
}

/// Returns the numbered files below `directory`.
fn files(volume: &Volume, directory: &str) -> Result<BTreeMap<u64, Vec<u8>>, FsError> {
    if !volume.exists(directory)? {
        return Ok(BTreeMap::new());
    }
    let mut found = BTreeMap::new();
    for entry in volume.read_dir(directory)? {
        let entry = entry?;
        let number = String::from_utf8_lossy(entry.file_name()).parse().unwrap();
        found.insert(number, volume.read(entry.path())?);
    }
    Ok(found)
}

fn tree(volume: &Volume, directory: &str) -> Result<BTreeMap<u64, Vec<u8>>, String> {
    files(volume, directory).map_err(|error| error.to_string())
}

fn expect_whole(files: &BTreeMap<u64, Vec<u8>>) -> Result<(), String> {
    match files.iter().find(|(number, bytes)| **bytes != content(**number)) {
        Some((number, bytes)) => Err(format!("file {number} has other contents, of {} bytes", bytes.len())),
        None => Ok(()),
    }
}

fn files_are_complete_or_absent(volume: &Volume, _: &Path) -> Result<(), String> {
    expect_whole(&tree(volume, "/tree")?)
}

fn all_is_there(volume: &Volume, _: &Path) -> Result<(), String> {
    let files = tree(volume, "/tree")?;
    expect_whole(&files)?;
    expect_whole(&tree(volume, "/target")?)?;
    if files.len() as u64 == FILES { Ok(()) } else { Err(format!("{} files are left", files.len())) }
}

fn each_is_in_one_place(volume: &Volume, _: &Path) -> Result<(), String> {
    let (old, new) = (tree(volume, "/tree")?, tree(volume, "/target")?);
    expect_whole(&old)?;
    expect_whole(&new)?;
    let both = old.keys().filter(|number| new.contains_key(number)).count();
    match (both, old.len() + new.len()) {
        (0, count) if count as u64 == FILES => Ok(()),
        (both, count) => Err(format!("{count} names of {FILES} files, {both} of them in both places")),
    }
}

fn modes_are_old_or_new(volume: &Volume, _: &Path) -> Result<(), String> {
    all_is_there(volume, Path::new(""))?;
    for entry in volume.read_dir("/tree").map_err(|error| error.to_string())? {
        let mode = entry.and_then(|entry| entry.metadata()).map_err(|error| error.to_string())?.permissions();
        if ![0o644, 0o600].contains(&mode.bits()) {
            return Err(format!("the mode {:o}", mode.bits()));
        }
    }
    Ok(())
}

fn first_is_old_or_a_part_of_the_new(volume: &Volume, _: &Path) -> Result<(), String> {
    let mut files = tree(volume, "/tree")?;
    let first = files.remove(&0).ok_or("the file is gone")?;
    expect_whole(&files)?;
    if first == content(0) || new_content().starts_with(&first) {
        return Ok(());
    }
    Err(format!("{} bytes that are neither old nor new", first.len()))
}

fn first_is_old_or_new(volume: &Volume, _: &Path) -> Result<(), String> {
    let first = volume.read("/tree/0").map_err(|error| error.to_string())?;
    if first == content(0) || first == new_content() {
        return Ok(());
    }
    Err(format!("{} bytes that are neither old nor new", first.len()))
}

fn first_is_new(volume: &Volume, _: &Path) -> Result<(), String> {
    let first = volume.read("/tree/0").map_err(|error| error.to_string())?;
    expect(first == new_content(), "the file is not the new one")?;
    let left = volume.read_dir("/tree").map_err(|error| error.to_string())?.count();
    expect(left as u64 == FILES, "something is left beside it")
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn is_all_of_it(files: &BTreeMap<u64, Vec<u8>>, count: u64) -> Result<(), String> {
    expect_whole(files)?;
    expect(files.len() as u64 == count, &format!("{} files are there", files.len()))
}

fn copy_is_whole(volume: &Volume, _: &Path) -> Result<(), String> {
    is_all_of_it(&tree(volume, "/copy")?, SOURCES)?;
    let root = volume.read_dir("/").map_err(|error| error.to_string())?.count();
    expect(root == 4, "something is left beside it")
}

fn copy_is_a_part(volume: &Volume, _: &Path) -> Result<(), String> {
    let files = tree(volume, "/copy")?;
    let is_part = |(number, bytes): (&u64, &Vec<u8>)| content(*number).starts_with(bytes);
    expect(files.iter().all(is_part), "a file holds what is not its own")
}

fn source_or_copy_is_complete(volume: &Volume, folder: &Path) -> Result<(), String> {
    let copy = tree(volume, "/copy")?;
    if !copy.is_empty() {
        return is_all_of_it(&copy, SOURCES);
    }
    let is_there = |number| {
        fs::read(folder.join(format!("source/{number}"))).is_ok_and(|bytes| bytes == content(number))
    };
    expect((0..SOURCES).all(is_there), "a file is in neither place")
}

/// The folder of the host that is copied.
fn make_source(folder: &Path) {
    let source = folder.join("source");
    fs::create_dir_all(&source).unwrap();
    for number in 0..SOURCES {
        fs::write(source.join(number.to_string()), content(number)).unwrap();
    }
}

/// Returns what e2fsck reports for `image` after it has replayed the journal. Only orphans may need a repair.
fn judge(image: &Path) -> Result<(), String> {
    let said = |args: &[&str]| {
        let output = program("e2fsck").args(args).arg(image).output().unwrap();
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let (code, replay) = said(&["-fy"]);
    let repaired = replay.lines().any(|line| line.contains("? yes"));
    if repaired || !matches!(code, Some(0 | 1)) {
        return Err(format!("e2fsck -fy: {code:?}: {replay}"));
    }
    match said(&["-fn"]) {
        (Some(0), _) => Ok(()),
        (code, text) => Err(format!("e2fsck -fn: {code:?}: {text}")),
    }
}

/// Runs `plan`, and kills it after `moment` if it is still running. Returns the duration.
fn run(disk: &Disk, plan: &Plan, moment: Option<Duration>) -> Duration {
    make_source(disk.folder());
    let input = disk.folder().join("input");
    let mut command = disk.command(&(plan.args)());
    command.stdin(fs::File::open(&input).unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    if let Some(moment) = moment {
        while start.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    if moment.is_none() {
        assert!(output.status.success(), "{}: {}", plan.name, text(&output.stderr));
    }
    start.elapsed()
}

#[test]
fn a_command_that_is_killed_at_any_moment_leaves_a_whole_volume_and_files_old_or_new() {
    let Some(disk) = Disk::new("24M", &[]) else { return };
    fill(&disk.image());
    fs::write(disk.folder().join("input"), new_content()).unwrap();
    make_source(disk.folder());
    let tar = disk.folder().join("source.tar");
    let packed =
        program("tar").arg("-C").arg(disk.folder().join("source")).arg("-cf").arg(&tar).arg(".").status();
    assert!(packed.unwrap().success());
    let original = disk.folder().join("original.img");
    fs::copy(disk.image(), &original).unwrap();
    let clock = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = std::env::var("OBENTO_SEED").map_or(u64::from(clock), |seed| seed.parse().unwrap());
    println!("OBENTO_SEED={seed}");
    let mut state = seed | 1;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let whole = PLANS.map(|plan| {
        fs::copy(&original, disk.image()).unwrap();
        let whole = run(&disk, &plan, None);
        // A reported success is on stable storage, and the volume is closed.
        judge(&disk.image()).unwrap();
        whole
    });
    let mut killed_midway = 0;
    for moment in 0..MOMENTS {
        let index = usize::try_from(moment).unwrap() % PLANS.len();
        let (plan, whole) = (&PLANS[index], whole[index]);
        fs::copy(&original, disk.image()).unwrap();
        let at = Duration::from_nanos(random(u64::try_from(whole.as_nanos()).unwrap() * 11 / 10));
        run(&disk, plan, Some(at));
        killed_midway += u64::from(needs_replay(&disk.image()));
        let failed = |what: String| panic!("OBENTO_SEED={seed}: {} killed after {at:?}: {what}", plan.name);
        let look = |image: &Path, check| look(image, disk.folder(), check);
        look(&disk.image(), plan.check).unwrap_or_else(|error| failed(format!("before e2fsck: {error}")));
        let left = disk.folder().join("left.img");
        fs::copy(disk.image(), &left).unwrap();
        judge(&left).unwrap_or_else(failed);
        look(&left, plan.check).unwrap_or_else(failed);
        run_again(&disk, plan).unwrap_or_else(|error| failed(format!("once more: {error}")));
        look(&disk.image(), plan.done)
            .unwrap_or_else(|error| failed(format!("after it ran once more: {error}")));
        judge(&disk.image()).unwrap_or_else(failed);
    }
    println!("{killed_midway} of {MOMENTS} were killed between opening and closing");
    assert!(killed_midway > 0, "no moment fell into a change");
}

/// Runs `plan` once more. Files that the first run handled may be missing now, or exist already. An example is the
/// target of a move whose source was about to be removed.
fn run_again(disk: &Disk, plan: &Plan) -> Result<(), String> {
    let input = fs::File::open(disk.folder().join("input")).unwrap();
    let output = disk.command(&(plan.args)()).stdin(input).output().unwrap();
    let errors = text(&output.stderr);
    let is_known = |line: &str| {
        let known =
            ["no such file or directory", "file exists", "not empty", ": note: ", "  help: ", "No such file"];
        known.iter().any(|known| line.contains(known))
    };
    match output.status.code() {
        Some(0 | 1) if errors.lines().all(is_known) => Ok(()),
        code => Err(format!("{code:?}: {errors}")),
    }
}

/// Returns whether the volume was open when its process ended: `EXT4_FEATURE_INCOMPAT_RECOVER`.
fn needs_replay(image: &Path) -> bool {
    let bytes = fs::read(image).unwrap();
    bytes[1024 + 0x60] & 4 != 0
}

/// Returns the tree that obento reads, after its own replay.
fn look(image: &Path, folder: &Path, check: Check) -> Result<(), String> {
    let image = Image::open(image).map_err(|error| error.to_string())?;
    let volume = image.volume(None).map_err(|error| error.to_string())?;
    let steps = volume.walk();
    for entry in steps {
        let entry = entry.map_err(|damage| damage.error.to_string())?;
        assert!(entry.step == Step::Leave || entry.attr.nlink > 0);
    }
    check(&volume, folder)
}
