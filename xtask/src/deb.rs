//! Builds a Debian package of the static program, checks it by lintian, and installs, runs and purges it in a clean
//! Debian.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::dist;
use crate::packages::{self, Package};

const TOOLS: &[Package] =
    &[("/usr/bin/dpkg-deb", "dpkg"), ("/usr/bin/lintian", "lintian"), ("/usr/bin/mmdebstrap", "mmdebstrap")];

/// The options of the package.
#[derive(clap::Args)]
pub struct Options {
    /// Package this static program, instead of building `dist/obento`.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// The maintainer of the package.
    #[arg(long, default_value = "The obento developers <obento@example.org>")]
    maintainer: String,
    /// Do not install the package in a clean Debian (this requires root, and downloads that Debian).
    #[arg(long)]
    no_install: bool,
}

/// The findings of lintian that are intended.
const OVERRIDES: &str = "\
# One static program runs on every release of Debian.
obento: statically-linked-binary [usr/bin/obento]
# `obento info` recognises the package manager of an image by the path of its database.
obento: uses-dpkg-database-directly [usr/bin/obento]
# The package is built in the repository of the program, and closes no bug of Debian.
obento: initial-upload-closes-no-bugs [usr/share/doc/obento/changelog.gz:1]
";

/// The names by which mount(8) and umount(8) call the program.
const HELPERS: [&str; 2] = ["mount.fuse.obento", "umount.fuse.obento"];

/// Builds and tests `dist/obento_VERSION_ARCHITECTURE.deb`.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    packages::ensure(shell, TOOLS)?;
    let program = match &options.program {
        Some(program) => shell.current_dir().join(program),
        None => dist::build_here(shell, "dist")?,
    };
    let version = env!("CARGO_PKG_VERSION");
    let architecture = cmd!(shell, "dpkg --print-architecture").quiet().read()?;
    let folder = shell.create_temp_dir()?;
    let root = folder.path().join("obento");
    fill(shell, &root, &program, &options.maintainer)?;
    control(shell, &root, &architecture, &options.maintainer)?;
    shell.create_dir("dist")?;
    let package = format!("dist/obento_{version}_{architecture}.deb");
    cmd!(shell, "dpkg-deb --root-owner-group -Zxz --build {root} {package}").quiet().ignore_stdout().run()?;
    cmd!(shell, "lintian --fail-on error,warning --tag-display-limit 0 --allow-root {package}").run()?;
    if options.no_install {
        println!("{package}: lintian reports nothing; not installed");
        return Ok(());
    }
    install(shell, Path::new(&package))?;
    println!("{package}: lintian reports nothing; installed, run and purged in a clean Debian");
    Ok(())
}

/// Writes the files of the package below `root`.
fn fill(shell: &Shell, root: &Path, program: &Path, maintainer: &str) -> Result<()> {
    let folder = |path: &str| -> Result<PathBuf> {
        let folder = root.join(path);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let installed = folder("usr/bin")?.join("obento");
    shell.copy_file(program, &installed)?;
    cmd!(shell, "strip {installed}").quiet().run()?;
    cmd!(shell, "chmod 755 {installed}").quiet().run()?;
    let helpers = folder("usr/sbin")?;
    HELPERS.iter().try_for_each(|name| symlink("../bin/obento", helpers.join(name)))?;

    let pages = folder("usr/share/man/man1")?;
    cmd!(shell, "{program} man {pages}").quiet().run()?;
    let pages = shell.read_dir(&pages)?;
    cmd!(shell, "gzip -9n {pages...}").quiet().run()?;
    let helper_pages = folder("usr/share/man/man8")?;
    for (helper, page) in HELPERS.iter().zip(["obento-mount", "obento-umount"]) {
        symlink(format!("../man1/{page}.1.gz"), helper_pages.join(format!("{helper}.8.gz")))?;
    }
    for (name, path, file) in [
        ("bash", "usr/share/bash-completion/completions", "obento"),
        ("zsh", "usr/share/zsh/vendor-completions", "_obento"),
        ("fish", "usr/share/fish/vendor_completions.d", "obento.fish"),
    ] {
        let script = cmd!(shell, "{program} completions {name}").quiet().read()?;
        fs::write(folder(path)?.join(file), script + "\n")?;
    }
    let documents = folder("usr/share/doc/obento")?;
    fs::write(documents.join("copyright"), copyright(shell)?)?;
    let changes = documents.join("changelog");
    fs::write(&changes, changelog(shell, maintainer)?)?;
    cmd!(shell, "gzip -9n {changes}").quiet().run()?;
    fs::write(folder("usr/share/lintian/overrides")?.join("obento"), OVERRIDES)?;
    // The umask of the user does not apply.
    cmd!(shell, "chmod -R u=rwX,go=rX {root}").quiet().run()?;
    Ok(())
}

/// Returns the licences in the format of Debian, in which `.` is an empty line.
fn copyright(shell: &Shell) -> Result<String> {
    let text = shell.read_file("LICENSE-MIT")?;
    let owner =
        text.lines().find(|line| line.starts_with("Copyright")).context("LICENSE-MIT names no owner")?;
    let body = text.lines().skip_while(|line| !line.starts_with("Permission"));
    let body: String =
        body.map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }).collect();
    let year = cmd!(shell, "git log -1 --format=%ad --date=format:%Y").quiet().read()?;
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n\
         Copyright: {year} {}\nLicense: Expat or Apache-2.0\n\nLicense: Expat\n{body}\nLicense: Apache-2.0\n \
         /usr/share/common-licenses/Apache-2.0 contains the text on Debian.\n",
        owner.trim_start_matches("Copyright").trim_start_matches(" (c) ")
    ))
}

