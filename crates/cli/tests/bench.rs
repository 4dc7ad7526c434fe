//! `obento bench`: cells run in separate processes; results are stored, continued, reported and compared.

use std::path::Path;
use std::process::{Command, Output};

use obento_testkit::oracle::Oracle;
use obento_testkit::require;

fn obento(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A run that is small enough for a test, on the driver in this process and on this directory.
const SMALL: [&str; 16] = [
    "--file-size",
    "1M",
    "--size",
    "256M",
    "--run-time",
    "0.05",
    "--scale",
    "4000",
    "--repeat",
    "2",
    "--repeat-most",
    "2",
    "-T",
    "path:.",
    "-T",
    "image:ext4",
];

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    let all: Vec<&str> = ["bench"].iter().chain(&SMALL).chain(arguments).copied().collect();
    obento(folder, &all)
}

#[test]
fn a_run_leaves_results_a_table_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let done =
        bench(folder.path(), &["seq_write_128k,T=1", "createfiles,T=N", "varmail", "--output", "r.json"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let table = text(&done.stdout);
    for row in ["seq_write_128k,T=1", "createfiles,T=N", "varmail", "Speed relative to path:."] {
        assert!(table.contains(row), "{table}");
    }
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["r.json"]);
    let csv = text(&obento(folder.path(), &["bench", "report", "r.json", "--format", "csv"]).stdout);
    assert_eq!(csv.lines().count(), 1 + 3 * 2 * 2, "{csv}");
}

#[test]
fn results_are_not_written_over_and_are_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    assert!(bench(folder.path(), &["rand_read_4k,T=1", "--output", "r.json"]).status.success());
    let again = bench(folder.path(), &["rand_read_4k,T=1", "--output", "r.json"]);
    assert!(!again.status.success() && text(&again.stderr).contains("--resume"), "{}", text(&again.stderr));
    let more = bench(folder.path(), &["rand_read_4k,T=1", "mdtest,T=1", "--output", "r.json", "--resume"]);
    let said = text(&more.stderr);
    assert!(more.status.success() && said.contains("mdtest,T=1 on image:ext4, run 2"), "{said}");
    assert!(!said.contains("rand_read_4k,T=1 on"), "{said}");
}

#[test]
fn an_ordinary_user_measures_mounts_of_obento_and_an_unmeasurable_target_is_no_baseline() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if !require(&[Oracle::Root, Oracle::Fuse, Oracle::Program("fusermount3"), Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    // Another process copies the program: a file that a child of this process holds open for writing cannot
    // be executed.
    let program = folder.path().join("obento");
    assert!(
        Command::new("cp")
            .args([env!("CARGO_BIN_EXE_obento").as_ref(), program.as_path()])
            .status()
            .unwrap()
            .success()
    );
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).env_clear().env("PATH", "/usr/bin:/bin").args([
        "bench",
        "createfiles,T=1",
        "--size",
        "64M",
        "--scale",
        "40000",
        "--repeat",
        "2",
        "--repeat-most",
        "2",
    ]);
    for target in ["kernel:ext4", "image:ext4", "fuse:ext4", "fuse:vfat"] {
        command.args(["-T", target]);
    }
    let done = command.uid(65_534).gid(65_534).output().unwrap();
    let (table, said) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{said}");
    // Programs in `sbin` are found although it is not in the path.
    assert!(table.contains("requires ro") && !said.contains("not installed"), "{table}{said}");
    assert!(!table.contains("failed"), "{table}{said}");
    assert!(table.contains("Speed relative to image:ext4") && table.contains("fuse:vfat"), "{table}");
    let speeds = table.lines().filter(|line| line.trim_start().starts_with("fuse:")).count();
    assert_eq!(speeds, 2, "each mount is compared: {table}");
}

#[test]
fn a_workload_that_cannot_run_is_reported_once_and_the_rest_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let done = bench(folder.path(), &["untar", "--output", "r.json"]);
    let said = text(&done.stderr);
    assert_eq!(said.matches("programs require a path").count(), 1, "{said}");
    assert!(text(&done.stdout).contains("untar"), "{said}");
}

#[test]
fn a_run_that_fails_has_an_exit_code_also_if_it_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    // The target fails, because its command mounts nothing.
    let run = |more: &[&str]| {
        let words = [&["bench", "createfiles,T=1", "-T", "mount-cmd:exit 3", "--size", "64M"], more].concat();
        let words = [&words[..], &["--scale", "4000", "--repeat", "1", "--output", "r.json"]].concat();
        obento(folder.path(), &words)
    };
    for more in [&[][..], &["--resume"]] {
        let done = run(more);
        assert_eq!(done.status.code(), Some(1), "{more:?}: {}", text(&done.stderr));
    }
}

#[test]
fn a_run_over_the_limit_is_a_result_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let done = bench(
        folder.path(),
        &["seq_read_4k,T=1", "--limit", "0.01", "--run-time", "60", "--output", "r.json"],
    );
    assert!(text(&done.stdout).contains("not finished in"), "{}", text(&done.stdout));
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1);
}

