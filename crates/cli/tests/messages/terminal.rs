//! Output on a terminal, completions and manual pages.

use std::path::Path;
use std::process::Stdio;

use obento_testkit::oracle::program;
use obento_testkit::{Oracle, require};

use super::{folder, obento};

/// Returns the output of a command whose standard output is a terminal of 100 columns.
fn on_terminal(folder: &Path, line: &str) -> String {
    let shell = format!("stty cols 100 -opost; {line}");
    let mut script = program("script");
    script
        .args(["-qec", &shell, "/dev/null"])
        .current_dir(folder)
        .env("TERM", "xterm")
        .env_remove("LS_COLORS");
    script.env_remove("COLUMNS").stdin(Stdio::null());
    String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
}

#[test]
fn a_terminal_gets_columns_quotes_and_colours_as_from_ls() {
    if !require(&[Oracle::Program("script"), Oracle::Program("ls"), Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let tree = source.join("d");
    std::fs::create_dir_all(tree.join("a directory")).unwrap();
    for name in ["plain", "with space", "it's", "new\nline", "\u{1b}[31mred", "grüße", "日本語"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    for number in 0..60 {
        std::fs::write(tree.join(format!("file{number}")), "").unwrap();
    }
    std::os::unix::fs::symlink("nowhere", tree.join("broken")).unwrap();
    let image = folder.path().join("t.img");
    let make = program("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .args([&source, &image])
        .arg("8M")
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let binary = env!("CARGO_BIN_EXE_obento");
    for flags in ["", "-x", "-F", "-N", "-b", "-Q", "-1", "-q", "--color=never", "-r", "-w 60"] {
        let expected = on_terminal(folder.path(), &format!("ls --color=auto {flags} source/d"));
        let found = on_terminal(folder.path(), &format!("{binary} ls {flags} t.img:/d"));
        assert!(expected.contains("plain"), "{expected}");
        // The last of two --color options counts, in both programs.
        assert_eq!(found, expected, "ls {flags}");
    }
    let long = on_terminal(folder.path(), &format!("{binary} ls -l t.img:/d"));
    assert!(long.contains("''$'\\033''[31mred'"), "{long}");
    // No escape reaches the terminal except the colours of obento.
    assert!(!long.contains("\u{1b}[31m"), "{long}");
}

#[test]
fn names_that_find_writes_to_a_terminal_as_a_file_have_no_escapes_as_with_gnu_find() {
    if !require(&[Oracle::Program("script"), Oracle::Program("find"), Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("d/\u{1b}[31mred"), "").unwrap();
    std::os::unix::fs::symlink("to\u{1b}[31mred", source.join("d/link-red")).unwrap();
    let image = folder.path().join("t.img");
    let mut make = program("mke2fs");
    make.args(["-q", "-t", "ext4", "-d"]).args([&source, &image]).arg("8M");
    assert!(make.output().unwrap().status.success());
    let binary = env!("CARGO_BIN_EXE_obento");
    for action in ["-fprint /dev/tty", "-fprintf /dev/tty '%p %f %l\\n'", "-fprint0 /dev/tty"] {
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.split_inclusive(['\n', '\0']).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let tests = format!("-name '*red' {action} > out");
        let expected = on_terminal(folder.path(), &format!("find source/d {tests}"));
        let found = on_terminal(folder.path(), &format!("{binary} find t.img:/d {tests}"));
        assert_eq!(found.contains('\u{1b}'), action.starts_with("-fprint0"), "{action}: {found:?}");
        assert_eq!(sorted(found), sorted(expected.replace("source/d", "t.img:/d")), "{action}");
        assert_eq!(std::fs::read(folder.path().join("out")).unwrap(), b"", "{action}");
    }
    // A file keeps the bytes of the names, also if standard output is a terminal.
    on_terminal(folder.path(), &format!("{binary} find t.img:/d -name '*red' -fprint names"));
    let names = std::fs::read_to_string(folder.path().join("names")).unwrap();
    assert!(names.contains("t.img:/d/\u{1b}[31mred\n"), "{names:?}");
}

#[test]
fn completions_and_manual_pages_name_every_subcommand() {
    let folder = folder();
    let help = String::from_utf8(obento(folder.path(), &["--help"]).stdout).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(obento(folder.path(), &["completions", shell]).stdout).unwrap();
        assert!(script.contains("obento complete"), "{shell}");
    }
    assert!(obento(folder.path(), &["man", "."]).status.success());
    for name in ["obento.1", "obento-ls.1", "obento-readlink.1"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
    assert!(help.contains("disk.img@2:/etc/fstab"));
    assert_eq!(obento(folder.path(), &["man", "no/such/folder"]).status.code(), Some(2));
}