/// Returns one entry, whose date is that of the last commit, so that the package is reproducible.
fn changelog(shell: &Shell, maintainer: &str) -> Result<String> {
    let date = cmd!(shell, "git log -1 --format=%aD").quiet().read()?;
    // Debian writes days with two digits.
    let date = match date.split_once(", ") {
        Some((weekday, rest)) if rest.as_bytes().get(1) == Some(&b' ') => format!("{weekday}, 0{rest}"),
        _ => date,
    };
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "obento ({version}) unstable; urgency=medium\n\n  * See the CHANGELOG.md of the source.\n\n -- {maintainer}  {date}\n"
    ))
}

/// Writes the description of the package and the checksums of its files.
fn control(shell: &Shell, root: &Path, architecture: &str, maintainer: &str) -> Result<()> {
    let kilobytes = cmd!(shell, "du -ks {root}").quiet().read()?;
    let kilobytes = kilobytes.split_whitespace().next().unwrap_or("0");
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "Package: obento\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
         Installed-Size: {kilobytes}\nRecommends: fuse3\nSuggests: user-mode-linux\nSection: admin\n\
         Priority: optional\nDescription: read, change, check and mount disk images without root\n \
         obento opens disk images and disks, and lists, searches, compares, copies,\n edits, builds, mounts, \
         checks and measures the file systems on them: ext4,\n FAT, exFAT, NTFS, bcachefs, JFFS2 and, by a Linux \
         kernel that runs as a\n process, many others.\n"
    );
    let file = "{}";
    let sums = cmd!(shell, "find usr -type f -exec md5sum {file} +");
    let sums = {
        let _here = shell.push_dir(root);
        sums.quiet().read()?
    };
    let folder = root.join("DEBIAN");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("control"), text)?;
    fs::write(folder.join("md5sums"), sums + "\n")?;
    cmd!(shell, "chmod -R u=rwX,go=rX {folder}").quiet().run()?;
    Ok(())
}

/// Installs, runs and purges the package. Fails if a file that did not exist before remains.
fn install(shell: &Shell, package: &Path) -> Result<()> {
    let folder = shell.create_temp_dir()?;
    let root = folder.path().join("root");
    cmd!(shell, "mmdebstrap --quiet --mode=root --variant=essential bookworm {root}").run()?;
    let before = files(shell, &root)?;
    shell.copy_file(package, root.join("obento.deb"))?;
    shell.copy_file("samples/disk.img.zst", root.join("disk.img.zst"))?;
    cmd!(shell, "chroot {root} dpkg --install /obento.deb").ignore_stdout().run()?;
    let hello = cmd!(shell, "chroot {root} obento cat disk.img.zst:/home/bento/hello.txt").read()?;
    ensure!(hello.contains("Hello"), "the installed program prints {hello:?}");
    // Without arguments, the helper prints those that mount(8) passes, and fails.
    let helper = HELPERS[0];
    let usage = cmd!(shell, "chroot {root} /sbin/{helper}").ignore_status().read_stderr()?;
    ensure!(usage.contains("SPEC DIR"), "{helper} prints {usage:?}");
    cmd!(shell, "chroot {root} dpkg --purge obento").ignore_stdout().run()?;
    shell.remove_path(root.join("obento.deb"))?;
    shell.remove_path(root.join("disk.img.zst"))?;
    let after = files(shell, &root)?;
    let left: Vec<_> = after.lines().filter(|file| !before.lines().any(|old| old == *file)).collect();
    ensure!(left.is_empty(), "a purge leaves {left:?}");
    Ok(())
}

/// Lists all files except those in which dpkg keeps its own records.
fn files(shell: &Shell, root: &Path) -> Result<String> {
    let _here = shell.push_dir(root);
    Ok(cmd!(shell, "find . -xdev ( -path ./var/lib/dpkg -o -path ./var/log ) -prune -o -print")
        .quiet()
        .read()?)
}
