//! The check beside `ntfsfix -n` and `ntfsresize -i`: it finds all damage that one of them finds, and more.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::victim::{Victim, check};
use obento_block::MemDevice;
use obento_driver::Severity;
use obento_testkit::oracle::program;

type Damage = fn(&mut Victim);

/// A damage.
struct Case {
    name: &'static str,
    damage: Damage,
    /// The programs whose exit status reports it.
    judges: Judges,
    /// The codes of the findings, each once. A note does not count.
    codes: &'static [&'static str],
}

/// Whether `ntfsfix -n`, and `ntfsresize -i -f`, report a damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judges {
    Neither,
    Fix,
    Resize,
    Both,
}
use Judges::{Both, Fix, Neither, Resize};

const fn case(name: &'static str, judges: Judges, codes: &'static [&'static str], damage: Damage) -> Case {
    Case { name, damage, judges, codes }
}

/// The file that most cases damage: it has clusters.
const FILE: &str = "100001";

/// Codes of a record that cannot be read: its file has entries and clusters.
const RECORD: &[&str] = &["record", "index-entry", "lost-clusters"];
/// Codes of an attribute that cannot be read.
const RUNS: &[&str] = &["record", "missing-entry", "lost-clusters"];

/// Changes a byte that the update sequence protects.
fn tear(victim: &mut Victim, record: usize) {
    let at = victim.record(record);
    victim.0[at + 510] ^= 1;
}

/// Changes a byte of the record of the file.
fn in_record(victim: &mut Victim, at: usize, bytes: &[u8]) {
    let at = victim.record(victim.record_of(FILE)) + at;
    victim.0[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Changes a byte of an attribute of the file.
fn in_attribute(victim: &mut Victim, kind: u32, at: usize, byte: u8) {
    let at = victim.attribute(victim.record_of(FILE), kind) + at;
    assert_ne!(victim.0[at], byte);
    victim.0[at] = byte;
}

/// Changes the flags or the version in `$Volume` and in its copy.
fn in_volume(victim: &mut Victim, at: usize, byte: u8) {
    for record in [victim.record(3), victim.mirror(3)] {
        let place = victim.find_from(record, &[3, 1, 0, 0]);
        victim.0[place + at] = byte;
    }
}

/// The boot sector, `$Volume`, the log and the first records.
const TABLES: &[Case] = &[
    case("no damage", Neither, &[], |_| {}),
    case("a boot sector that differs from its copy", Fix, &["backup-boot-sector"], |it| it.0[100] ^= 1),
    case("no copy of the boot sector", Fix, &["backup-boot-sector"], |it| {
        let copy = it.0.len() - 512;
        it.0[copy..].fill(0);
    }),
    case("a device that is longer than the volume", Fix, &["backup-boot-sector"], |it| {
        it.0.extend([0; 3 * 4096]);
    }),
    case("a device that ends with the volume", Fix, &["backup-boot-sector"], |it| {
        let len = it.0.len() - 512;
        it.0.truncate(len);
    }),
    case("no boot sector", Both, &["boot-sector"], |it| it.0[..512].fill(0)),
    case("a boot sector of another format", Both, &["boot-sector"], |it| it.0[3..8].fill(0)),
    case("a wrong position of $MFT", Both, &["backup-boot-sector", "tables"], |it| it.0[48] ^= 16),
    case("a wrong position of $MFTMirr", Both, &["backup-boot-sector", "mft-mirror"], |it| it.0[56] ^= 16),
    case("a volume that is marked dirty", Neither, &["in-use"], |it| in_volume(it, 2, 1)),
    case("an unknown version", Both, &["version"], |it| in_volume(it, 0, 9)),
    case("a damaged log", Neither, &[], |it| {
        let log = it.clusters_of(2);
        it.0[log] = 0;
    }),
    case("a torn record of $MFT", Both, &["tables"], |it| tear(it, 0)),
    case("a torn record of $MFTMirr", Both, &["record"], |it| tear(it, 1)),
    case("a copy of $MFT with another magic number", Both, &["mft-mirror"], |it| {
        let copy = it.mirror(0);
        it.0[copy] = b'B';
    }),
    case("a torn copy of $Volume", Both, &["mft-mirror"], |it| {
        let copy = it.mirror(3);
        it.0[copy + 510] ^= 1;
    }),
    case("another label in the copy of $Volume", Both, &["mft-mirror"], |it| {
        let label = it.find_from(it.mirror(3), &[0x60, 0, 0, 0]);
        it.0[label + 24] ^= 1;
    }),
    case("a torn record of $LogFile", Both, &["record"], |it| tear(it, 2)),
    case("a torn record of $AttrDef", Both, RECORD, |it| tear(it, 4)),
    case("a torn record of the root", Both, RUNS, |it| tear(it, 5)),
    case("a torn record of $Bitmap", Both, &["record", "index-entry"], |it| tear(it, 6)),
    case("a torn record of $BadClus", Resize, &["record", "index-entry"], |it| tear(it, 8)),
    case("a torn record of $Secure", Both, &["tables", "index-entry", "lost-clusters"], |it| tear(it, 9)),
    case("a torn record of $UpCase", Both, &["tables", "index-entry", "lost-clusters"], |it| tear(it, 10)),
    case("a wrong letter in $UpCase", Both, &["up-case", "index-order"], |it| {
        let table = it.clusters_of(10);
        it.0[table + 2 * usize::from(b'a')] = 0;
    }),
    case("a wrong character in $UpCase that no name contains", Both, &["up-case"], |it| {
        let table = it.clusters_of(10);
        it.0[table + 2 * usize::from(b'~')] = b'!';
    }),
    case("a volume without its last clusters", Both, &["truncated"], |it| {
        let len = it.0.len() - 3 * 4096;
        it.0.truncate(len);
    }),
];

/// The record of a file, and its attributes.
const RECORDS: &[Case] = &[
    case("a torn record", Resize, RECORD, |it| tear(it, it.record_of(FILE))),
    case("a record without a magic number", Resize, RECORD, |it| in_record(it, 0, b"X")),
    case("a record that chkdsk marked bad", Resize, RECORD, |it| in_record(it, 0, b"BAAD")),
    case("more bytes in use than a record has", Neither, RECORD, |it| in_record(it, 25, &[0xff])),
    case("a wrong link count", Neither, &["link-count"], |it| in_record(it, 18, &[7])),
    case("an attribute longer than its record", Resize, RECORD, |it| in_attribute(it, 0x80, 6, 1)),
    case("an attribute without a length", Resize, RECORD, |it| in_attribute(it, 0x80, 4, 0)),
    case("runs outside of their attribute", Resize, RECORD, |it| in_attribute(it, 0x80, 32, 0xf0)),
    case("a name longer than its attribute", Neither, RECORD, |it| in_attribute(it, 0x30, 24 + 64, 0xff)),
    case("a value outside of its attribute", Neither, RECORD, |it| in_attribute(it, 0x30, 17, 9)),
    case("a last cluster that no run has", Resize, RUNS, |it| in_attribute(it, 0x80, 24, 99)),
    case("an allocated size of a part of a cluster", Neither, &["size"], |it| in_attribute(it, 0x80, 40, 1)),
    case("an allocated size past the runs", Neither, &["size"], |it| in_attribute(it, 0x80, 42, 0x10)),
    case("a size past the runs", Neither, &["size"], |it| in_attribute(it, 0x80, 50, 0x11)),
    case("an initialized size past the size", Neither, &["size"], |it| in_attribute(it, 0x80, 58, 0x11)),
];

/// Clusters, bitmaps and directories.
const CLUSTERS: &[Case] = &[
    case("a cluster of two files", Resize, &["cross-link", "lost-clusters"], |it| {
        let (to, from) = (it.runs(it.record_of(FILE)), it.runs(it.record_of("65536")));
        let place = it.0[from + 2..from + 4].to_vec();
        it.0[to + 2..to + 4].copy_from_slice(&place);
    }),
    case("a run past the end of the volume", Resize, RUNS, |it| {
        let runs = it.runs(it.record_of(FILE));
        it.0[runs + 2..runs + 4].copy_from_slice(&[0xff, 0x7f]);
    }),
    case("clusters of a file that are marked free", Resize, &["unmarked-clusters"], |it| {
        let bitmap = it.clusters_of(6);
        it.0[bitmap] = 0;
    }),
    case("a free cluster that is marked in use", Resize, &["lost-clusters"], |it| {
        let bitmap = it.clusters_of(6);
        it.0[bitmap + 700] |= 0x80;
    }),
    case(
        "a file with clusters that is not in use",
        Resize,
        &["record-bitmap", "index-entry", "lost-clusters"],
        |it| in_record(it, 22, &[0]),
    ),
    case("a torn block of the root", Both, &["directory", "missing-entry"], |it| {
        let is_block = |at: &usize| it.0[*at..].starts_with(b"INDX");
        let block = (0..it.0.len()).step_by(4096).find(is_block).expect("the root has a block");
        it.0[block + 510] ^= 1;
    }),
];

/// Returns whether a program reports problems.
fn reports(name: &str, options: &[&str], image: &Path) -> bool {
    let output = program(name).args(options).arg(image).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Printed by a test that fails.
    println!("{name}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    !output.status.success()
}

fn compare(cases: &[Case]) {
    for case in cases {
        let Some(mut victim) = Victim::new() else { return };
        println!("{}", case.name);
        (case.damage)(&mut victim);
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), &victim.0).unwrap();
        let found = check(Arc::new(MemDevice::read_only(victim.0)));
        let mut codes = Vec::new();
        for finding in found.iter().filter(|finding| finding.severity != Severity::Note) {
            if !codes.contains(&finding.code) {
                codes.push(finding.code);
            }
        }
        assert_eq!(codes, case.codes, "{}: {found:#?}", case.name);
        let is_reported =
            (reports("ntfsfix", &["-n"], image.path()), reports("ntfsresize", &["-ifP"], image.path()));
        let judges = match is_reported {
            (false, false) => Neither,
            (true, false) => Fix,
            (false, true) => Resize,
            (true, true) => Both,
        };
        assert_eq!(judges, case.judges, "{}", case.name);
        assert!(judges == Neither || !codes.is_empty(), "{}", case.name);
    }
}

#[test]
fn damage_of_the_first_structures_that_a_judge_finds_is_found() {
    compare(TABLES);
}

#[test]
fn damage_of_records_that_a_judge_finds_is_found() {
    compare(RECORDS);
}

#[test]
fn damage_of_clusters_and_directories_that_a_judge_finds_is_found() {
    compare(CLUSTERS);
}
