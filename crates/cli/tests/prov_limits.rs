//! `obento prov` on hostile logs: memory and output have limits.

use std::process::{Command, Output};

use obento::base::crc::crc32c;
use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// The most address space of a command.
const MEMORY_KIB: u32 = 1 << 20;
/// Bytes of the records of a block.
const RECORDS_MAX: usize = 4096 - 24;

/// Returns an integer, seven bits in each byte.
fn int(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns a record of actor 0. `fields` contains integers and strings.
fn record(kind: u8, flags: u8, fields: &[&[u8]]) -> Vec<u8> {
    // No time has passed since the record before.
    let body = [&[0, 0], &*fields.concat()].concat();
    [&(body.len() as u16 + 4).to_le_bytes()[..], &[kind, flags], &body].concat()
}

/// Returns the name of a process: user 0, group 0, start time 1.
fn actor(pid: u64) -> Vec<u8> {
    record(1, 0, &[&int(pid), &[1, 0, 0], b"program\0\0\0\0\0\0\0\0\0"])
}

fn file(ino: u64) -> Vec<u8> {
    [int(ino), int(0)].concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&int(text.len() as u64), text].concat()
}

fn create(parent: u64, name: &[u8], ino: u64, mode: u64) -> Vec<u8> {
    record(5, 0, &[&int(parent), &string(name), &file(ino), &int(mode), &[0]])
}

fn open(ino: u64) -> Vec<u8> {
    record(3, 1, &[&file(ino)])
}

fn used(ino: u64) -> Vec<u8> {
    record(13, 0, &[&file(ino), &int(1), &int(1)])
}

fn generated(ino: u64, name: &str) -> Vec<u8> {
    record(14, 0, &[&file(ino), &int(1), &int(1_000_000), &int(2), &string(name.as_bytes())])
}

/// Returns a block of a segment, with its checksum.
fn block(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = parts.concat();
    body.resize(4092, 0);
    [&crc32c(u32::MAX, &body).to_le_bytes()[..], &body].concat()
}

/// Returns the first segment of a log.
fn segment(records: &[Vec<u8>]) -> Vec<u8> {
    let zeros = [0; 16];
    let header: [&[u8]; 6] =
        [b"OBENPROV", &1_u32.to_le_bytes(), &zeros, &1_u32.to_le_bytes(), &1_u64.to_le_bytes(), &zeros];
    let mut segment = block(&header);
    let (mut rest, mut sequence) = (records, 1_u64);
    while !rest.is_empty() {
        let mut len = 0;
        let fits = |record: &&Vec<u8>| {
            len += record.len();
            len <= RECORDS_MAX
        };
        let count = rest.iter().take_while(fits).count();
        let (records, left) = rest.split_at(count);
        let records = records.concat();
        let lens = [records.len() as u16, count as u16].map(u16::to_le_bytes).concat();
        segment.extend(block(&[
            &lens,
            &sequence.to_le_bytes(),
            &1_700_000_000_000_000_i64.to_le_bytes(),
            &records,
        ]));
        (rest, sequence) = (left, sequence + count as u64);
    }
    segment
}

/// Creates `disk.img` with a log of these records.
fn image(records: &[Vec<u8>]) -> Option<TempDir> {
    if !require(&[Oracle::Program("mke2fs")]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("disk.img"));
    std::fs::create_dir_all(tree.join(".obento-prov")).unwrap();
    std::fs::write(tree.join(".obento-prov/00000001.prv"), segment(records)).unwrap();
    let [tree, path] = [&tree, &path].map(|path| path.to_str().unwrap());
    call("mke2fs", ["-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-d", tree, path, "16M"]).unwrap();
    Some(folder)
}

fn prov(folder: &TempDir, args: &[&str]) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec timeout 60 \"$0\" prov disk.img \"$@\"");
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).args(["-c", &script, env!("CARGO_BIN_EXE_obento")]);
    command.args(args).output().unwrap()
}

