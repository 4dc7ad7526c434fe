//! Building the module: the drivers into a static library by cargo, and that with the C files into `obento.ko` by Kbuild.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use super::Kernel;

/// The flags of both kernels: addresses are fixed when the module is loaded, so no table of addresses is needed.
const FLAGS: &str = "-Crelocation-model=static -Crelro-level=off -Zplt=yes -Cforce-unwind-tables=no --cfg obento_env=\"kernel\"";
/// A program may load its modules anywhere.
const UML: &str = "-Ccode-model=large";
/// Compiler options for the mitigations of a stock kernel, which affect indirect calls and returns.
const STOCK: &str =
    "-Cjump-tables=no -Zfunction-return=thunk-extern -Zretpoline-external-thunk -Zindirect-branch-cs-prefix";
/// The name that Kbuild expects.
pub const LIBRARY: &str = "libobento_kernel.a";

/// Builds the module for `kernel`, and returns its path.
pub fn module(shell: &Shell, kernel: &Kernel, driver: Option<&Path>) -> Result<PathBuf> {
    with_drivers(shell, kernel, driver, &[]).map(|(module, _)| module)
}

/// Builds the module `obento-NAME.ko`, which contains the drivers only, and returns its path.
pub fn drivers(shell: &Shell, kernel: &Kernel, driver: Option<&Path>, name: &str) -> Result<PathBuf> {
    let is_valid =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    ensure!(!name.is_empty() && name.bytes().all(is_valid), "'{name}' is not a name: use a-z, 0-9, - and _");
    let (_, mut drivers) = with_drivers(shell, kernel, driver, &[name])?;
    drivers.pop().context("no module was built")
}

/// Builds the module for `kernel`, and a module with the drivers only for each name.
pub fn with_drivers(
    shell: &Shell,
    kernel: &Kernel,
    driver: Option<&Path>,
    names: &[&str],
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let target = kernel.target(&shell.current_dir());
    let library = match driver {
        None => library(shell, kernel, &target)?,
        Some(driver) => driver_library(shell, kernel, &target, driver)?,
    };
    let folder = target.join(if driver.is_some() { "driver" } else { "module" });
    shell.create_dir(&folder)?;
    for file in shell.read_dir("crates/kernel/c")? {
        copy_changed(&file, &folder)?;
    }
    copy_changed(Path::new("crates/kernel/guest/faulty.c"), &folder)?;
    copy_to(&library, &folder.join(LIBRARY))?;
    let make = &kernel.make;
    let module = format!("M={}", folder.display());
    // user-mode-linux has no list of the symbols that it exports: the kernel checks them when it loads the module.
    let warn = kernel.is_uml.then_some("KBUILD_MODPOST_WARN=1");
    let drivers = format!("OB_DRIVERS={}", names.join(" "));
    let built =
        cmd!(shell, "make -s {make...} {module} {warn...} {drivers} modules").ignore_status().output()?;
    let text = [built.stdout, built.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let is_noise = |line: &&str| {
        kernel.is_uml
            && (line.contains("undefined!")
                || line.contains("Module.symvers")
                || line.contains("unresolved symbol warnings")
                || line.contains("may not have"))
    };
    text.lines().filter(|line| !is_noise(line)).for_each(|line| eprintln!("{line}"));
    ensure!(built.status.success(), "the module cannot be built for Linux {}", kernel.name);
    let strip = |name: &str, stripped: PathBuf| -> Result<PathBuf> {
        let built = folder.join(name);
        cmd!(shell, "strip -d -o {stripped} {built}").quiet().run()?;
        Ok(stripped)
    };
    let stripped = if driver.is_some() { "driver.ko" } else { "obento.ko" };
    let modules = names.iter().map(|name| format!("obento-{name}.ko"));
    let modules = modules.map(|name| strip(&name, target.join(&name))).collect::<Result<_>>()?;
    Ok((strip("obento.ko", target.join(stripped))?, modules))
}

/// The environment of a build without std.
fn environment<'s>(shell: &'s Shell, kernel: &Kernel) -> Vec<xshell::PushEnv<'s>> {
    let flags = format!("{FLAGS} {}", if kernel.is_uml { UML } else { STOCK });
    vec![
        shell.push_env("RUSTC", "/usr/bin/rustc"),
        shell.push_env("RUSTC_BOOTSTRAP", "1"),
        shell.push_env("RUSTFLAGS", ""),
        shell.push_env("CARGO_ENCODED_RUSTFLAGS", flags.replace(' ', "\x1f")),
        shell.push_env("CARGO_INCREMENTAL", "0"),
    ]
}

