//! The first command for a new user: builds obento, and copies files out of a real image.

use anyhow::Result;
use xshell::{Shell, cmd};

/// The profile with a short compile time. This program uses the same profile, so both share crates.
const PROFILE: &str = "try";

/// Lists the sample image and copies its files out.
pub fn run(shell: &Shell) -> Result<()> {
    eprintln!("building obento without optimisation; the first build takes about 2 minutes");
    // The printed commands name this folder, so the user's target folder is overridden.
    let _target = shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target"));
    cmd!(shell, "cargo build --profile {PROFILE} --locked -p obento-cli").run()?;
    let obento = format!("target/{PROFILE}/obento");
    let image = "samples/disk.img.zst";
    let copy = "target/tried";
    shell.remove_path(copy)?;
    cmd!(shell, "{obento} info {image}").run()?;
    cmd!(shell, "{obento} ls -l {image}:/ {image}:/home/bento").run()?;
    cmd!(shell, "{obento} cat {image}:/home/bento/hello.txt").run()?;
    cmd!(shell, "{obento} cp -a {image}:/ {copy}/").run()?;
    println!("\nThe whole tree is now in {copy}/. Next:");
    println!("  {obento} find {image} -type l -printf '%p -> %l\\n'");
    println!("  {obento} export YOUR.img | tar -t");
    println!("  {obento} --help");
    println!("This program is slow. Build the optimised one with: cargo install --locked --path crates/cli");
    Ok(())
}
