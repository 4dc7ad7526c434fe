//! Line coverage of the file systems, the journal, the cache and `vfs`.
//!
//! The compiler adds counters (`-C instrument-coverage`), each test process writes its counters to a file, and the LLVM
//! tools of the compiler's version add them up. Only lines of `src` that are not tests count. Items under
//! `#[cfg(test)]` and files that such items include are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::counted;
use crate::crates::{self, Crate};
use crate::packages;
use crate::programs::{self, Program};
use crate::timed::Taken;

/// Returns the packages whose tests count.
pub fn packages(shell: &Shell) -> Result<BTreeSet<String>> {
    Ok(counting(&crates::all(shell)?))
}

/// Returns the packages whose tests count for `crates`.
fn counting(crates: &[Crate]) -> BTreeSet<String> {
    crates.iter().flat_map(|one| one.coverage.iter().flatten()).cloned().collect()
}

/// The default of the least coverage, in percent.
const LEAST: u64 = 90;

/// The options of a report.
#[derive(clap::Args)]
pub struct Options {
    /// Fail if the coverage of a folder is lower, in percent.
    #[arg(long, default_value_t = LEAST)]
    least: u64,
    /// Measure only this folder of `crates`, by its own tests: `fs/xv6`.
    #[arg(long)]
    only: Option<String>,
    /// Print the lines that no test runs.
    #[arg(long)]
    missing: bool,
    /// Further arguments for the test programs.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Options {
    /// Returns the options for everything, with these arguments for the test programs.
    pub fn all(arguments: &[String]) -> Self {
        Self { least: LEAST, only: None, missing: false, arguments: arguments.to_vec() }
    }
}

/// The number of times that each line of a file ran.
type Lines = BTreeMap<usize, u64>;

/// Runs the tests with counters, and prints the coverage. `others` run at the same time and do not count.
pub fn run(shell: &Shell, options: &Options, others: Vec<Program>, taken: &mut Taken) -> Result<()> {
    let tools = Tools::find(shell)?;
    // The compiler writes file names without `..`.
    let root = shell.current_dir().canonicalize()?;
    let is_meant =
        |one: &Crate| options.only.as_ref().is_none_or(|only| one.folder == format!("crates/{only}"));
    let measured: Vec<_> =
        crates::all(shell)?.into_iter().filter(|one| one.coverage.is_some() && is_meant(one)).collect();
    ensure!(!measured.is_empty(), "no crate whose coverage is measured has this folder");
    let packages = counting(&measured);
    let counts = root.join("target/coverage/counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    // Each program has at most four counter files, which its processes share.
    let _counts = shell.push_env("LLVM_PROFILE_FILE", counts.join("%4m.profraw"));
    let built = build(shell, &packages)?;
    let mut all = Program::built(&built)?;
    all.extend(others);
    let tested = programs::run(shell, all, &options.arguments, taken);
    let documented = documented(shell, &packages, taken);
    let lines = tools.lines(shell, &counts, &executables(&built))?;
    let folders: Vec<&str> = measured.iter().map(|one| one.folder.as_str()).collect();
    let share = reported(&root, &folders, &lines, options.missing)?;
    tested?;
    documented?;
    ensure!(share >= options.least, "fewer than {} % of the lines are run", options.least);
    Ok(())
}

/// Builds the tests of `packages` with counters. Returns cargo's messages.
fn build(shell: &Shell, packages: &BTreeSet<String>) -> Result<String> {
    let _counting = counted::push(shell, packages)?;
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    Ok(cmd!(shell, "cargo test --locked --no-run --message-format=json-render-diagnostics {packages...}")
        .read()?)
}

/// Runs the documentation examples of `packages`, which are built separately.
fn documented(shell: &Shell, packages: &BTreeSet<String>, taken: &mut Taken) -> Result<()> {
    let _counting = counted::push(shell, packages)?;
    let _linked = shell.push_env("RUSTDOCFLAGS", counted::FLAG);
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    taken.run(cmd!(shell, "cargo test --doc --locked --no-fail-fast {packages...}"))
}

/// Builds all tests as [`run`] does, so that [`run`] builds nothing.
pub fn build_all(shell: &Shell) -> Result<Vec<Program>> {
    Program::built(&build(shell, &packages(shell)?)?)
}

/// Builds the tests of the packages that are not measured.
pub fn build_others(shell: &Shell) -> Result<Vec<Program>> {
    let measured = packages(shell)?;
    let left_out = measured.iter().flat_map(|package| ["--exclude", package]);
    let built = cmd!(
        shell,
        "cargo test --workspace {left_out...} --locked --no-run --message-format=json-render-diagnostics"
    );
    Program::built(&built.read()?)
}

/// The LLVM tools of the compiler's version.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Finds the tools of the toolchain (`rustup component add llvm-tools`), or those of the Debian package of that
    /// version.
    fn find(shell: &Shell) -> Result<Self> {
        let said = cmd!(shell, "rustc -vV").quiet().read()?;
        let word = |of: &str| said.lines().find_map(|line| line.strip_prefix(of)).map(str::to_owned);
        let (host, version) =
            word("host: ").zip(word("LLVM version: ")).context("rustc prints no version")?;
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
                "no installed tool reads counters of LLVM {major}; run rustup component add llvm-tools, or apt-get install llvm-{major}"
            ),
        }
    }

    /// Returns how often each line of each file ran.
    fn lines(&self, shell: &Shell, counts: &Path, programs: &[String]) -> Result<BTreeMap<PathBuf, Lines>> {
        let (profdata, cov) = (self.folder.join("llvm-profdata"), self.folder.join("llvm-cov"));
        let (files, all) = (shell.read_dir(counts)?, counts.join("all"));
        cmd!(shell, "{profdata} merge -sparse -o {all} {files...}").quiet().run()?;
        let objects: Vec<&str> = programs.iter().flat_map(|program| ["-object", program]).collect();
        let reported = cmd!(shell, "{cov} export -format=lcov -instr-profile={all} {objects...}")
            .quiet()
            .ignore_stderr()
            .read()?;
        Ok(of_lcov(&reported))
    }
}

