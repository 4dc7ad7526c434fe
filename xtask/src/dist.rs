//! Builds static programs that run in an empty container.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{PushEnv, Shell, cmd};

use crate::packages::{self, Package};

/// The target of [`Options::aarch64`].
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The flags of the compiler for a static program.
pub const FLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// The linker and the C library for [`AARCH64`], and the emulator that tests the program.
const CROSS: &[Package] = &[
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross"),
    ("/usr/bin/qemu-aarch64", "qemu-user"),
];

/// The options of a static build.
#[derive(clap::Args)]
pub struct Options {
    /// Build `dist/obento-aarch64` instead, and run it in QEMU. The standard library is built, too, from the component
    /// rust-src of the toolchain.
    #[arg(long)]
    aarch64: bool,
    /// The profile. `try` is short to compile, and suffices to test whether the program can be built.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// Builds the program, and tests that it runs.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if options.aarch64 {
        packages::ensure(shell, CROSS)?;
        let root = cmd!(shell, "rustc --print sysroot").quiet().read()?;
        let sources = Path::new(&root).join("lib/rustlib/src/rust/library");
        ensure!(sources.exists(), "the toolchain has no sources; run: rustup component add rust-src");
        let file = build(shell, AARCH64, &options.profile, "dist/obento-aarch64")?;
        return emulate(shell, &file);
    }
    let file = build_here(shell, &options.profile)?;
    // The root directory is an empty folder: no library, no /proc, no /etc.
    let empty = shell.create_temp_dir()?;
    shell.copy_file(&file, empty.path().join("obento"))?;
    let empty = empty.path();
    match cmd!(shell, "unshare --user --map-root-user chroot {empty} /obento --version").quiet().read() {
        Ok(version) => println!("dist/obento: {version}, static, runs in an empty root"),
        Err(error) => println!("dist/obento: static; not tested in an empty root ({error})"),
    }
    Ok(())
}

/// Builds `dist/obento` for this machine, and returns its path.
pub fn build_here(shell: &Shell, profile: &str) -> Result<PathBuf> {
    build(shell, &host(shell)?, profile, "dist/obento")
}

/// Returns the target of this machine.
pub fn host(shell: &Shell) -> Result<String> {
    let version = cmd!(shell, "rustc -vV").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.unwrap_or("x86_64-unknown-linux-gnu").to_owned())
}

fn build(shell: &Shell, target: &str, profile: &str, file: &str) -> Result<PathBuf> {
    {
        // The program is copied from this folder, so the user's target folder is overridden.
        let _target = shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target"));
        let _flags = shell.push_env("RUSTFLAGS", FLAGS);
        let _cross = (target == AARCH64).then(|| cross(shell));
        cmd!(shell, "cargo build --profile {profile} --locked --target {target} -p obento-cli").run()?;
    }
    shell.create_dir("dist")?;
    shell.copy_file(format!("target/{target}/{profile}/obento"), file)?;
    let headers = cmd!(shell, "readelf --program-headers {file}").quiet().read()?;
    ensure!(!headers.contains("INTERP"), "{file} requires a dynamic loader");
    Ok(shell.current_dir().join(file))
}

/// Makes cargo link for [`AARCH64`] and build the standard library, because a toolchain contains only that of its own
/// machine. The environment reaches the builds that build scripts start, too.
fn cross(shell: &Shell) -> [PushEnv<'_>; 3] {
    [
        shell.push_env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
        shell.push_env("CARGO_UNSTABLE_BUILD_STD", "std"),
        // The option is one of nightly; the released compiler accepts it with this variable.
        shell.push_env("RUSTC_BOOTSTRAP", "1"),
    ]
}

/// Reads the sample image by the program for another machine.
fn emulate(shell: &Shell, file: &Path) -> Result<()> {
    let image = "samples/disk.img.zst";
    let list = format!("{image}:/home/bento");
    let names = cmd!(shell, "qemu-aarch64 {file} ls {list}").read()?;
    ensure!(names.lines().any(|name| name == "hello.txt"), "{} lists {names:?}", file.display());
    let version = cmd!(shell, "qemu-aarch64 {file} --version").quiet().read()?;
    println!("dist/obento-aarch64: {version}, static, reads {image} in QEMU");
    Ok(())
}
