//! GNU cp between two directories and `obento cp` into an image, from the same trees: the same tree comes out.
//!
//! `OBENTO_CP_CASES` is how many combinations of options, sources and targets run; `all` runs every one. The differences that
//! are meant are those of docs/decisions/0053.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use obento_testkit::Oracle;

use crate::{Bench, text};

/// Combinations that run in every test run.
const CASES: usize = 50;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

const SOURCES: &str = "
mkdir src; cd src
echo one > f; chmod 640 f; chown 5:6 f
echo exec > x; chmod 4755 x; chown 7:8 x
echo acl > acl; chmod 640 acl; setfacl -m u:9:rw,m:rw acl
ln -s f lf; ln -s d ld; ln -s nowhere ln; ln -s /nonexistent/abs la
mkdir d d/sub; echo in > d/in; echo deep > d/sub/deep; chmod 750 d; chmod 2711 d/sub
ln -s in d/link; ln d/in d/in2; ln -s gone d/dang
mkfifo fifo; chmod 600 fifo
echo h > h1; ln h1 h2
mkdir e e/d e/d/sub; echo other > e/d/in; echo more > e/d/more; echo eff > e/f
touch -d 2001-02-03T04:05:06 f x d/in d/sub d
setfattr -n user.note -v abc f
";

const TARGETS: &str = "
mkdir t; cd t
echo old > file; chmod 600 file; chown 11:12 file; setfattr -n user.old -v o file
echo many > many; ln many many2; chmod 644 many
ln -s file sfile; ln -s dir sdir; ln -s nowhere sdang
mkdir dir; echo fold > dir/f; chmod 604 dir/f; chown 13:14 dir/f
mkdir dlink; echo target > dlink-target; ln -s ../dlink-target dlink/f; ln -s ../dlink-target dlink/lf
mkdir ddang; ln -s nowhere ddang/f; ln -s nowhere ddang/d; ln -s nowhere ddang/lf
mkdir dmany; echo dm > dmany/f; ln dmany/f dmany/other
mkdir dsgid; chown 0:77 dsgid; chmod 2775 dsgid
mkdir dacl; setfacl -d -m u:9:rwx,g::r-x,o::--- dacl
mkdir dd dd/d dd/d/sub; echo ddin > dd/d/in; chmod 700 dd/d; ln -s sub dd/d/link
mkdir df df/f; echo notdir > df/d
mkdir dsym; ln -s ../dir dsym/d; ln -s ../dir dsym/f
";

const OPTIONS: &[&str] = &[
    "",
    "-p",
    "-d",
    "-a",
    "-r",
    "-rL",
    "-P",
    "-rP",
    "-rH",
    "-b",
    "-rb",
    "-ab",
    "--backup=numbered",
    "-n",
    "-u",
    "-rT",
    "--no-preserve=mode",
    "-a --no-preserve=mode",
    "-r --no-preserve=mode",
    "--preserve=mode",
    "-r --preserve=links",
    "--preserve=ownership",
    "--preserve=timestamps",
    "-f",
    "-rp",
    "-a --no-preserve=links",
];

const FROM: &[&str] = &[
    "f",
    "x",
    "acl",
    "lf",
    "ld",
    "ln",
    "d",
    "d/.",
    "f x",
    "h1 h2",
    "d e/d",
    "f e/f",
    "d/. e/d/.",
    "ld/",
    "lf f",
];

const TO: &[&str] = &[
    "new", "file", "many", "sfile", "sdang", "sdir", "dir", "dlink", "ddang", "dmany", "dsgid", "dacl", "dd",
    "df", "dsym", "new/", "dir/f", "dlink/f",
];

/// A combination of options, sources and target.
#[derive(Clone, Copy, Debug)]
struct Case {
    options: &'static str,
    from: &'static str,
    to: &'static str,
}

/// All combinations, in an order that follows from the seed.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &options in OPTIONS {
        for &from in FROM {
            cases.extend(TO.iter().map(|&to| Case { options, from, to }));
        }
    }
    let mut state = SEED;
    for at in (1..cases.len()).rev() {
        // Marsaglia, "Xorshift RNGs".
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        cases.swap(at, usize::try_from(state % (at as u64 + 1)).unwrap());
    }
    match std::env::var("OBENTO_CP_CASES").as_deref() {
        Ok("all") => {}
        Ok(count) => cases.truncate(count.parse().unwrap()),
        Err(_) => cases.truncate(CASES),
    }
    cases
}

fn sh(bench: &Bench, line: &str) -> Output {
    let line = format!("umask 022; {line}");
    Command::new("sh").current_dir(bench.path()).args(["-c", &line]).output().unwrap()
}