/// Returns the records of 512 directories, each in the one before, and of the actor. Each name has 1024 bytes.
fn deep_directories() -> Vec<Vec<u8>> {
    let directory = |number: u64| {
        let (parent, name) = (if number == 0 { 2 } else { 999 + number }, [b'n'; 1024]);
        create(parent, &name, 1000 + number, 0o40755)
    };
    [actor(5)].into_iter().chain((0..512).map(directory)).collect()
}

#[test]
fn records_with_long_paths_are_listed_in_parts_that_fit_into_memory() {
    let mut records = deep_directories();
    records.push(create(1511, b"f", 5000, 0o100_644));
    records.extend((0..18_000).map(|_| open(5000)));
    let Some(folder) = image(&records) else { return };
    let output = prov(&folder, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let sequence = |line: &str| line.split_whitespace().next().unwrap().parse::<usize>().unwrap();
    let found: Vec<_> = text.lines().map(sequence).collect();
    // The record of the process is not listed.
    assert!(found.iter().copied().eq((2..=records.len()).rev()), "{} lines", found.len());
    // The start of the path is left out.
    let line = text.lines().next().unwrap();
    assert!(line.contains(" open       #1508/nnn") && line.len() < 4300, "{line}");
    let last = String::from_utf8(prov(&folder, &["-n", "3"]).stdout).unwrap();
    assert!(last.lines().count() == 3 && text.starts_with(&last));
}

#[test]
fn a_list_of_changes_reports_paths_that_are_too_long() {
    let mut records = deep_directories();
    records.extend(
        (0..5000_u64).map(|number| create(1511, number.to_string().as_bytes(), 5000 + number, 0o100_644)),
    );
    let Some(folder) = image(&records) else { return };
    let output = prov(&folder, &["--changed-since", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{error}");
    assert!(
        error.contains("the path of a changed file has more than 512 directories or 4096 bytes"),
        "{error}"
    );
    for format in ["prov-json", "openlineage", "dot"] {
        let output = prov(&folder, &["--export", format]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_tree_has_limits_of_lines_and_depth_and_reports_what_it_leaves_out() {
    let files = 2000..2300_u64;
    let uses = files.clone().map(used);
    let generations = files.map(|ino| generated(ino, &format!("f{ino}")));
    let records: Vec<_> = [actor(5)].into_iter().chain(uses).chain(generations).collect();
    let Some(folder) = image(&records) else { return };
    for direction in ["--back", "--forward"] {
        let output = prov(&folder, &["--of", "/f2000", "--json", direction]);
        let (text, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 10_000), "{error}");
        let is_within = |line: &str| {
            let (_, rest) = line.split_once("\"depth\":").unwrap();
            rest.split(',').next().unwrap().parse::<usize>().unwrap() <= 256
        };
        assert!(text.lines().all(is_within));
        assert!(error.contains("the tree has more than 10000 lines"), "{error}");
        assert!(error.contains("help: show more lines with -n N"), "{error}");
    }
    // The user asks for more.
    let output = prov(&folder, &["--of", "/f2000", "--ascii", "-n", "10200"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(0), 10_202));
    assert!(text.ends_with(" and more, which -n excludes; each source is possible, not certain\n"));
}

#[test]
fn a_tree_that_is_too_deep_is_cut_and_reported() {
    // Each process uses the file of the process before.
    let process =
        |number: u64| [actor(number), used(2000 + number), generated(2001 + number, &format!("f{number}"))];
    let records: Vec<_> = (1..=300).flat_map(process).collect();
    let Some(folder) = image(&records) else { return };
    let output = prov(&folder, &["--of", "/f300", "--ascii"]);
    let (text, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 259), "{error}");
    assert!(
        text.ends_with("257 versions, 256 steps, 1 program and more; each source is possible, not certain\n")
    );
    assert!(error.contains("the tree has more than 256 levels"), "{error}");
    let output = prov(&folder, &["--of", "/f300", "--ascii", "-n", "1000"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n301 versions, 300 steps, 1 program; "), "{text}");
}
