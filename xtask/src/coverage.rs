//! Which lines of the file systems, the journal, the cache and the layer above them the tests run.
//!
//! The compiler counts (`-C instrument-coverage`), each process of a test leaves its counts in a file, and LLVM's tools of the
//! compiler's own version add them up. Counted are the lines of `src` alone, and of these only what is no test: neither an item
//! under `#[cfg(test)]` nor a file that such an item names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::packages;
use crate::programs::{self, Program};
use crate::timed::Taken;

/// What is measured: a folder of `crates`, and the packages whose tests are its own. `block` has the cache.
const MEASURED: [(&str, &[&str]); 11] = [
    ("block", &["obento-block"]),
    ("journal", &["obento-journal"]),
    ("vfs", &["obento-vfs"]),
    // What FAT and exFAT share has few tests but theirs.
    ("fs/clusters", &["obento-clusters", "obento-fat", "obento-exfat"]),
    ("fs/exfat", &["obento-exfat"]),
    // Images are built of sources, which `obento` has.
    ("fs/ext4", &["obento-ext4", "obento"]),
    ("fs/fat", &["obento-fat"]),
    // It knows no format: the driver that uses it tests it.
    ("fs/inodes", &["obento-inodes", "obento-xv6"]),
    ("fs/ntfs", &["obento-ntfs"]),
    // The model of the tests of others, and what the contract's own are tried on.
    ("fs/tmpfs", &["obento-tmpfs", "obento-vfs", "obento-testkit"]),
    ("fs/xv6", &["obento-xv6"]),
];

/// The packages whose tests are counted in.
pub fn packages() -> BTreeSet<&'static str> {
    MEASURED.iter().flat_map(|(_, packages)| *packages).copied().collect()
}

/// Fewer lines in a hundred than this are too few.
const LEAST: u64 = 90;

/// What to tell.
#[derive(clap::Args)]
pub struct Options {
    /// Fail where fewer lines in a hundred are run.
    #[arg(long, default_value_t = LEAST)]
    least: u64,
    /// Only this folder of `crates`, with its tests alone: `fs/xv6`.
    #[arg(long)]
    only: Option<String>,
    /// Show which lines no test runs.
    #[arg(long)]
    missing: bool,
    /// Further arguments for the programs of tests.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Options {
    /// Of everything, with these arguments for the programs of tests.
    pub fn all(arguments: &[String]) -> Self {
        Self { least: LEAST, only: None, missing: false, arguments: arguments.to_vec() }
    }
}

/// Lines of one file: how often each was run.
type Lines = BTreeMap<usize, u64>;

/// Runs the tests with counters, and prints what share of the lines they ran. `others` run beside them, and count nothing.
pub fn run(shell: &Shell, options: &Options, others: Vec<Program>, taken: &mut Taken) -> Result<()> {
    let tools = Tools::find(shell)?;
    // The compiler names files so, without `..`.
    let root = shell.current_dir().canonicalize()?;
    let measured: Vec<_> = MEASURED
        .into_iter()
        .filter(|(folder, _)| options.only.as_ref().is_none_or(|only| only == folder))
        .collect();
    ensure!(!measured.is_empty(), "nothing of this name is measured: {MEASURED:?}");
    let packages: BTreeSet<_> = measured.iter().flat_map(|(_, packages)| *packages).copied().collect();
    let target = target(&root);
    let counts = target.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    // Of each program at most four files, which its processes add to in turn.
    let _counts = shell.push_env("LLVM_PROFILE_FILE", counts.join("%4m.profraw"));
    let built = {
        let _counting = counting(shell, &target);
        build(shell, &packages)?
    };
    let mut all = Program::built(&built)?;
    all.extend(others);
    let tested = programs::run(shell, all, &options.arguments, taken);
    let documented = documented(shell, &target, &packages, taken);
    let lines = tools.lines(shell, &counts, &executables(&built))?;
    let share = told(&root, &measured, &lines, options.missing)?;
    tested?;
    documented?;
    ensure!(share >= options.least, "fewer than {} lines in a hundred are run", options.least);
    Ok(())
}

/// Where programs lie that count.
fn target(root: &Path) -> PathBuf {
    root.join("target/coverage")
}

const COUNT: &str = "-C instrument-coverage";

/// Programs that are built from now on count.
fn counting<'a>(shell: &'a Shell, target: &Path) -> [xshell::PushEnv<'a>; 2] {
    [shell.push_env("RUSTFLAGS", COUNT), shell.push_env("CARGO_TARGET_DIR", target)]
}

/// Builds the tests of `packages`. Answers cargo's messages.
fn build(shell: &Shell, packages: &BTreeSet<&str>) -> Result<String> {
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    Ok(cmd!(shell, "cargo test --locked --no-run --message-format=json-render-diagnostics {packages...}")
        .read()?)
}

