//! `obento prov` on an image whose changes were recorded through the library.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use obento::address::FileSelector;
use obento::base::Timestamp;
use obento::env::FixedClock;
use obento::image::Recording;
use obento::provenance::{Actor, LogOptions, OpenMode, OpenRecorder as _, Recorded, Who};
use obento::vfs::Symlinks;
use obento::{Image, Options, Volume};
use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};
use serde_json::Value;
use tempfile::TempDir;

/// The process whose turn it is.
#[derive(Default)]
struct Turn(Mutex<Actor>);

impl Who for Turn {
    fn now(&self) -> Option<Actor> {
        Some(*self.0.lock().unwrap())
    }
}

/// A volume in use by programs that the test plays.
struct Stage {
    volume: Volume,
    turn: Arc<Turn>,
}

impl Stage {
    /// Opens the image, whose clock shows 2026-01-02 03:04:`second`.
    fn open(image: &Path, second: i64, log: LogOptions) -> Self {
        let turn = Arc::new(Turn::default());
        let options = Options {
            recording: Some(Recording { who: turn.clone(), log }),
            clock: Arc::new(FixedClock(Timestamp::new(1_767_323_040 + second, 0))),
            ..Options::default().for_change()
        };
        let volume = Image::builder().options(options).open(image).unwrap().volume(None).unwrap();
        Self { volume, turn }
    }

    fn program(&self, pid: u32, name: &str) -> &Self {
        let actor = Actor { pid, start: 100, uid: 1000, gid: 1000, ..Actor::default() };
        *self.turn.0.lock().unwrap() = actor.with_comm(name.as_bytes());
        self
    }

    /// Closes the volume and the image.
    fn close(self) {
        self.volume.close().unwrap();
    }

    fn recorded(&self) -> &Recorded {
        self.volume.recorded().unwrap()
    }

    fn ino(&self, path: &str) -> obento::base::Ino {
        self.volume.resolve(&FileSelector::Path(path.into()), Symlinks::Follow).unwrap().ino()
    }

    fn reads(&self, path: &str) -> &Self {
        let (actor, ino) = (self.turn.now().unwrap(), self.ino(path));
        self.recorded().opened(actor, ino, OpenMode { read: true, write: false });
        self.recorded().was_read(actor, ino, &(0..self.volume.metadata(path).unwrap().len()));
        self.recorded().closed(actor, ino);
        self
    }

    fn writes(&self, path: &str, text: &str) -> &Self {
        self.volume.write(path, text).unwrap();
        self.volume.sync().unwrap();
        self
    }
}

/// Creates an image with the file `/lib.a`, which is older than the log.
fn image(folder: &TempDir) -> bool {
    if !require(&[Oracle::Program("mke2fs")]) {
        return false;
    }
    std::fs::create_dir(folder.path().join("tree")).unwrap();
    std::fs::write(folder.path().join("tree/lib.a"), "old").unwrap();
    let path = folder.path().join("disk.img");
    let tree = folder.path().join("tree");
    let arguments = ["-q", "-F", "-t", "ext4", "-d", tree.to_str().unwrap(), path.to_str().unwrap(), "32M"];
    call("mke2fs", arguments).unwrap();
    true
}

/// Plays a small build: `cc` makes `/src/a.o`, `ld` makes `/app` of it and of `/lib.a`, and the object is removed.
fn build(image: &Path) {
    let stage = Stage::open(image, 1, LogOptions::default());
    stage.program(10, "vi");
    stage.volume.create_dir("/src").unwrap();
    stage.writes("/src/a.c", "int main;");
    stage.program(11, "cc").reads("/src/a.c").writes("/src/a.o", "object");
    stage.program(12, "ld").reads("/src/a.o").reads("/lib.a").writes("/app", "program");
    stage.program(13, "rm");
    stage.volume.remove_file("/src/a.o").unwrap();
    stage.close();
}

fn obento(folder: &TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder.path()).env("TZ", "UTC").args(args).output().unwrap()
}

