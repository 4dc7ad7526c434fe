//! The proof that the core and the drivers need no operating system: built for a target that has none, with a
//! standard library of `core` and `alloc` alone. A plain `--no-default-features` build lets a dependency through that
//! needs `std` itself.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::packages;

const CRATES: &[&str] = &[
    "base", "env", "block", "driver", "journal", "vfs", "ext4", "clusters", "exfat", "fat", "inodes", "ntfs",
    "tmpfs", "xv6",
];

/// Builds the core without `std`, then checks that the same build refuses a crate that needs it.
pub fn run(shell: &Shell) -> Result<()> {
    packages::ensure(
        shell,
        &[("/usr/bin/rustc", "rustc-web"), ("/usr/src/rustc-1.96.0/library", "rust-web-src")],
    )?;
    let _environment = [
        shell.push_env("RUSTC", "/usr/bin/rustc"),
        shell.push_env("RUSTC_BOOTSTRAP", "1"),
        shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target/no-std")),
        // Nobody runs it.
        shell.push_env("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        shell.push_env("CARGO_PROFILE_DEV_DEBUG", "0"),
    ];
    let target = ["-Zbuild-std=core,alloc", "--target", "x86_64-unknown-none", "--locked"];
    let packages: Vec<String> =
        CRATES.iter().flat_map(|name| ["-p".to_owned(), format!("obento-{name}")]).collect();
    cmd!(shell, "cargo build --no-default-features {target...} {packages...}").run()?;
    let refused = cmd!(shell, "cargo build -p obento-base --features std {target...}")
        .quiet()
        .ignore_status()
        .output()?;
    ensure!(
        !refused.status.success(),
        "a crate that needs `std` was built without it: this proof proves nothing"
    );
    println!("{} crates build without std, and a crate that needs it does not", CRATES.len());
    Ok(())
}
