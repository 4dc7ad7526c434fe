//! The first command of a newcomer: build, and do the main job on a real image.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Shows what is in the sample image and copies it out.
pub fn run(shell: &Shell) -> Result<()> {
    // Also for who has cargo put things elsewhere: what is told below names the place.
    let _target = shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target"));
    cmd!(shell, "cargo build --release --locked -p obento-cli").run()?;
    let obento = "target/release/obento";
    let image = "samples/disk.img.zst";
    let copy = "target/try";
    shell.remove_path(copy)?;
    cmd!(shell, "{obento} info {image}").run()?;
    cmd!(shell, "{obento} ls -l {image}:/ {image}:/home/bento").run()?;
    cmd!(shell, "{obento} cat {image}:/home/bento/hello.txt").run()?;
    cmd!(shell, "{obento} cp -a {image}:/ {copy}/").run()?;
    println!("\nThe whole tree is now in {copy}/. Next:");
    println!("  {obento} find {image} -type l -printf '%p -> %l\\n'");
    println!("  {obento} export YOUR.img | tar -t");
    println!("  {obento} --help");
    Ok(())
}