/// Returns the programs that cargo has built, from its messages.
fn executables(messages: &str) -> Vec<String> {
    let program = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    messages.lines().filter_map(program).collect()
}

/// Parses the format of geninfo(1): `SF:` is a file, and `DA:` is a line with the number of times that it ran.
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

/// Prints a table, and with `missing` the lines that did not run. Returns the lowest coverage in percent.
fn reported(root: &Path, folders: &[&str], files: &BTreeMap<PathBuf, Lines>, missing: bool) -> Result<u64> {
    println!("| crate | lines | run | |\n|---|---|---|---|");
    let (mut least, mut gaps) = (100, Vec::new());
    for folder in folders {
        let source = root.join(folder).join("src");
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
        ensure!(all > 0, "no line of {folder} was counted");
        println!(
            "| {} | {all} | {run} | {:.1} % |",
            folder.trim_start_matches("crates/"),
            run as f64 * 100.0 / all as f64
        );
        least = least.min(run * 100 / all);
    }
    gaps.iter().filter(|_| missing).for_each(|gap| println!("{gap}"));
    Ok(least)
}

/// The parts of a file that are compiled only for tests.
#[derive(Debug, Default, PartialEq)]
struct Tests {
    lines: Vec<RangeInclusive<usize>>,
    /// The modules that are files of their own.
    files: Vec<PathBuf>,
}

impl Tests {
    /// Finds the items by the layout of rustfmt: an item ends on its first line, or at a closing bracket with the same
    /// indentation.
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

/// Returns the file of the module `name` of the file at `path`.
fn file_of(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let is_root = ["mod", "lib", "main"].iter().any(|root| stem == *root);
    let folder = if is_root { path.with_file_name("") } else { path.with_extension("") };
    folder.join(name).with_extension("rs")
}

/// Formats line numbers as `3-5, 9`.
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
    fn items_and_files_for_tests_are_omitted_at_any_place() {
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
        // A line of a generic function is listed once for each of its types.
        let files = of_lcov(&format!("{text}SF:{}\nDA:4,1\n", file.display()));
        assert_eq!(reported(folder.path(), &["crates/x"], &files, true).unwrap(), 75);
        assert!(reported(folder.path(), &["crates/y"], &files, true).is_err(), "nothing counted is no share");
        assert_eq!(ranges(&[3, 4, 5, 9]), "3-5, 9");
    }

    #[test]
    fn programs_are_found_in_the_output_of_cargo() {
        let said = "{\"reason\":\"compiler-artifact\",\"executable\":\"/t/a-1\"}\n{\"executable\":null}";
        assert_eq!(executables(said), ["/t/a-1"]);
    }
}
