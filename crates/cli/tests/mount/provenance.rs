//! Mounts with `-o provenance`: what programs did is attributed to them, and the log is protected.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use obento_testkit::oracle::{program, python, run, shell};
use obento_testkit::{Oracle, require};
use serde_json::Value;

use crate::requests::answered;
use crate::support::{Disk, text, transports, wait_until};

/// A build by real programs. Temporary files are on the mount too, so that the chain has no gap.
const PIPELINE: &str = "\
curl -s -o hello.c file://$PWD/../source.c
mkdir tmp build
tar -cf src.tar hello.c
tar -xf src.tar -C build
gcc -c build/hello.c -o hello.o
ld -e start -o app hello.o
strip app
cp app dist";

/// The derivations: the product and its version, the program, and the source and its version. Names that programs choose
/// at random are replaced.
const DERIVATIONS: &[&str] = &[
    "src.tar 1 tar hello.c 1",
    "build/hello.c 1 tar src.tar 1",
    "tmp/*.s 2 cc1 build/hello.c 1",
    "hello.o 1 as tmp/*.s 2",
    "app 1 ld hello.o 1",
    "app 2 strip app 1",
    "st* 1 strip app 1",
    "dist 1 cp app 2",
];

fn prov(disk: &Disk, args: &[&str]) -> String {
    prov_of(disk, "disk.img", args)
}

