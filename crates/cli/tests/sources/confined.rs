//! The sandbox of a command that reads a network source.

use std::process::{Command, Output};

use crate::fake::{self, Fake, Mood};

/// Runs a command on a server that ends the first connection at the first READ. `@` stands for its address.
fn run(arguments: &[&str]) -> Output {
    let fake = Fake::start(Mood::RestartsOnce);
    let address = format!("nfs://127.0.0.1:{0}/srv?mountport={0}:", fake.port);
    let arguments = arguments.iter().map(|argument| argument.replace('@', &address));
    Command::new(env!("CARGO_BIN_EXE_obento")).args(arguments).output().unwrap()
}

#[test]
fn a_command_in_its_sandbox_uses_only_the_connection_that_it_opened_before() {
    let confined = run(&["cat", "@/file"]);
    let said = String::from_utf8_lossy(&confined.stderr);
    assert_eq!((confined.status.code(), confined.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("closed the connection"), "{said}");
    // A shell has no sandbox, and connects again.
    let free = run(&["shell", "-r", "@/", "-c", "cat file"]);
    assert_eq!(free.status.code(), Some(0), "{}", String::from_utf8_lossy(&free.stderr));
    assert!(free.stdout == fake::contents());
}
