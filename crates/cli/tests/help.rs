//! Help, manual pages, completions, and the messages for values that options reject.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use obento_testkit::{Oracle, require};

/// A folder with the sample image as `disk.img.zst`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    std::fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    folder
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap()
}

fn stdout(folder: &Path, args: &[&str]) -> String {
    let output = obento(folder, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails_with(folder: &Path, args: &[&str], message: &str) {
    let output = obento(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(message), "{args:?}: {errors}");
}

#[test]
fn help_has_an_overview_commands_and_topics() {
    let folder = folder();
    let overview = stdout(folder.path(), &["help"]);
    assert_eq!(overview, stdout(folder.path(), &["--help"]));
    for group in ["Look:", "Extract:", "Change:", "Create:", "Check:", "Mount:", "Measure:"] {
        assert!(overview.contains(&format!("\n{group}\n")), "{group}: {overview}");
    }
    assert_eq!(stdout(folder.path(), &["help", "cp"]), stdout(folder.path(), &["cp", "--help"]));
    let compare = stdout(folder.path(), &["help", "bench", "compare"]);
    assert!(compare.contains("Compare two runs"), "{compare}");
    assert!(stdout(folder.path(), &["help", "options"]).contains("--json"));
    assert!(stdout(folder.path(), &["help", "layout"]).contains("[[partition]]"));
    assert!(stdout(folder.path(), &["cp", "-h"]).contains("Usage: obento cp"));
    fails_with(folder.path(), &["help", "cp", "nosuch"], "cannot show help on 'cp nosuch'");
    let error = "obento: cannot show help on 'nosuch': unknown command or topic\n  help: run 'obento help' to list the commands and topics\n";
    assert_eq!(String::from_utf8(obento(folder.path(), &["help", "nosuch"]).stderr).unwrap(), error);
    let output = Command::new(env!("CARGO_BIN_EXE_obento"))
        .arg("help")
        .arg(OsStr::from_bytes(b"\xff"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unknown command or topic"));
}

#[test]
fn help_texts_are_plain() {
    let folder = folder();
    for (command, text) in [
        ("build", "Output image (created only on success)"),
        ("build", "Set owner UID:GID, or keep the host's owners"),
        ("build", "Overwrite OUT if it exists"),
        ("mkfs", "Block size in bytes"),
        ("options", "Print JSON, one object per line"),
        ("check", "Repair only problems whose repair is certain and loses no data"),
        ("write", "Append to the file"),
    ] {
        let help = stdout(folder.path(), &["help", command]);
        assert!(help.contains(text), "{command}: {help}");
    }
}

#[test]
fn rejected_values_are_reported_with_an_example() {
    let folder = folder();
    let fails = |args: &[&str], message: &str| fails_with(folder.path(), args, message);
    fails(
        &["build", "x.img", "--from", ".", "--size", "10Q"],
        "obento: invalid value '10Q' for --size\n  help: write a value such as 10G or auto",
    );
    fails(
        &["mkfs", "x.img", "10Q"],
        "obento: invalid size '10Q'\n  help: write a size of at least 1 byte, such as 10G",
    );
    fails(&["du", "-B", "10Q", "disk.img.zst"], "not a size such as 4096, 10M or 10MB");
    fails(&["chmod", "999", "disk.img.zst:/etc"], "obento: invalid mode '999'");
    fails(&["build", "disk.img.zst", "--from", "."], "file exists\n  help: use --force to overwrite it");
    fails(&["rm", "disk.img.zst"], "not a path inside an image");
    stdout(folder.path(), &["mkfs", "-q", "plain.img", "1M"]);
    fails(&["setfacl", "-m", "u::x!", "plain.img:/"], "invalid ACL entry 'u::x!'");
}

#[test]
fn sizes_have_the_same_units_in_every_command() {
    let folder = folder();
    for (size, bytes) in [("10M", 10 << 20), ("10MiB", 10 << 20), ("10MB", 10_000_000)] {
        let made = stdout(folder.path(), &["mkfs", "--json", "-F", &format!("{size}.img"), size]);
        assert!(made.contains("\"kind\":\"made\""), "{made}");
        let len = std::fs::metadata(folder.path().join(format!("{size}.img"))).unwrap().len();
        assert!(len <= bytes && len + 4096 > bytes, "{size}: {len}");
    }
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    stdout(folder.path(), &["build", "built.img", "--from", "empty", "--size", "10MB"]);
    stdout(folder.path(), &["truncate", "-s", "10MB", "10M.img:/file"]);
    assert_eq!(stdout(folder.path(), &["stat", "-c", "%s", "10M.img:/file"]), "10000000\n");
}

#[test]
fn a_manual_page_refers_to_the_options_of_every_command_in_a_paragraph_of_its_own() {
    let folder = folder();
    stdout(folder.path(), &["man", "."]);
    let text = std::fs::read_to_string(folder.path().join("obento-umount.1")).unwrap();
    assert!(text.contains(".PP\nThe options of every command are described in obento(1)."), "{text}");
}

#[test]
fn a_manual_page_has_every_section() {
    let folder = folder();
    stdout(folder.path(), &["man", "."]);
    for (page, sections) in [
        (
            "obento.1",
            &[
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXAMPLES",
                "EXIT STATUS",
                "ENVIRONMENT",
                "SEE ALSO",
            ][..],
        ),
        ("obento-inspect-inode.1", &["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "SEE ALSO"]),
        ("obento-part-add.1", &["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "SEE ALSO"]),
        (
            "obento-cp.1",
            &[
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXAMPLES",
                "EXIT STATUS",
                "ENVIRONMENT",
                "SEE ALSO",
            ],
        ),
        ("obento-bench-compare.1", &["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS"]),
    ] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        for section in sections {
            let is_there = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")]
                .iter()
                .any(|line| text.contains(line));
            assert!(is_there, "{page} has no {section}:\n{text}");
        }
    }
    let build = std::fs::read_to_string(folder.path().join("obento-build.1")).unwrap();
    assert!(
        build.contains(".TH obento-build 1  \"obento ") && build.contains("\\-\\-from <SRC>..."),
        "{build}"
    );
    assert!(!folder.path().join("obento-complete.1").exists());
}

/// Runs `script` in the shell `program`, with `line` as its last argument. Returns the lines of the output.
fn run_shell(folder: &Path, program: &str, options: &[&str], script: &str, line: &str) -> Vec<String> {
    let obento = Path::new(env!("CARGO_BIN_EXE_obento")).parent().unwrap();
    let path = format!("{}:{}", obento.display(), std::env::var("PATH").unwrap());
    let output = Command::new(program)
        .args(options)
        .args(["-c", script])
        .args((program != "fish").then_some(program))
        .arg(line)
        .env("PATH", path)
        .env("HOME", folder)
        .env("COMP_WORDBREAKS", " \t\n\"'><=;|&(:@")
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns the candidates of the bash completion for `line`.
fn completed(folder: &Path, line: &str) -> Vec<String> {
    let script = r#"eval "$(obento completions bash)"
        COMP_LINE=$1 COMP_POINT=${#1}
        _obento
        printf '%s\n' "${COMPREPLY[@]}""#;
    run_shell(folder, "bash", &["--norc"], script, line)
}

#[test]
fn zsh_completes_commands_options_and_paths_inside_images() {
    if !require(&[Oracle::Program("zsh")]) {
        return;
    }
    let folder = folder();
    // The functions of a completion widget, which print the candidates with their suffix.
    let script = r#"compdef() { }
        _files() { print -r -- "files of the host" }
        compadd() {
            local suffix=' '
            while [[ $1 != -- ]]; do
                [[ $1 == -S ]] && suffix=$2
                shift
            done
            shift
            (( $# )) && print -rl -- "${(@)@/%/$suffix}"
            return 0
        }
        eval "$(obento completions zsh)"
        words=("${(@s: :)1}") CURRENT=${#words} PREFIX=${words[-1]}
        _obento"#;
    let completed = |line: &str| run_shell(folder.path(), "zsh", &["-f"], script, line);
    assert_eq!(completed("obento readl"), ["readlink "]);
    assert_eq!(completed("obento ls --no-rep"), ["--no-replay "]);
    assert_eq!(completed("obento ls disk.img.zst:/h"), ["disk.img.zst:/home/"]);
    assert_eq!(completed("obento cat disk.img.zst:/etc/gr"), ["disk.img.zst:/etc/group "]);
    assert_eq!(completed("obento cat disk.im"), ["files of the host"]);
}

#[test]
fn fish_completes_commands_options_and_paths_inside_images() {
    if !require(&[Oracle::Program("fish")]) {
        return;
    }
    let folder = folder();
    let script = "obento completions fish | source; complete -C $argv[1]";
    let completed = |line: &str| run_shell(folder.path(), "fish", &["--no-config"], script, line);
    assert_eq!(completed("obento readl"), ["readlink"]);
    assert_eq!(completed("obento ls --no-rep"), ["--no-replay"]);
    assert_eq!(completed("obento ls disk.img.zst:/h"), ["disk.img.zst:/home/"]);
    assert_eq!(completed("obento cat disk.img.zst:/etc/gr"), ["disk.img.zst:/etc/group"]);
    assert_eq!(completed("obento cat disk.im"), ["disk.img.zst"]);
}

#[test]
fn bash_completes_commands_options_and_paths_inside_images() {
    if !require(&[Oracle::Program("bash")]) {
        return;
    }
    let folder = folder();
    let completed = |line: &str| completed(folder.path(), line);
    assert_eq!(completed("obento readl"), ["readlink"]);
    assert_eq!(completed("obento help lay"), ["layout"]);
    assert_eq!(completed("obento ls --no-rep"), ["--no-replay"]);
    assert_eq!(completed("obento --engine nat"), ["native"]);
    assert_eq!(completed("obento ls disk.img.zst:"), ["/"]);
    // Readline keeps the text up to the colon.
    assert_eq!(completed("obento ls disk.img.zst:/h"), ["/home/"]);
    assert_eq!(completed("obento cat disk.img.zst:/etc/"), ["/etc/group", "/etc/os-release", "/etc/passwd"]);
    assert_eq!(completed("obento -t ext4 cat disk.img.zst:/etc/gr"), ["/etc/group"]);
    assert!(completed("obento cat nosuch.img:/etc/").is_empty());
    assert!(completed("obento cat disk.im").is_empty(), "files of the host are left to bash");
}