#[track_caller]
fn prov_of(disk: &Disk, operand: &str, args: &[&str]) -> String {
    let output = disk.obento(&[&["prov", operand], args].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns `path` with the random parts replaced.
fn plain(path: &str) -> String {
    let path = path.strip_prefix('/').unwrap();
    match path.rsplit_once('/') {
        Some(("tmp", name)) => format!("tmp/*{}", name.rfind('.').map_or("", |dot| &name[dot..])),
        None if path.starts_with("st") => "st*".into(),
        _ => path.into(),
    }
}

/// Runs [`PIPELINE`] on a mount. Returns `None` if a program is missing.
fn built() -> Option<Disk> {
    let programs = ["curl", "tar", "gcc", "ld", "strip", "cp"].map(Oracle::Program);
    if !require(&programs) {
        return None;
    }
    let disk = Disk::mounted("provenance")?;
    fs::write(disk.folder().join("source.c"), "int start(void) { return 7; }\n").unwrap();
    let script = format!("set -e; export TMPDIR=$PWD/tmp; {}", PIPELINE.replace('\n', "; "));
    shell(&disk.at(), &script).unwrap();
    disk.umount();
    Some(disk)
}

#[test]
fn a_build_by_real_programs_yields_exactly_its_derivations() {
    let Some(disk) = built() else { return };
    let graph: Value = serde_json::from_str(&prov(&disk, &["--export", "prov-json"])).unwrap();
    let entity = |name: &Value| {
        let entity = &graph["entity"][name.as_str().unwrap()];
        format!("{} {}", plain(entity["prov:atLocation"].as_str().unwrap()), entity["obento:version"])
    };
    let edges = graph["wasDerivedFrom"].as_object().unwrap().values();
    let found: BTreeSet<String> = edges
        .map(|edge| {
            let activity = &graph["activity"][edge["prov:activity"].as_str().unwrap()];
            let program = activity["prov:label"].as_str().unwrap().to_owned();
            format!(
                "{} {program} {}",
                entity(&edge["prov:generatedEntity"]),
                entity(&edge["prov:usedEntity"])
            )
        })
        .collect();
    let expected: BTreeSet<String> = DERIVATIONS.iter().map(|&line| line.into()).collect();
    assert_eq!(found, expected, "{}", prov(&disk, &[]));
    assert_eq!(graph["wasDerivedFrom"].as_object().unwrap().len(), DERIVATIONS.len());
    let tree = prov(&disk, &["--of", "/dist"]);
    assert!(tree.contains("8 versions, 7 steps"), "{tree}");
}

/// Reads an export by the library that its format comes from, and prints counts.
const READ_PROV: &str = "\
import sys
from prov.model import *
document = ProvDocument.deserialize(sys.argv[1], format='json')
kinds = [ProvEntity, ProvActivity, ProvAgent, ProvUsage, ProvGeneration, ProvDerivation, ProvInvalidation]
print(*[len(list(document.get_records(kind))) for kind in kinds])
";
const READ_OPENLINEAGE: &str = "\
import json, sys
from openlineage.client.event_v2 import *
runs, inputs, outputs = 0, 0, 0
for line in open(sys.argv[1]):
    fields = json.loads(line)
    dataset = lambda kind, field: kind(namespace=field['namespace'], name=field['name'])
    event = RunEvent(
        eventType=RunState[fields['eventType']], eventTime=fields['eventTime'], run=Run(runId=fields['run']['runId']),
        job=Job(**fields['job']), inputs=[dataset(InputDataset, field) for field in fields['inputs']],
        outputs=[dataset(OutputDataset, field) for field in fields['outputs']], producer=fields['producer'])
    runs, inputs, outputs = runs + 1, inputs + len(event.inputs), outputs + len(event.outputs)
print(runs, inputs, outputs)
";

#[test]
fn the_packages_of_python_read_the_exports_and_count_the_same() {
    if !require(&["prov.model", "openlineage.client.event_v2"].map(Oracle::PythonModule)) {
        return;
    }
    let Some(disk) = built() else { return };
    let count = |format: &str, script: &str| {
        let path = disk.folder().join(format);
        fs::write(&path, prov(&disk, &["--export", format])).unwrap();
        text(&run(python().args(["-c", script]).arg(&path)).unwrap().stdout)
    };
    let graph: Value = serde_json::from_str(&prov(&disk, &["--export", "prov-json"])).unwrap();
    let sections =
        ["entity", "activity", "agent", "used", "wasGeneratedBy", "wasDerivedFrom", "wasInvalidatedBy"];
    let counts = sections.map(|section| graph[section].as_object().unwrap().len());
    assert_eq!(counts[5], DERIVATIONS.len());
    assert_eq!(count("prov-json", READ_PROV).trim(), counts.map(|count| count.to_string()).join(" "));
    // Nine processes write: curl, tar twice, gcc, cc1, as, ld, strip and cp.
    let events = count("openlineage", READ_OPENLINEAGE);
    assert_eq!(events.trim(), format!("9 {} {}", counts[3], counts[4]));
}

#[test]
fn records_have_the_process_and_the_bytes() {
    let Some(disk) = Disk::mounted("provenance") else { return };
    fs::write(disk.path("in"), vec![7; 300_000]).unwrap();
    // Without its pages in the cache, the file is read through the server.
    disk.umount();
    disk.mount("provenance");
    let mut child = Command::new("cp").arg(disk.path("in")).arg(disk.path("out")).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    disk.umount();
    let events = prov(&disk, &["--by", &pid.to_string(), "--json"]);
    let events: Vec<Value> = events.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<_> = events
        .iter()
        .map(|event| (event["event"].as_str().unwrap(), event["path"].as_str().unwrap()))
        .collect();
    for expected in [
        ("open", "/in"),
        ("close", "/in"),
        ("create", "/out"),
        ("open", "/out"),
        ("write", "/out"),
        ("close", "/out"),
    ] {
        assert!(names.contains(&expected), "{expected:?} {events:?}");
    }
    let sum = |event: &str, key: &str| -> u64 {
        let matching = events.iter().filter(|found| found["event"] == event);
        matching.filter_map(|found| found[key].as_u64()).sum()
    };
    assert_eq!(sum("close", "bytes_read"), 300_000);
    assert_eq!(sum("write", "bytes_written"), 300_000);
    let is_own = |event: &Value| event["program"] == "cp" && event["process_start"].as_u64() > Some(0);
    assert!(events.iter().all(is_own), "{events:?}");
}

/// Copies `in` through a mapping after closing the file.
const COPY_MAPPED: &str = "\
import mmap, os
file = os.open('in', os.O_RDONLY)
data = mmap.mmap(file, 0, prot=mmap.PROT_READ)
os.close(file)
open('out', 'wb').write(data[:])
";

#[test]
fn a_file_that_is_read_through_a_mapping_is_a_source() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let Some(disk) = Disk::mounted("provenance") else { return };
    fs::write(disk.path("in"), vec![7; 100_000]).unwrap();
    fs::write(disk.path("other"), "not read").unwrap();
    // Without its pages in the cache, the file is read through the server.
    disk.umount();
    disk.mount("provenance");
    let copied = program("python3").args(["-c", COPY_MAPPED]).current_dir(disk.at()).status().unwrap();
    assert!(copied.success());
    assert_eq!(fs::read(disk.path("out")).unwrap(), vec![7; 100_000]);
    disk.umount();
    let lines = prov(&disk, &["--of", "/out", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<_> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/out", "/in"]);
    let closed = prov(&disk, &["--by", "python3", "--json"]);
    let is_close = |event: &Value| event["event"] == "close" && event["path"] == "/in";
    let events = closed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(events.filter(is_close).map(|event| event["bytes_read"].as_u64()).max(), Some(Some(100_000)));
}

/// Returns the number of requests that the server sees while all files of a directory are looked up and read once. Each
/// file is read at once, since the kernel asks for its attributes again after a time.
fn requests_of_first_reads(disk: &Disk, options: &str, count: u64, size: usize) -> u64 {
    // Without its pages in the cache, a file is read through the server.
    disk.umount();
    disk.mount(&format!("{options},io_uring=off"));
    let files: Vec<_> = (0..count).map(|number| disk.path(&format!("{size}-{number}"))).collect();
    let before = answered(disk);
    for file in &files {
        assert_eq!(fs::metadata(file).unwrap().len(), size as u64);
        assert!(fs::read(file).unwrap() == vec![7; size]);
    }
    answered(disk) - before
}

/// With the records of opens and closes, a program waits for as many requests as without them: the data of a small file
/// arrives with the reply to OPEN. RELEASE has no waiting program.
#[test]
fn the_first_read_of_a_small_file_waits_for_one_request() {
    const COUNT: u64 = 200;
    let Some(disk) = Disk::mounted("rw") else { return };
    for size in [1, 4096, 20_000, 65_536] {
        (0..COUNT)
            .for_each(|number| fs::write(disk.path(&format!("{size}-{number}")), vec![7; size]).unwrap());
    }
    // The kernel may request attributes again after a second, and the test requests the number of requests.
    let others = COUNT / 4;
    for size in [1, 4096, 20_000, 65_536] {
        let without = requests_of_first_reads(&disk, "rw", COUNT, size);
        assert!(
            (3 * COUNT..=3 * COUNT + others).contains(&without),
            "{size}: {without} LOOKUP, STATX and READ"
        );
        let with = requests_of_first_reads(&disk, "provenance", COUNT, size);
        assert!(with <= 4 * COUNT + others, "{size}: {with} LOOKUP, STATX, OPEN and RELEASE");
    }
    disk.umount();
    let events = prov(&disk, &["--json"]);
    let read = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let read: u64 =
        read.filter(|event| event["event"] == "close").filter_map(|event| event["bytes_read"].as_u64()).sum();
    assert_eq!(read, COUNT * (1 + 4096 + 20_000 + 65_536));
}

/// Shrinks every third file by truncate(2), without an open file.
const SHRINK: &str = "import os\nfor number in range(0, 60, 3): os.truncate(f'file{number}', 5000)";

/// The server sends the data of a file while other processes shrink, overwrite and map the file.
#[test]
fn data_that_is_sent_with_an_open_overwrites_no_newer_data() {
    const FILES: usize = 60;
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let Some(disk) = &Disk::mounted("rw") else { return };
    for transport in transports() {
        for round in 0..6 {
            let file = |number: usize| disk.path(&format!("file{number}"));
            (0..FILES).for_each(|number| fs::write(file(number), vec![b'a'; 10_000]).unwrap());
            disk.umount();
            disk.mount(&format!("provenance,{transport}"));
            std::thread::scope(|threads| {
                for reader in 0..2 {
                    threads.spawn(move || {
                        for number in (0..FILES).map(|number| (number * 7 + reader) % FILES) {
                            let bytes = fs::read(file(number)).unwrap();
                            let len = bytes.iter().take_while(|&&byte| byte == b'a').count();
                            assert!(bytes[len..].iter().all(|&byte| byte == b'b'), "{bytes:?}");
                        }
                    });
                }
                threads.spawn(move || {
                    let mut shrink = program("python3");
                    assert!(shrink.args(["-c", SHRINK]).current_dir(disk.at()).status().unwrap().success());
                });
                threads.spawn(move || {
                    for number in (0..FILES).filter(|number| number % 3 == 1) {
                        let mut open = fs::OpenOptions::new().append(true).open(file(number)).unwrap();
                        open.write_all(&[b'b'; 3_000]).unwrap();
                    }
                });
            });
            let expected = |number: usize| match number % 3 {
                0 => vec![b'a'; 5_000],
                1 => [vec![b'a'; 10_000], vec![b'b'; 3_000]].concat(),
                _ => vec![b'a'; 10_000],
            };
            (0..FILES).for_each(|number| {
                assert!(fs::read(file(number)).unwrap() == expected(number), "{round} {number}")
            });
            disk.umount();
            disk.mount("rw");
            (0..FILES).for_each(|number| {
                assert!(fs::read(file(number)).unwrap() == expected(number), "{round} {number}")
            });
        }
    }
    disk.umount();
}

/// While a program starts, the kernel reads it from the mount and locks the files of `/proc` that describe the process.
#[test]
fn programs_start_from_a_mount_whose_server_identifies_processes() {
    if !require(&[Oracle::Program("bash"), Oracle::Program("timeout")]) {
        return;
    }
    let Some(disk) = Disk::mounted("provenance") else { return };
    shell(&disk.at(), "cp -L $(command -v bash) program").unwrap();
    for _ in 0..3 {
        // Without its pages in the cache, the program is read through the server.
        disk.umount();
        disk.mount("provenance");
        let mut start = program("timeout");
        let output = start.args(["-s", "KILL", "60"]).arg(disk.path("program")).args(["-c", "echo runs"]);
        assert_eq!(text(&output.output().unwrap().stdout), "runs\n");
    }
    disk.umount();
    assert!(prov(&disk, &["--json"]).contains("\"/program\""));
}

#[test]
fn the_log_of_a_mount_is_hidden_and_cannot_be_changed() {
    let Some(disk) = Disk::mounted("provenance") else { return };
    let log = disk.path(".obento-prov");
    assert!(!log.exists());
    assert!(fs::create_dir(&log).is_err() && fs::remove_dir(&log).is_err());
    let names: Vec<_> = fs::read_dir(disk.at()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lost+found"]);
    disk.umount();
    disk.mount("show_provenance");
    let segment = fs::read_dir(&log).unwrap().next().unwrap().unwrap().path();
    assert!(fs::read(&segment).unwrap().len() >= 4096);
    for refused in [
        fs::remove_file(&segment),
        fs::write(&segment, "x"),
        fs::write(log.join("new"), "x"),
        fs::rename(&log, disk.path("moved")),
        fs::OpenOptions::new().write(true).open(&segment).and_then(|file| file.set_len(0)),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(rustix::io::Errno::PERM.raw_os_error()));
    }
    disk.umount();
    assert!(!prov(&disk, &[]).is_empty());
}

#[test]
fn the_history_of_a_mounted_volume_is_that_of_its_image() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let script = "set -e; mkdir older; echo a > older/source; echo b > source";
    shell(&disk.at(), script).unwrap();
    disk.umount();
    disk.mount("provenance");
    let script = "set -e; cp older/source copy; mkdir new; cp copy new/product; rm copy; cp source other; \
        ln other link; echo c >> older/source; touch older; echo d > removed; rm removed";
    shell(&disk.at(), script).unwrap();
    let questions: &[&[&str]] = &[
        &["--of", "/new/product"],
        &["--of", "new/product", "--json"],
        &["--of", "/source", "--forward"],
        &["--of", "/older/source", "--json"],
        &["--of", "/copy"],
        &["--by", "cp"],
        &["--by", "cp", "--json"],
        &["--changed-since", "1"],
        &["--export", "prov-json"],
        &["--export", "dot"],
    ];
    let ask = |operand: &str| -> Vec<_> {
        questions.iter().map(|question| prov_of(&disk, operand, question)).collect()
    };
    let mounted = ask("mnt");
    assert!(mounted[0].contains("/older/source  older than the log"), "{}", mounted[0]);
    assert_eq!(mounted[7], "link\nnew\nnew/product\nolder\nolder/source\nother\n");
    // The mount is still in use, and a later question finds later records.
    shell(&disk.at(), "cp new/product later").unwrap();
    assert!(prov_of(&disk, "mnt", &["--of", "/later"]).contains("/new/product  version 1 by cp"));
    assert!(prov_of(&disk, "mnt", &["-n", "5"]).contains("/later"));
    shell(&disk.at(), "rm later").unwrap();
    // The kernel reports a close after the process has ended.
    wait_until("the record of the last close", || {
        let records = prov_of(&disk, "mnt", &["--json"]);
        let count = |event: &str| records.matches(&format!("\"event\":\"{event}\"")).count();
        count("open") == count("close")
    });
    let again = ask("mnt");
    disk.umount();
    for (question, (mounted, unmounted)) in questions.iter().zip(again.into_iter().zip(ask("disk.img"))) {
        assert_eq!(mounted, unmounted, "{question:?}");
    }
}

#[test]
fn the_history_of_a_mount_that_records_none_is_refused() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let output = disk.obento(&["prov", "mnt"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("does not record the history of the volume"), "{said}");
    disk.umount();
}

/// Returns the events of the log, the oldest first.
fn events(disk: &Disk) -> Vec<Value> {
    let lines = prov(disk, &["--json"]);
    lines.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_history_of_open_files_continues_when_the_server_is_replaced() {
    let options = "provenance,io_uring=off";
    let Some(disk) = Disk::mounted(options) else { return };
    fs::write(disk.path("in"), vec![7; 300_000]).unwrap();
    // Without its pages in the cache, the file is read through the server.
    disk.umount();
    disk.mount(options);
    let script = "exec 3<in 4>out; echo ready; read go; cat <&3 >&4";
    let mut shell = Command::new("sh");
    let shell =
        shell.args(["-c", script]).current_dir(disk.at()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    disk.quietly(&["mount", "--upgrade", "mnt", "--dry-run"]);
    for _ in 0..3 {
        disk.quietly(&["mount", "--upgrade", "mnt"]);
    }
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let process = shell.id();
    assert!(shell.wait().unwrap().success());
    disk.umount();
    disk.fsck();
    let events = events(&disk);
    let count = |event: &str| events.iter().filter(|found| found["event"] == event).count();
    assert_eq!(["mount", "unmount", "upgrade", "crash", "lost"].map(count), [2, 2, 3, 0, 0]);
    let closes = events.iter().filter(|found| found["event"] == "close" && found["pid"] == process);
    let closed: Vec<_> = closes
        .map(|event| (event["path"].as_str().unwrap(), &event["bytes_read"], &event["bytes_written"]))
        .collect();
    assert_eq!(closed.len(), 2, "{events:?}");
    assert!(closed.contains(&("/in", &300_000.into(), &0.into())), "{closed:?}");
    assert!(closed.contains(&("/out", &0.into(), &300_000.into())), "{closed:?}");
    let tree = prov(&disk, &["--of", "/out"]);
    assert!(tree.contains("── /in  version 1"), "{tree}");
    // Fails if a record may be missing.
    assert!(prov(&disk, &["--changed-since", "1"]).contains("out"));
}

#[test]
fn a_killed_server_leaves_a_mark_and_all_synced_changes() {
    let Some(disk) = Disk::mounted("provenance") else { return };
    run(program("sh").args(["-c", "echo a > kept; sync kept"]).current_dir(disk.at())).unwrap();
    disk.kill();
    disk.mount_after_kill_with("provenance");
    disk.umount();
    let events = events(&disk);
    let find = |event: &str| events.iter().position(|found| found["event"] == event).unwrap();
    assert!(find("write") < find("crash"));
    assert_eq!(events[find("write")]["path"], "/kept");
}