/// Names with the number of their inode's names, but for directories.
fn names(output: &Output) -> BTreeSet<String> {
    text(&output.stdout).lines().filter(|line| !line.starts_with("lost+found")).map(str::to_owned).collect()
}

/// What differs, but for times of the test itself.
fn differences(bench: &Bench) -> Vec<String> {
    let diff = bench.obento(&["diff", "-r", "--metadata", "g/t", "o.img:/"]);
    let said = text(&diff.stdout) + &text(&diff.stderr);
    let is_recent = |line: &str| {
        let times = line.rsplit_once("time of modification: ").map(|(_, times)| times);
        times.is_some_and(|times| times.split(" and ").all(|time| time > "2020"))
    };
    let mut lines: Vec<_> = said.lines().filter(|line| !is_recent(line)).map(str::to_owned).collect();
    lines.retain(|line| line != "Only in o.img:/: lost+found");
    let theirs = names(&sh(bench, "cd g/t && find . ! -type d -printf '%P %n\\n'"));
    let ours = bench.obento(&["find", "o.img:/", "!", "-type", "d", "-printf", "%P %n\\n"]);
    let ours = names(&ours);
    lines.extend(theirs.symmetric_difference(&ours).map(|name| format!("names: {name}")));
    lines
}

/// Whether the difference is one of docs/decisions/0053.
fn is_meant(case: Case, line: &str) -> bool {
    let Case { options, from, to } = case;
    let is_archive = options.contains("-a");
    let replaces_attributes = is_archive && line.contains("attribute 'user.old'");
    // The mode of a directory that exists: with -a and with -p.
    let has_mode = is_archive || options.contains('p');
    let is_set_gid =
        has_mode && line.contains("differ in mode: 2") || to == "dsgid" && line.contains("differ in mode: 2");
    // A second file of one name, which stays where GNU cp overwrites the first.
    let meets_twice = ["d e/d", "d/. e/d/."].contains(&from);
    let is_second =
        meets_twice && (line.contains("/in") || line.contains("/sub") || line.starts_with("exit status"));
    // With -b GNU cp makes a backup of the first, which a third would overwrite.
    let is_backup_of_first = meets_twice && options.contains('b') && line.ends_with(": in~");
    // GNU cp adds the bits of the source that the default list of the directory denies.
    let is_denied_by_list = options == "--preserve=ownership"
        && to == "dacl"
        && (line.contains("differ in mode: ") || line.contains("attribute 'system.posix_acl_access'"));
    // Two links in the target that lead to one file: the second source does not overwrite the first.
    let is_one_target = from == "lf f" && to == "dlink";
    replaces_attributes || is_set_gid || is_second || is_backup_of_first || is_denied_by_list || is_one_target
}

/// What differs after one case.
fn run(bench: &Bench, case: Case) -> Vec<String> {
    let Case { options, from, to } = case;
    let sources: Vec<_> = from.split(' ').map(|source| format!("src/{source}")).collect();
    let sources = sources.join(" ");
    sh(bench, "rm -rf g && cp -a base g && cp base.img o.img");
    let theirs = sh(bench, &format!("cd g && cp {options} {sources} t/{to}"));
    let ours = sh(
        bench,
        &format!("cd base && {} cp {options} {sources} ../o.img:/{to}", env!("CARGO_BIN_EXE_obento")),
    );
    let mut found = differences(bench);
    if theirs.status.success() != ours.status.success() {
        found.push(format!("exit status {:?} and {:?}", theirs.status.code(), ours.status.code()));
    }
    found.retain(|line| !is_meant(case, line));
    if !found.is_empty() {
        found.push(format!("GNU cp: {}obento cp: {}", text(&theirs.stderr), text(&ours.stderr)));
    }
    found
}

#[test]
fn a_copy_into_an_image_gives_the_tree_that_gnu_cp_gives() {
    let oracles =
        [Oracle::Root, Oracle::Program("cp"), Oracle::Program("setfacl"), Oracle::Program("setfattr")];
    let Some(bench) = Bench::new(&oracles) else { return };
    fs::create_dir(bench.at("base")).unwrap();
    for script in [SOURCES, TARGETS] {
        let made = sh(&bench, &format!("set -e; cd base; {script}"));
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    bench.mkfs("ext4", "base.img");
    bench.quiet(&["cp", "-a", "base/t/.", "base.img:/"]);
    sh(&bench, "cp -a base g && cp base.img o.img");
    assert_eq!(differences(&bench), [""; 0], "the trees are the same before");
    let mut wrong = Vec::new();
    for case in cases() {
        let found = run(&bench, case);
        if !found.is_empty() {
            wrong.push(format!("{case:?}\n  {}", found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