const STD: [&str; 3] = ["-Zbuild-std=core,alloc", "--target", "x86_64-unknown-none"];

/// Builds the library of the drivers, which is the same for all releases of a kernel.
pub fn library(shell: &Shell, kernel: &Kernel, target: &Path) -> Result<PathBuf> {
    let _environment = environment(shell, kernel);
    let kind = ["--lib", "--crate-type", "staticlib"];
    cmd!(
        shell,
        "cargo rustc --locked --profile kernel -p obento-kernel {STD...} {kind...} --target-dir {target}"
    )
    .run()?;
    Ok(target.join("x86_64-unknown-none/kernel").join(LIBRARY))
}

/// Builds the library for a driver outside of this repository, from a crate that names its type.
fn driver_library(shell: &Shell, kernel: &Kernel, target: &Path, driver: &Path) -> Result<PathBuf> {
    let driver = driver.canonicalize().with_context(|| driver.display().to_string())?;
    let manifest = driver.join("Cargo.toml");
    let metadata =
        cmd!(shell, "cargo metadata --no-deps --format-version 1 --manifest-path {manifest}").read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let name = metadata["packages"][0]["name"].as_str().context("the folder has no package")?;
    let root = shell.current_dir();
    let folder = target.join("driver-crate");
    shell.create_dir(folder.join("src"))?;
    let workspace = fs::read_to_string("Cargo.toml")?;
    let profile = profile(&workspace).context("Cargo.toml has no profile for kernels")?;
    let text = format!(
        "[package]\nname = \"obento-kernel-module\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [lib]\nname = \"obento_kernel_module\"\ncrate-type = [\"staticlib\"]\n\n\
         [dependencies]\nobento-kernel = {{ path = \"{}\", default-features = false }}\n\
         {name} = {{ path = \"{}\", default-features = false }}\n\n[workspace]\n\n{profile}",
        root.join("crates/kernel").display(),
        driver.display(),
    );
    shell.write_file(folder.join("Cargo.toml"), text)?;
    let crate_name = name.replace('-', "_");
    shell.write_file(
        folder.join("src/lib.rs"),
        format!(
            "#![no_std]\nobento_kernel::types! {{ c\"obento-{name}\" => {crate_name}::MyDriver, Through }}\n"
        ),
    )?;
    copy_to(&root.join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    let _environment = environment(shell, kernel);
    let _folder = shell.push_dir(&folder);
    cmd!(shell, "cargo build --profile kernel {STD...} --target-dir {target}").run().with_context(|| {
        format!("{name} must build without std: use `#![no_std]`, and a feature for each part that needs std (docs/writing-a-driver.md)")
    })?;
    Ok(target.join("x86_64-unknown-none/kernel/libobento_kernel_module.a"))
}

/// The section `[profile.kernel]` and `[profile.release]` that it inherits from.
fn profile(workspace: &str) -> Option<String> {
    let section = |name: &str| {
        let start = workspace.find(name)?;
        let rest = workspace.get(start..)?;
        let end = rest.get(1..)?.find("\n[").map_or(rest.len(), |end| end + 2);
        rest.get(..end)
    };
    Some([section("[profile.release]")?, section("[profile.kernel]")?].concat())
}

/// Copies `file` if its contents changed, so that make does not build it again otherwise.
fn copy_changed(file: &Path, folder: &Path) -> Result<()> {
    let to = folder.join(file.file_name().unwrap_or_default());
    copy_to(file, &to)
}

fn copy_to(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    if fs::read(to).ok().as_deref() != Some(&bytes) {
        fs::write(to, bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_of_kernels_is_copied_with_the_profile_that_it_inherits() {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).unwrap();
        let profile = profile(&text).unwrap();
        assert!(profile.starts_with("[profile.release]\n"), "{profile}");
        assert!(profile.contains("[profile.kernel]\ninherits = \"release\"\n"), "{profile}");
        assert!(!profile.contains("profile.agent") && !profile.contains("profile.dist"), "{profile}");
    }
}