/// Runs the examples in the documentation of `packages`, of which nothing more is built so.
fn documented(shell: &Shell, target: &Path, packages: &BTreeSet<&str>, taken: &mut Taken) -> Result<()> {
    let _counting = counting(shell, target);
    let _linked = shell.push_env("RUSTDOCFLAGS", COUNT);
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    taken.run(cmd!(shell, "cargo test --doc --locked --no-fail-fast {packages...}"))
}

/// Builds all tests as [`run`] does, after which nothing is left to build.
pub fn build_all(shell: &Shell) -> Result<Vec<Program>> {
    let target = target(&shell.current_dir().canonicalize()?);
    let _counting = counting(shell, &target);
    Program::built(&build(shell, &packages())?)
}

/// LLVM's tools of the compiler's version.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Those of the toolchain (`rustup component add llvm-tools`), or of Debian's package of that version.
    fn find(shell: &Shell) -> Result<Self> {
        let said = cmd!(shell, "rustc -vV").quiet().read()?;
        let word = |of: &str| said.lines().find_map(|line| line.strip_prefix(of)).map(str::to_owned);
        let (host, version) = word("host: ").zip(word("LLVM version: ")).context("rustc tells no version")?;
        let major = version.split('.').next().unwrap_or_default().to_owned();
        let root = cmd!(shell, "rustc --print sysroot").quiet().read()?;
        let own = Path::new(&root).join("lib/rustlib").join(host).join("bin");
        let debian = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
        let has = |folder: &Path| folder.join("llvm-profdata").exists() && folder.join("llvm-cov").exists();
        if !has(&own) && !has(&debian) {
            let (file, package) = (debian.join("llvm-cov"), format!("llvm-{major}"));
            packages::ensure_one(shell, &file, &package)?;
        }
        match [own, debian].into_iter().find(|folder| has(folder)) {
            Some(folder) => Ok(Self { folder }),
            None => bail!(
                "nothing here reads the counts of LLVM {major}: rustup component add llvm-tools, or apt-get install llvm-{major}"
            ),
        }
    }

    /// How often each line of each file was run.
    fn lines(&self, shell: &Shell, counts: &Path, programs: &[String]) -> Result<BTreeMap<PathBuf, Lines>> {
        let (profdata, cov) = (self.folder.join("llvm-profdata"), self.folder.join("llvm-cov"));
        let (files, all) = (shell.read_dir(counts)?, counts.join("all"));
        cmd!(shell, "{profdata} merge -sparse -o {all} {files...}").quiet().run()?;
        let objects: Vec<&str> = programs.iter().flat_map(|program| ["-object", program]).collect();
        let told = cmd!(shell, "{cov} export -format=lcov -instr-profile={all} {objects...}")
            .quiet()
            .ignore_stderr()
            .read()?;
        Ok(of_lcov(&told))
    }
}

/// The programs that cargo tells to have built.
fn executables(messages: &str) -> Vec<String> {
    let program = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    messages.lines().filter_map(program).collect()
}

/// The format is that of geninfo(1): `SF:` names a file, `DA:` a line and how often it was run.
fn of_lcov(text: &str) -> BTreeMap<PathBuf, Lines> {
    let (mut files, mut file) = (BTreeMap::<PathBuf, Lines>::new(), PathBuf::new());
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.into();
        } else if let Some((number, count)) = line.strip_prefix("DA:").and_then(|rest| rest.split_once(',')) {
            let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>()) else { continue };
            let times = files.entry(file.clone()).or_default().entry(number).or_default();
            *times = (*times).max(count);
        }
    }
    files
}

/// Prints a table, and with `missing` what was not run. The smallest share in a hundred.
fn told(
    root: &Path,
    measured: &[(&str, &[&str])],
    files: &BTreeMap<PathBuf, Lines>,
    missing: bool,
) -> Result<u64> {
    println!("| crate | lines | run | |\n|---|---|---|---|");
    let (mut least, mut gaps) = (100, Vec::new());
    for (folder, _) in measured {
        let source = root.join("crates").join(folder).join("src");
        let (mut all, mut run) = (0, 0);
        let own: Vec<_> = files.iter().filter(|(path, _)| path.starts_with(&source)).collect();
        let tests =
            own.iter().map(|(path, _)| Ok((path.as_path(), Tests::of(path, &fs::read_to_string(path)?))));
        let tests: BTreeMap<&Path, Tests> = tests.collect::<Result<_>>()?;
        let files_of_tests: BTreeSet<&PathBuf> = tests.values().flat_map(|tests| &tests.files).collect();
        for (path, lines) in own.into_iter().filter(|(path, _)| !files_of_tests.contains(path)) {
            let is_test = |line: usize| tests[path.as_path()].lines.iter().any(|item| item.contains(&line));
            let code = || lines.iter().filter(|(line, _)| !is_test(**line));
            all += code().count() as u64;
            run += code().filter(|(_, times)| **times > 0).count() as u64;
            let left: Vec<usize> = code().filter(|(_, times)| **times == 0).map(|(line, _)| *line).collect();
            gaps.extend((!left.is_empty()).then(|| format!("{}: {}", path.display(), ranges(&left))));
        }
        ensure!(all > 0, "of {folder} no line was counted");
        println!("| {folder} | {all} | {run} | {:.1} % |", run as f64 * 100.0 / all as f64);
        least = least.min(run * 100 / all);
    }
    gaps.iter().filter(|_| missing).for_each(|gap| println!("{gap}"));
    Ok(least)
}

