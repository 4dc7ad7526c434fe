//! Commands on a hostile NFS server: each of them ends with an error, within its limits.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fake::{Fake, Mood};

/// The address space of a command.
const MEMORY_KIB: u64 = 1 << 20;

/// Runs a command with the address of the server for `@` in `folder`. Returns its code and its messages.
fn run(fake: &Fake, folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let address = format!("nfs://127.0.0.1:{0}/srv?mountport={0}&maxentries=300", fake.port);
    let script = format!("ulimit -v {MEMORY_KIB}; exec timeout 120 \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_obento")]).current_dir(folder);
    let output =
        command.args(arguments.iter().map(|argument| argument.replace('@', &address))).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

const COMMANDS: [&[&str]; 10] = [
    &["find", "@:/", "-name", "zz"],
    &["grep", "-r", "zz", "@:/"],
    &["sha256sum", "-r", "@:/"],
    &["cp", "-r", "@:/.", "out"],
    &["export", "@:/", "-o", "out.tar"],
    &["diff", "-r", "@:/", "empty"],
    &["du", "@:/"],
    &["tree", "@:/"],
    &["ls", "-R", "@:/"],
    &["ls", "@:/zz*"],
];

#[test]
fn a_directory_without_an_end_costs_each_command_an_error() {
    for mood in [Mood::Endless, Mood::EndlessDots] {
        let fake = Fake::start(mood);
        for arguments in COMMANDS {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("empty")).unwrap();
            let (code, messages) = run(&fake, folder.path(), arguments);
            assert!(matches!(code, Some(1 | 2)), "{mood:?}, {arguments:?}: {code:?}, {messages}");
            assert!(
                messages.contains("the NFS server lists more entries of a directory than permitted"),
                "{mood:?}, {arguments:?}: {messages}"
            );
        }
    }
}

#[test]
fn a_directory_below_itself_is_reported_and_not_entered_again() {
    let fake = Fake::start(Mood::Cycle);
    // `diff` does not enter a directory that the other side does not have.
    for arguments in COMMANDS[..9].iter().filter(|arguments| arguments[0] != "diff") {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        let (code, messages) = run(&fake, folder.path(), arguments);
        assert!(matches!(code, Some(1 | 2)), "{arguments:?}: {code:?}, {messages}");
        assert!(messages.contains("outer"), "{arguments:?}: {messages}");
        assert!(messages.len() < 4000, "{arguments:?}: {messages}");
    }
}
