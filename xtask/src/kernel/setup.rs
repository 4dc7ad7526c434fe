//! The sources for building modules: the headers of a stock kernel, or the sources of user-mode-linux.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::{Kernel, KernelOptions};
use crate::packages::{self, Package};

/// The series of Linux whose VFS interface the C files use. They check it again when they are compiled.
const SERIES: &str = "6.1.";

const TOOLS: &[Package] = &[
    ("/usr/bin/rustc", "rustc-web"),
    ("/usr/src/rustc-1.96.0/library", "rust-web-src"),
    ("/usr/bin/make", "make"),
    ("/usr/bin/gcc", "gcc"),
    ("/usr/bin/ld", "binutils"),
    ("/usr/bin/kmod", "kmod"),
    ("/sbin/mke2fs", "e2fsprogs"),
];
/// The programs that `make modules_prepare` needs, with their packages.
const UML: &[Package] = &[
    ("/usr/bin/linux.uml", "user-mode-linux"),
    ("/usr/bin/bc", "bc"),
    ("/usr/bin/flex", "flex"),
    ("/usr/bin/bison", "bison"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
];

/// Prepares the kernel that `options` select.
pub fn kernel(shell: &Shell, options: &KernelOptions) -> Result<Kernel> {
    packages::ensure(shell, TOOLS)?;
    if options.stock { stock(shell, options.release.as_deref()) } else { uml(shell, &options.folder) }
}

fn stock(shell: &Shell, release: Option<&str>) -> Result<Kernel> {
    let release = match (release, newest_release()?) {
        (Some(release), _) => release.to_owned(),
        (None, Some(newest)) => newest,
        (None, None) => {
            packages::ensure(shell, &[("/usr/share/doc/linux-headers-amd64", "linux-headers-amd64")])?;
            newest_release()?
                .context("no kernel headers are installed: apt-get install linux-headers-amd64")?
        }
    };
    check_release(&release)?;
    let headers = PathBuf::from("/lib/modules").join(&release).join("build");
    ensure!(
        headers.join("Makefile").exists(),
        "the headers of Linux {release} are not installed: apt-get install linux-headers-{release}"
    );
    let config = headers.join("include/config/auto.conf");
    let config = fs::read_to_string(&config).with_context(|| config.display().to_string())?;
    check_config(&release, &config)?;
    Ok(Kernel { name: release, is_uml: false, make: vec!["-C".into(), headers.display().to_string()] })
}

/// The newest release of a generic kernel of Debian whose headers are installed.
fn newest_release() -> Result<Option<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/usr/src")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let release = name.strip_prefix("linux-headers-").filter(|release| release.ends_with("-amd64"));
        found.extend(release.filter(|release| !release.contains("-cloud-")).map(str::to_owned));
    }
    found.sort_by_key(|release| {
        release.split(['.', '-']).map(|part| part.parse().unwrap_or(0_u32)).collect::<Vec<_>>()
    });
    Ok(found.pop())
}

/// Refuses a kernel of another series.
fn check_release(release: &str) -> Result<()> {
    ensure!(
        release.starts_with(SERIES),
        "the module supports Linux {SERIES}x, not {release}: the VFS of other versions has other operations \
         (docs/kernel.md)"
    );
    Ok(())
}

/// Refuses a kernel that lacks a requirement of the module.
fn check_config(release: &str, config: &str) -> Result<()> {
    for (option, why) in [
        ("CONFIG_X86_64", "the module supports x86-64 only"),
        ("CONFIG_MODULES", "the kernel loads no modules"),
        ("CONFIG_BLOCK", "the kernel has no block devices"),
        ("CONFIG_FS_IOMAP", "the kernel exports no iomap"),
        ("CONFIG_FS_POSIX_ACL", "the kernel has no access control lists"),
    ] {
        let line = format!("{option}=y");
        ensure!(config.lines().any(|found| found == line), "Linux {release} has no {option}: {why}");
    }
    Ok(())
}