#[test]
fn a_page_a_table_and_a_comparison_are_made_of_results() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.json", "b.json"] {
        assert!(
            bench(folder.path(), &["lat_rand_write_4k", "-T", "image:xv6", "--output", name])
                .status
                .success()
        );
    }
    assert!(
        obento(folder.path(), &["bench", "report", "a.json", "b.json", "--output", "r.html"])
            .status
            .success()
    );
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("lat_rand_write_4k|") && page.ends_with("</html>\n"));
    assert!(obento(folder.path(), &["mkfs", "-q", "disk.img", "1M"]).status.success());
    let image = std::fs::read(folder.path().join("disk.img")).unwrap();
    let refused = obento(folder.path(), &["bench", "report", "a.json", "--output", "disk.img"]);
    let why = "'disk.img': the file is a disk image";
    assert!(
        refused.status.code() == Some(2) && text(&refused.stderr).contains(why),
        "{}",
        text(&refused.stderr)
    );
    assert!(std::fs::read(folder.path().join("disk.img")).unwrap() == image);
    let same = obento(folder.path(), &["bench", "compare", "a.json", "a.json"]);
    assert!(same.status.success() && text(&same.stdout).contains("0 slower"), "{}", text(&same.stdout));
    // The exit code reports a missing result, also if the reader of the table has closed the pipe.
    let results = std::fs::read_to_string(folder.path().join("a.json")).unwrap();
    std::fs::write(folder.path().join("c.json"), results.replace("image:xv6", "image:other")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut lost = Command::new(env!("CARGO_BIN_EXE_obento"));
    lost.current_dir(folder.path()).args(["bench", "compare", "a.json", "c.json"]).stdout(writer);
    assert_eq!(lost.status().unwrap().code(), Some(1));
    let cut = &results[..results.len() / 2];
    let other = "{\"format\": \"another\"}";
    for (contents, why) in [
        ("<html>", "the file is not JSON (line 1, column 1)\n"),
        (cut, "the file is incomplete, and ends in line "),
        (other, "the file has another format\n"),
        ("", "the file is empty\n"),
    ] {
        std::fs::write(folder.path().join("d.json"), contents).unwrap();
        let absurd = text(&obento(folder.path(), &["bench", "report", "d.json"]).stderr);
        let reported = format!("cannot use 'd.json': not a file of results of 'obento bench': {why}");
        assert!(absurd.contains(&reported), "{absurd}");
    }
}

#[test]
fn results_of_fio_are_shown_beside_the_latencies_of_targets_with_a_path() {
    if !require(&[Oracle::Program("fio")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let workloads = ["lat_rand_read_4k", "lat_seq_write_4k,depth=16", "--age", "5", "--output", "r.json"];
    let done = bench(folder.path(), &workloads);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let csv = text(&obento(folder.path(), &["bench", "report", "r.json", "--format", "csv"]).stdout);
    let of = |workload: &str, phase: &str| {
        let cell = |line: &&str| line.contains(workload) && line.contains("path:.") && line.contains(phase);
        csv.lines().filter(cell).count()
    };
    assert_eq!(of("lat_rand_read_4k", "fio"), 2, "{csv}");
    if !text(&done.stderr).contains("io_uring cannot be used here") {
        assert_eq!(of("lat_seq_write_4k,depth=16", "fio"), 2, "{csv}");
    }
    assert!(text(&done.stderr).contains("programs require a path"), "{}", text(&done.stderr));
}

#[test]
fn the_kernel_and_a_mount_of_obento_are_measured_beside_each_other() {
    if !require(&[Oracle::LoopMount, Oracle::Fuse, Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let targets = ["-T", "kernel:ext4,data=journal", "-T", "fuse:ext4"];
    let arguments: Vec<&str> =
        ["fs_mark-fsync", "untar", "--output", "r.json"].iter().chain(&targets).copied().collect();
    let done = bench(folder.path(), &arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let csv = text(&obento(folder.path(), &["bench", "report", "r.json", "--format", "csv"]).stdout);
    for target in ["\"kernel:ext4,data=journal\"", "fuse:ext4"] {
        let lines: Vec<&str> = csv.lines().filter(|line| line.contains(target)).collect();
        assert_eq!(lines.len(), 4, "{csv}");
        // The bytes that reached the device are counted.
        assert!(
            lines.iter().all(|line| line.split(',').rev().nth(2).is_some_and(|written| written != "0")),
            "{csv}"
        );
    }
}

#[test]
fn an_unknown_name_is_reported_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let done = bench(folder.path(), &["varnail"]);
    let said = text(&done.stderr);
    assert!(said.contains("'varnail'") && said.contains("obento bench list"), "{said}");
    let listed = text(&obento(folder.path(), &["bench", "list"]).stdout);
    assert!(listed.contains("bento") && listed.contains("  varmail\n"), "{listed}");
}