/// What of a file is compiled for tests alone.
#[derive(Debug, Default, PartialEq)]
struct Tests {
    lines: Vec<RangeInclusive<usize>>,
    /// The modules that are files of their own.
    files: Vec<PathBuf>,
}

impl Tests {
    /// By the form that rustfmt gives an item: it ends on its first line, or with a bracket as far in as it began.
    fn of(path: &Path, text: &str) -> Self {
        let mut found = Self::default();
        let mut lines = (1..).zip(text.lines());
        while let Some((start, attribute)) = lines.next() {
            if attribute.trim() != "#[cfg(test)]" {
                continue;
            }
            let indent = &attribute[..attribute.len() - attribute.trim_start().len()];
            let is_item = |line: &str| !matches!(line.trim_start().get(..2), Some("#[" | "//"));
            let Some((first, item)) = lines.find(|(_, line)| is_item(line)) else { break };
            let is_whole = item.ends_with(';') || item.ends_with("{}");
            let last = if is_whole { None } else { lines.find(|(_, line)| is_end(line, indent)) };
            found.lines.push(start..=last.map_or(first, |(number, _)| number));
            let module = item.trim().strip_suffix(';').and_then(|item| item.strip_prefix("mod "));
            found.files.extend(module.map(|name| file_of(path, name)));
        }
        found
    }
}

fn is_end(line: &str, indent: &str) -> bool {
    line.strip_prefix(indent).is_some_and(|rest| matches!(rest, "}" | "};" | ");"))
}

/// Where the module `name` of the file at `path` lies.
fn file_of(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let is_root = ["mod", "lib", "main"].iter().any(|root| stem == *root);
    let folder = if is_root { path.with_file_name("") } else { path.with_extension("") };
    folder.join(name).with_extension("rs")
}

/// `3-5, 9`.
fn ranges(lines: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &line in lines {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == line => *end = line,
            _ => runs.push((line, line)),
        }
    }
    let shown = |(start, end): (usize, usize)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    runs.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_files_for_tests_are_left_out_wherever_they_stand() {
        let text = "mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) use a::B;\nfn c() {\n    #[cfg(test)]\n    {\n        d();\n    }\n    e();\n}\n\
                    #[cfg(test)]\n#[allow(unused)]\nmod more {\n    fn f() {\n    }\n}\nfn g() {}\n";
        let found = Tests::of(Path::new("/x/dir/mod.rs"), text);
        assert_eq!(found.lines, [2..=3, 4..=5, 7..=10, 13..=18]);
        assert_eq!(found.files, [Path::new("/x/dir/tests.rs")]);
        assert_eq!(file_of(Path::new("/x/dir.rs"), "tests"), Path::new("/x/dir/tests.rs"));
    }

    #[test]
    fn lines_are_counted_but_for_those_of_tests_and_gaps_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/x/src");
        fs::create_dir_all(&source).unwrap();
        let file = source.join("lib.rs");
        fs::write(&file, "fn a() {\n}\nfn b() {\n}\n#[cfg(test)]\nmod tests {}\n").unwrap();
        let text = format!("SF:{}\nDA:1,7\nDA:2,7\nDA:3,0\nDA:4,0\nDA:6,0\nend_of_record\n", file.display());
        // A line of a generic function is told once for each of its types.
        let files = of_lcov(&format!("{text}SF:{}\nDA:4,1\n", file.display()));
        assert_eq!(told(folder.path(), &[("x", &["x"])], &files, true).unwrap(), 75);
        assert!(told(folder.path(), &[("y", &["y"])], &files, true).is_err(), "nothing counted is no share");
        assert_eq!(ranges(&[3, 4, 5, 9]), "3-5, 9");
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = "{\"reason\":\"compiler-artifact\",\"executable\":\"/t/a-1\"}\n{\"executable\":null}";
        assert_eq!(executables(said), ["/t/a-1"]);
    }
}
