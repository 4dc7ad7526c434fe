//! Packs what a driver outside of this repository builds on, and builds each package from what was packed alone.

use anyhow::Result;
use xshell::{Shell, cmd};

/// The contract, what drivers go by, and their tests. The others are had with the repository: the agent of the kernel engine is built
/// out of it.
const PUBLISHED: [&str; 10] =
    ["base", "env", "block", "driver", "journal", "clusters", "inodes", "tmpfs", "vfs", "testkit"];

/// Packs and builds them. Changes that are not committed are packed as well.
pub fn run(shell: &Shell) -> Result<()> {
    let packages = PUBLISHED.iter().flat_map(|name| ["--package".to_owned(), format!("obento-{name}")]);
    cmd!(shell, "cargo package --locked --allow-dirty {packages...}").run()?;
    Ok(())
}
