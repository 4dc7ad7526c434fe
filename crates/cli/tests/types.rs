//! `obento types` lists supported types and missing programs.

use std::io::Write as _;
use std::process::{Command, Stdio};

fn types(arguments: &[&str], linux: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.arg("types").args(arguments).env_clear();
    if let Some(linux) = linux {
        command.env("OBENTO_LINUX", linux);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn words<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect()
}

#[test]
fn types_of_obentos_own_come_first_and_those_of_the_kernel_name_their_programs() {
    let text = types(&[], None);
    assert_eq!(words(&text, "ext4"), ["ext4", "ext3", "ext2", "native", "yes", "yes", "yes", "yes", "yes"]);
    assert_eq!(words(&text, "xfs"), ["xfs", "linux", "yes", "yes", "mkfs.xfs", "xfs_repair", "yes"]);
    assert_eq!(words(&text, "squashfs"), ["squashfs", "linux", "yes", "-", "-", "-", "yes"]);
    let of = |by: &str| text.lines().position(|line| line.contains(by));
    let last_native =
        text.lines().count() - text.lines().rev().position(|line| line.contains(" native ")).unwrap();
    assert!(Some(last_native) <= of(" linux ").map(|at| at + 1), "{text}");
}

#[test]
fn a_missing_kernel_is_reported_with_the_command_that_installs_it() {
    let text = types(&[], Some("/nowhere/linux.uml"));
    assert!(
        text.contains(
            "missing linux.uml to open the types of the engine linux: apt-get install user-mode-linux"
        ),
        "{text}"
    );
}

#[test]
fn json_has_an_object_a_type_with_what_is_missing_for_it() {
    let text = types(&["--json"], Some("/nowhere/linux.uml"));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| lines.iter().find(|line| line["type"] == name).unwrap();
    let (ext4, jfs) = (of("ext4"), of("jfs"));
    assert_eq!(ext4["engine"], "native");
    // Only mounting requires something that a machine may lack.
    assert!(ext4["missing"].as_array().unwrap().iter().all(|lack| lack["for"] == "mount"), "{ext4}");
    assert_eq!(ext4["names"], serde_json::json!(["ext4", "ext3", "ext2"]));
    assert_eq!((&jfs["engine"], &jfs["check_program"]), (&"linux".into(), &"fsck.jfs".into()));
    let open = serde_json::json!({
        "for": "open", "program": "linux.uml", "install": "apt-get install user-mode-linux"
    });
    assert_eq!(jfs["missing"][0], open);
}

/// Runs a command line in `folder`, and returns its exit code.
fn code(folder: &std::path::Path, line: &str, input: &[u8]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.args(line.split(' ')).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // A command that refuses its operand does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait().unwrap().code()
}

#[test]
fn the_columns_of_a_native_type_are_what_commands_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/file"), "bytes").unwrap();
    let text = types(&["--json"], None);
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let natives: Vec<_> = rows.filter(|row| row["engine"] == "native").collect();
    assert!(natives.len() >= 8, "{text}");
    for row in natives {
        let is = |column: &str| row[column] == true;
        let made = if is("make") { 0 } else { 2 };
        let names = row["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        // 'ntfs3' is another name of a driver that creates nothing.
        for name in names {
            for line in
                [format!("mkfs -q -t {name} x.img 64M"), format!("build -q -t {name} x.img --from tree")]
            {
                let _ = std::fs::remove_file(folder.join("x.img"));
                assert_eq!(code(folder, &line, b""), Some(made), "{line}");
                assert_eq!(folder.join("x.img").exists(), is("make"), "{line}");
            }
            if !is("make") {
                continue;
            }
            let read = code(folder, "cat x.img:/file", b"") == Some(0);
            let checked = code(folder, "check -q x.img", b"") == Some(0);
            std::fs::remove_file(folder.join("x.img")).unwrap();
            code(folder, &format!("mkfs -q -t {name} x.img 64M"), b"");
            let written = code(folder, "write x.img:/new", b"bytes") == Some(0);
            assert_eq!((read, written, checked), (is("read"), is("write"), is("check")), "{name}");
        }
    }
}
