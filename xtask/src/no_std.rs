//! The proof that the core and the drivers require no operating system. They are built for a target without an
//! operating system, for which only `core` and `alloc` exist. A plain `--no-default-features` build would not detect a
//! dependency that uses `std` itself.
//!
//! The facade without its features uses `std`, but no files, processes or threads. It is built for a target that has none.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::{crates, packages};

/// The target of the facade.
const WASM: &str = "wasm32-unknown-unknown";

/// Compiles the core without `std`, and checks that the same build rejects a crate that requires `std`. Compiles the
/// facade without its features for [`WASM`], and checks that this build rejects the features. No code is generated: a
/// name that does not exist is found before.
pub fn run(shell: &Shell) -> Result<()> {
    packages::ensure(
        shell,
        &[("/usr/bin/rustc", "rustc-web"), ("/usr/src/rustc-1.96.0/library", "rust-web-src")],
    )?;
    let _environment = [
        shell.push_env("RUSTC", "/usr/bin/rustc"),
        shell.push_env("RUSTC_BOOTSTRAP", "1"),
        shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target/no-std")),
    ];
    let target = ["-Zbuild-std=core,alloc", "--target", "x86_64-unknown-none", "--locked"];
    let crates: Vec<_> = crates::all(shell)?.into_iter().filter(|one| one.no_std).collect();
    ensure!(!crates.is_empty(), "no crate has `no-std` in its manifest");
    let packages = crates.iter().flat_map(|one| ["-p", &one.package]);
    cmd!(shell, "cargo check --no-default-features {target...} {packages...}").run()?;
    let refused = cmd!(shell, "cargo check -p obento-base --features std {target...}")
        .quiet()
        .ignore_status()
        .output()?;
    ensure!(
        !refused.status.success(),
        "a crate that needs `std` was built without it: this test detects nothing"
    );
    println!("{} crates build without std, and a crate that needs it does not", crates.len());
    let target = ["-Zbuild-std=std,panic_abort", "--target", WASM, "--locked"];
    cmd!(shell, "cargo check -p obento --no-default-features {target...}").run()?;
    let refused = cmd!(shell, "cargo check -p obento --no-default-features --features host {target...}")
        .quiet()
        .ignore_status()
        .output()?;
    ensure!(!refused.status.success(), "the feature `host` was built for {WASM}: this test detects nothing");
    println!("obento builds for {WASM} without its features");
    Ok(())
}