#[track_caller]
fn said(folder: &TempDir, args: &[&str]) -> String {
    let output = obento(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_lineage_of_a_file_is_a_tree_of_files_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let back = said(&folder, &["prov", "disk.img", "--of", "/app", "--ascii"]);
    assert_eq!(
        back,
        "/app  version 1 by ld[12], user 1000, 2026-01-02 03:04:01\n\
         |-- /lib.a  older than the log\n\
         `-- /src/a.o (removed)  version 1 by cc[11], user 1000, 2026-01-02 03:04:01\n    \
             `-- /src/a.c  version 1 by vi[10], user 1000, 2026-01-02 03:04:01\n\
         \n4 versions, 2 steps, 3 programs; each source is possible, not certain\n"
    );
    let forward = said(&folder, &["prov", "disk.img", "--of", "src/a.c", "--forward", "--ascii"]);
    assert_eq!(
        forward.lines().map(|line| line.split("  version").next().unwrap()).collect::<Vec<_>>()[..3],
        ["/src/a.c", "`-- /src/a.o (removed)", "    `-- /app"]
    );
    // A removed file is found by its last path.
    let removed = said(&folder, &["prov", "disk.img", "--of", "/src/a.o", "--json"]);
    let removed = lines(&removed);
    assert_eq!(removed.len(), 2);
    assert_eq!((&removed[0]["path"], &removed[0]["removed"]), (&"/src/a.o".into(), &true.into()));
    assert_eq!((&removed[1]["of"], &removed[1]["certainty"]), (&removed[0]["id"], &"possible".into()));
    let missing = obento(&folder, &["prov", "disk.img", "--of", "/none"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_tree_has_at_most_the_requested_number_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let prov = |args: &[&str]| said(&folder, &[&["prov", "disk.img", "--of", "/app"], args].concat());
    let (whole, part) = (prov(&[]), prov(&["-n", "2"]));
    assert_eq!(whole.lines().count(), 6, "{whole}");
    assert!(whole.lines().take(2).eq(part.lines().take(2)), "{part}");
    let rest: Vec<_> = part.lines().skip(2).collect();
    let [empty, summary] = rest[..] else { panic!("{part}") };
    assert!(empty.is_empty() && summary.starts_with("2 versions, 1 step, "), "{part}");
    assert!(summary.contains(" and more, which -n excludes; "), "{part}");
    assert_eq!(prov(&["-n", "2", "--json"]).lines().count(), 2);
    // The whole tree has no more lines than this.
    assert_eq!(prov(&["-n", "4"]), whole);
}

#[test]
fn the_history_is_listed_with_the_newest_record_first() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let text = said(&folder, &["prov", "disk.img", "-n", "2"]);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    assert_eq!(words[0], ["2026-01-02", "03:04:01", "-", "-", "unmount"]);
    assert_eq!(words[1], ["2026-01-02", "03:04:01", "1000", "rm[13]", "remove", "/src/a.o"]);
    let events = lines(&said(&folder, &["prov", "disk.img", "--json", "--by", "ld"]));
    let found: Vec<_> = events.iter().rev().map(|event| (&event["event"], &event["path"])).collect();
    let expected = [
        ("open", "/src/a.o"),
        ("close", "/src/a.o"),
        ("open", "/lib.a"),
        ("close", "/lib.a"),
        ("create", "/app"),
        ("truncate", "/app"),
        ("write", "/app"),
    ];
    let expected = expected.map(|(event, path)| (Value::from(event), Value::from(path)));
    assert_eq!(found, expected.iter().map(|(event, path)| (event, path)).collect::<Vec<_>>());
    assert_eq!(events[5]["bytes_read"], 6);
    assert!(events.iter().all(|event| event["pid"] == 12 && event["uid"] == 1000));
    assert_eq!(said(&folder, &["prov", "disk.img", "--since", "2026-01-02 03:04:02"]), "");
    assert_eq!(said(&folder, &["prov", "disk.img", "--by", "uid=7"]), "");
    assert_eq!(said(&folder, &["prov", "disk.img", "--by", "11"]).lines().count(), 5);
}

#[test]
fn an_incremental_backup_gets_the_paths_that_changed() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    let disk = folder.path().join("disk.img");
    build(&disk);
    let output = obento(&folder, &["prov", "disk.img", "--changed-since", "1"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "app\nsrc\nsrc/a.c\n");
    let note = String::from_utf8(output.stderr).unwrap();
    let next = note.trim().rsplit(' ').next().unwrap();
    let stage = Stage::open(&disk, 2, LogOptions::default());
    stage.program(20, "sh").writes("/lib.a", "new").writes("/a\nb", "odd");
    stage.volume.rename("/src/a.c", "/src/b.c").unwrap();
    stage.close();
    assert_eq!(said(&folder, &["prov", "disk.img", "--changed-since", next, "-0"]), "a\nb\0lib.a\0src/b.c\0");
    let changed = lines(&said(&folder, &["prov", "disk.img", "--changed-since", next, "--json"]));
    let start: u64 = next.parse().unwrap();
    let removed: Vec<_> = changed.iter().filter(|line| line["removed"] == true).collect();
    assert_eq!((removed.len(), &removed[0]["path"]), (1, &"/src/a.c".into()));
    let next = changed.last().unwrap()["next_sequence"].as_u64().unwrap();
    assert!(next > start);
    // Nothing has changed since the last record.
    assert_eq!(said(&folder, &["prov", "disk.img", "--changed-since", &next.to_string()]), "");
    let output = obento(&folder, &["prov", "disk.img", "--changed-since", &(next + 1).to_string()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{error}");
    assert!(error.contains(&format!("the last record of the log is {}", next - 1)), "{error}");
}

#[test]
fn a_file_that_loses_one_of_two_names_by_a_rename_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    let disk = folder.path().join("disk.img");
    let stage = Stage::open(&disk, 1, LogOptions::default());
    stage.program(10, "sh").writes("/old", "text").writes("/new", "text");
    stage.volume.hard_link("/old", "/other").unwrap();
    stage.volume.rename("/new", "/old").unwrap();
    stage.close();
    let names = lines(&said(&folder, &["prov", "disk.img", "--of", "/other", "--json"]));
    assert!(!names.is_empty() && names.iter().all(|line| line["removed"] != true), "{names:?}");
    let stage = Stage::open(&disk, 2, LogOptions::default());
    stage.program(11, "sh").writes("/newer", "text");
    stage.volume.rename("/newer", "/other").unwrap();
    stage.close();
    let names = lines(&said(&folder, &["prov", "disk.img", "--by", "11", "--json"]));
    assert!(names.iter().any(|line| line["event"] == "rename"), "{names:?}");
}

#[test]
fn a_list_of_changes_that_cannot_be_complete_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    let disk = folder.path().join("disk.img");
    let log = LogOptions { segment: 16 << 10, segments: 2, ..LogOptions::default() };
    let stage = Stage::open(&disk, 1, log);
    stage.program(10, "sh");
    for number in 0..1000 {
        stage.writes(&format!("/file {}", number % 50), "text");
    }
    stage.close();
    let output = obento(&folder, &["prov", "disk.img", "--changed-since", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error.contains("the log begins with record ") && error.contains("\n  help: make a full backup"),
        "{error}"
    );
    // A program that ends without closing the volume.
    let next = lines(&said(&folder, &["prov", "disk.img", "-n", "1", "--json"]))[0]["sequence"].to_string();
    let stage = Stage::open(&disk, 2, log);
    stage.program(11, "sh").writes("/last", "text");
    drop(stage);
    Stage::open(&disk, 3, log).close();
    let output = obento(&folder, &["prov", "disk.img", "--changed-since", &next]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "last\n");
}

#[test]
fn exports_contain_each_version_and_each_edge_once() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let prov: Value =
        serde_json::from_str(&said(&folder, &["prov", "disk.img", "--export", "prov-json"])).unwrap();
    let count = |section: &str| prov[section].as_object().unwrap().len();
    let sections =
        ["entity", "activity", "agent", "used", "wasGeneratedBy", "wasDerivedFrom", "wasInvalidatedBy"];
    assert_eq!(sections.map(count), [4, 3, 1, 3, 3, 3, 1]);
    let events = lines(&said(&folder, &["prov", "disk.img", "--export", "openlineage"]));
    let jobs: Vec<_> = events.iter().map(|event| event["job"]["name"].as_str().unwrap()).collect();
    assert_eq!(jobs, ["vi", "cc", "ld"]);
    let inputs: Vec<_> = events.iter().map(|event| event["inputs"].as_array().unwrap().len()).collect();
    assert_eq!(inputs, [0, 1, 2]);
    let dot = said(&folder, &["prov", "disk.img", "--export", "dot"]);
    assert_eq!((dot.matches("[label=").count(), dot.matches("->").count()), (4, 6));
    assert_eq!(dot.matches("shape=ellipse").count(), 3);
}

#[test]
fn a_volume_without_a_log_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    let output = obento(&folder, &["prov", "disk.img"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "obento: cannot show the history of 'disk.img': the volume has no provenance log\n  \
         help: mount the volume with -o provenance to record its history\n"
    );
}

#[test]
fn a_check_reports_damaged_blocks_of_the_log_as_remarks() {
    let folder = tempfile::tempdir().unwrap();
    if !image(&folder) {
        return;
    }
    let disk = folder.path().join("disk.img");
    build(&disk);
    assert!(!said(&folder, &["check", "-v", "disk.img"]).contains("provenance"));
    // The block with the records: its checksum no longer matches.
    let mut bytes = std::fs::read(&disk).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"OBENPROV").unwrap() - 4 + 4096;
    bytes[at + 100] ^= 1;
    std::fs::write(&disk, &bytes).unwrap();
    let output = obento(&folder, &["check", "-v", "disk.img"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "segment 1 of the provenance log: block 1 is damaged: its records are lost";
    assert!(text.contains(expected), "{text}");
    let history = obento(&folder, &["prov", "disk.img"]);
    assert_eq!(history.status.code(), Some(1));
    assert!(String::from_utf8(history.stderr).unwrap().contains("block 1 is damaged"));
}

/// Opens the image without recording, and replaces files of the log.
fn replace(image: &Path, files: &[(&str, &[u8])]) {
    let options = Options::default().for_change();
    let volume = Image::builder().options(options).open(image).unwrap().volume(None).unwrap();
    files.iter().for_each(|(path, bytes)| volume.write(path, bytes).unwrap());
    volume.close().unwrap();
}

#[test]
fn a_check_finds_defective_indexes_and_removes_them_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    if !require(&[Oracle::Program("e2fsck")]) || !image(&folder) {
        return;
    }
    let disk = folder.path().join("disk.img");
    let stage = Stage::open(&disk, 1, LogOptions { segment: 16 << 10, ..LogOptions::default() });
    stage.program(10, "sh");
    (0..900).for_each(|number| stage.volume.write(format!("/file{number}"), "text").unwrap());
    let dir = "/.obento-prov";
    stage.close();
    let volume = Image::open(&disk).unwrap().volume(None).unwrap();
    let (second, third) =
        [2, 3].map(|number| volume.read(format!("{dir}/0000000{number}.idx")).unwrap()).into();
    drop(volume);
    let history = said(&folder, &["prov", "disk.img"]);
    assert!(!said(&folder, &["check", "-v", "disk.img"]).contains("provenance"));
    let mut damaged = second.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let files: [(&str, &[u8]); 3] = [
        (&format!("{dir}/00000001.idx"), &damaged),
        (&format!("{dir}/00000002.idx"), &third),
        (&format!("{dir}/000000ff.idx"), &second),
    ];
    replace(&disk, &files);
    let expected = [
        "index of segment 1 of the provenance log: the index is older than the segment",
        "index of segment 2 of the provenance log: the index is older than the segment",
        "index of segment 255 of the provenance log: the index belongs to no segment",
    ];
    let checked = |option: &str, code| {
        let output = obento(&folder, &["check", option, "disk.img"]);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = checked("-n", 4);
    let found = text.lines().filter(|line| line.contains("provenance")).map(str::to_lowercase);
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert!(text.contains("3 errors found"), "{text}");
    let text = checked("-p", 1);
    assert_eq!(text.lines().filter(|line| line.ends_with(": repaired")).count(), 3, "{text}");
    assert!(checked("-n", 0).contains("no problems"));
    call("e2fsck", ["-fn", disk.to_str().unwrap()]).unwrap();
    assert_eq!(said(&folder, &["prov", "disk.img"]), history);
}

/// Runs `obento prov` on a terminal with this number of rows. Returns the output and the exit code.
fn on_terminal(folder: &TempDir, rows: u32, pager: &str, args: &str) -> (String, Option<i32>) {
    let line = format!("stty rows {rows} cols 100; exec {} {args}", env!("CARGO_BIN_EXE_obento"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
    command.current_dir(folder.path()).env("TZ", "UTC").env("TERM", "xterm").env("SHELL", "/bin/sh");
    command.env_remove("COLUMNS").env_remove("LINES").env_remove("NO_COLOR").env("LS_COLORS", "mi=31:*.c=32");
    let output = command.env("PAGER", pager).stdin(std::process::Stdio::null()).output().unwrap();
    (String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n"), output.status.code())
}

#[test]
fn a_tree_that_is_longer_than_the_terminal_is_shown_by_the_pager_with_colours() {
    let folder = tempfile::tempdir().unwrap();
    if !require(&[Oracle::Program("script"), Oracle::Program("stty")]) || !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let of = "prov disk.img --of /app";
    let marks = "sed 's/^/paged: /'";
    // Six lines: four files, an empty line and the summary.
    let (short, code) = on_terminal(&folder, 7, marks, of);
    assert!(!short.contains("paged") && short.contains("possible, not certain"), "{short}");
    assert_eq!((short.lines().count(), code), (6, Some(0)), "{short}");
    let (long, code) = on_terminal(&folder, 5, marks, of);
    let lines: Vec<_> = long.lines().map(|line| line.strip_prefix("paged: ").unwrap_or("?")).collect();
    assert_eq!((lines.join("\n"), code), (short.trim_end().to_owned(), Some(0)));
    // The removed object has the colour of missing files, and the source that of its suffix.
    for colour in ["\x1b[31m/src/a.o\x1b[0m (removed)", "\x1b[32m/src/a.c\x1b[0m"] {
        assert!(long.contains(colour), "{long:?}");
    }
    let (plain, _) = on_terminal(&folder, 5, marks, &format!("{of} --color=never"));
    assert!(plain.contains("paged: ") && !plain.contains('\x1b'), "{plain:?}");
}

#[test]
fn a_pager_that_ends_early_or_does_not_exist_is_no_error_and_none_starts_without_output() {
    let folder = tempfile::tempdir().unwrap();
    if !require(&[Oracle::Program("script"), Oracle::Program("stty")]) || !image(&folder) {
        return;
    }
    build(&folder.path().join("disk.img"));
    let of = "prov disk.img --of /app";
    let (text, code) = on_terminal(&folder, 3, "head -n 1", of);
    assert_eq!((text.lines().count(), code), (1, Some(0)), "{text}");
    let (text, code) = on_terminal(&folder, 3, "no-such-pager", of);
    assert!(text.contains("no-such-pager") && text.contains("possible, not certain"), "{text}");
    assert_eq!((text.lines().count(), code), (7, Some(0)), "{text}");
    for none in ["", "cat"] {
        assert_eq!(on_terminal(&folder, 3, none, of).0.lines().count(), 6);
    }
    let (text, code) = on_terminal(&folder, 3, "echo started", "prov disk.img --of /none");
    assert!(!text.contains("started") && text.contains("neither the volume nor its history"), "{text}");
    assert_eq!(code, Some(2));
    let (text, _) = on_terminal(&folder, 3, "echo started", &format!("{of} --json"));
    assert!(!text.contains("started"), "{text}");
    let output = obento(&folder, &["prov", "disk.img", "--of", "/app"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 6);
}

/// The time of built volumes: 2026-01-02 03:04:01 UTC.
const EPOCH: &str = "1767323041";

/// Builds `out` with these arguments.
fn built(folder: &TempDir, out: &str, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder.path()).env("TZ", "UTC").env("SOURCE_DATE_EPOCH", EPOCH);
    let output = command.args(["build", out, "-q"]).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates the directory `rootfs`, the file `settings` and the archive `more.tar`.
fn sources(folder: &TempDir) {
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("rootfs/bin")).unwrap();
    std::fs::write(path("rootfs/bin/app"), "program").unwrap();
    std::fs::hard_link(path("rootfs/bin/app"), path("rootfs/bin/other")).unwrap();
    std::os::unix::fs::symlink("bin/app", path("rootfs/run")).unwrap();
    std::fs::write(path("settings"), "a=1").unwrap();
    std::fs::create_dir(path("more")).unwrap();
    std::fs::write(path("more/data"), "data").unwrap();
    call("tar", ["-C", path("more").to_str().unwrap(), "-cf", path("more.tar").to_str().unwrap(), "data"])
        .unwrap();
}

const SOURCES: [&str; 5] = ["--from", "rootfs", "more.tar", "--add", "settings:/etc/settings"];

#[test]
fn the_first_records_of_a_built_image_name_the_sources_of_its_files() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sources(&folder);
    for (kind, has_links) in [("ext4", true), ("vfat", false), ("exfat", false)] {
        let image = format!("{kind}.img");
        let mut args = vec!["-t", kind, "--provenance"];
        args.extend(SOURCES);
        if !has_links {
            // A format without symbolic links refuses one.
            args.extend(["--exclude", "run"]);
        }
        built(&folder, &image, &args);
        let events = lines(&said(&folder, &["prov", &image, "--json"]));
        let events: Vec<&Value> = events.iter().rev().collect();
        let named: Vec<_> = events.iter().filter(|event| event["event"] == "source").collect();
        let named: Vec<_> = named
            .iter()
            .map(|event| (event["path"].as_str().unwrap(), event["source"].as_str().unwrap()))
            .collect();
        let mut expected = vec![
            ("/data", "more.tar:data"),
            ("/run", "rootfs/run"),
            ("/bin/app", "rootfs/bin/app"),
            ("/bin/other", "rootfs/bin/other"),
            ("/etc/settings", "settings"),
        ];
        // The second name of a file is a second file in a format without links.
        expected.retain(|(path, _)| if has_links { *path != "/bin/other" } else { *path != "/run" });
        assert_eq!(named, expected, "{kind}");
        assert_eq!(events.first().unwrap()["event"], "mount");
        assert_eq!(events.last().unwrap()["event"], "unmount");
        let of_build = events.iter().filter(|event| event["program"] == "obento build");
        assert!(of_build.clone().count() > named.len());
        assert!(of_build.clone().all(|event| event["pid"] == 0 && event["process_start"] == 0));
        let shown = said(&folder, &["prov", &image, "--of", "/etc/settings"]);
        assert_eq!(
            shown.lines().next().unwrap(),
            "/etc/settings  version 1 by obento build[0], user 0, 2026-01-02 03:04:01, from settings"
        );
        assert_eq!(obento(&folder, &["check", &image]).status.code(), Some(0));
    }
}

#[test]
fn the_same_sources_make_the_same_bytes_with_their_history() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sources(&folder);
    for kind in ["ext4", "ext2", "vfat", "exfat"] {
        let args = [&["-t", kind, "--provenance", "--exclude", "run"][..], &SOURCES].concat();
        built(&folder, "one.img", &args);
        built(&folder, "two.img", &[&args[..], &["--threads", "3", "--verify"]].concat());
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert!(read("one.img") == read("two.img"), "{kind}");
        // The smallest volume has room for the log too.
        built(&folder, "least.img", &[&args[..], &["--minimize", "--verify"]].concat());
        assert!(said(&folder, &["prov", "least.img"]).contains("rootfs/bin/app"), "{kind}");
        for name in ["one.img", "two.img", "least.img"] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
}

#[test]
fn the_history_of_a_built_image_continues_on_a_mount() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sources(&folder);
    built(&folder, "disk.img", &[&SOURCES[..], &["--provenance", "--size", "32M"]].concat());
    let stage = Stage::open(&folder.path().join("disk.img"), 2, LogOptions::default());
    stage.program(20, "ld").reads("/etc/settings").reads("/data").writes("/out", "linked");
    stage.close();
    let back = said(&folder, &["prov", "disk.img", "--of", "/out", "--ascii"]);
    assert_eq!(
        back,
        "/out  version 1 by ld[20], user 1000, 2026-01-02 03:04:02\n\
         |-- /data  version 1 by obento build[0], user 0, 2026-01-02 03:04:01, from more.tar:data\n\
         `-- /etc/settings  version 1 by obento build[0], user 0, 2026-01-02 03:04:01, from settings\n\
         \n3 versions, 1 step, 2 programs; each source is possible, not certain\n"
    );
    assert_eq!(obento(&folder, &["check", "disk.img"]).status.code(), Some(0));
}

#[test]
fn a_source_with_the_name_of_the_log_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("rootfs/.obento-prov")).unwrap();
    let output = obento(&folder, &["build", "disk.img", "--from", "rootfs", "--provenance"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("this is the name of the provenance log"), "{text}");
    assert!(!folder.path().join("disk.img").exists());
}