/// The parts of the source that modules are built with.
const PARTS: &[&str] = &[
    "Makefile", "Kbuild", "Kconfig", "arch/um", "arch/x86", "include", "kernel", "lib", "scripts",
    "security", "tools",
];

fn uml(shell: &Shell, folder: &Path) -> Result<Kernel> {
    packages::ensure(shell, UML)?;
    let built = cmd!(shell, "dpkg-query -W -f '${Built-Using}' user-mode-linux").read();
    let built = built.context("user-mode-linux is not installed")?;
    let version = built_using(&built).with_context(|| {
        format!("the package user-mode-linux does not name the source that it was built from: '{built}'")
    })?;
    check_release(version)?;
    let here = folder.join(version);
    let (source, build) = (here.join("linux-source-6.1"), here.join("build"));
    if !here.join("ready").exists() {
        prepare(shell, &here, &source, &build, version)?;
        fs::write(here.join("ready"), "")?;
    }
    let config = fs::read_to_string(build.join("include/config/auto.conf"))?;
    check_config(version, &config)?;
    let make =
        vec!["-C".into(), source.display().to_string(), "ARCH=um".into(), format!("O={}", build.display())];
    Ok(Kernel { name: "uml".into(), is_uml: true, make })
}

/// The version in `linux (= 6.1.176-1)`.
fn built_using(field: &str) -> Option<&str> {
    field.split(',').find_map(|source| source.trim().strip_prefix("linux (= ")?.strip_suffix(')'))
}

/// Fetches the source that user-mode-linux was built from, and prepares it with the configuration of the program.
fn prepare(shell: &Shell, here: &Path, source: &Path, build: &Path, version: &str) -> Result<()> {
    shell.remove_path(here)?;
    shell.create_dir(build)?;
    {
        let _folder = shell.push_dir(here);
        cmd!(shell, "apt-get update -qq").run()?;
        cmd!(shell, "apt-get download -qq linux-source-6.1={version}").ignore_stderr().run()?;
        let package =
            shell.read_dir(".")?.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
        let package = package.with_context(|| format!("linux-source-6.1={version} cannot be downloaded"))?;
        let parts = PARTS.iter().map(|part| format!("linux-source-6.1/{part}"));
        let script = "dpkg --fsys-tarfile \"$0\" | tar -xO ./usr/src/linux-source-6.1.tar.xz | xz -dc -T0 | tar -x --wildcards --wildcards-match-slash \"$@\"";
        cmd!(shell, "sh -c {script} {package} {parts...} */Kconfig*").run()?;
        shell.remove_path(package)?;
    }
    let config = cmd!(shell, "linux.uml --showconfig").quiet().read()?;
    shell.write_file(build.join(".config"), config)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let out = format!("O={}", build.display());
    cmd!(shell, "make -s -C {source} ARCH=um {out} olddefconfig").ignore_stdout().run()?;
    cmd!(shell, "make -s -C {source} ARCH=um {out} -j{jobs} modules_prepare").ignore_stdout().run()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_user_mode_linux_is_read_from_its_package() {
        assert_eq!(built_using("linux (= 6.1.176-1)"), Some("6.1.176-1"));
        assert_eq!(built_using("gcc-12 (= 12.2.0), linux (= 6.1.176-1)"), Some("6.1.176-1"));
        assert_eq!(built_using(""), None);
    }

    #[test]
    fn another_kernel_is_refused_with_the_reason() {
        check_release("6.1.0-56-amd64").unwrap();
        let error = check_release("6.12.1").unwrap_err().to_string();
        assert!(error.starts_with("the module supports Linux 6.1.x, not 6.12.1: the VFS"), "{error}");
        let config = "CONFIG_X86_64=y\nCONFIG_MODULES=y\nCONFIG_BLOCK=y\nCONFIG_FS_POSIX_ACL=y\n";
        let error = check_config("6.1.5", config).unwrap_err().to_string();
        assert_eq!(error, "Linux 6.1.5 has no CONFIG_FS_IOMAP: the kernel exports no iomap");
        check_config("6.1.5", &format!("{config}CONFIG_FS_IOMAP=y\n")).unwrap();
    }
}
