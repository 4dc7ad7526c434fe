//! One static binary that runs in an empty container.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// Builds `dist/obento` and runs it in an empty root where that is allowed.
pub fn run(shell: &Shell) -> Result<()> {
    let host = cmd!(shell, "rustc -vV").quiet().read()?;
    let target =
        host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("x86_64-unknown-linux-gnu");
    {
        // Also for who has cargo put things elsewhere: it is taken from there.
        let _target = shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target"));
        let _flags = shell.push_env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
        cmd!(shell, "cargo build --profile dist --locked --target {target} -p obento-cli").run()?;
    }
    shell.create_dir("dist")?;
    shell.copy_file(format!("target/{target}/dist/obento"), "dist/obento")?;
    let headers = cmd!(shell, "readelf --program-headers dist/obento").quiet().read()?;
    ensure!(!headers.contains("INTERP"), "dist/obento asks for a dynamic loader");
    // As root of an empty folder: no library, no /proc, no /etc.
    let empty = shell.create_temp_dir()?;
    shell.copy_file("dist/obento", empty.path())?;
    let empty = empty.path();
    match cmd!(shell, "unshare --user --map-root-user chroot {empty} /obento --version").quiet().read() {
        Ok(version) => println!("dist/obento: {version}, static, runs in an empty root"),
        Err(error) => println!("dist/obento: static; not tried in an empty root ({error})"),
    }
    Ok(())
}
