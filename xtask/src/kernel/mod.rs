//! The kernel module: `cargo xtask kernel build | test | stack | dkms | damaged`. `docs/kernel.md` describes it.
//!
//! A kernel is one of two: Debian's user-mode-linux, which is a program, or Debian's stock kernel. Each command fetches what it
//! needs from Debian's packages. Folders: the sources of a kernel are in `--folder`, which outlives a checkout; everything else is
//! in `target/kernel`.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use xshell::Shell;

use guest::Guest;

mod build;
mod damaged;
mod dkms;
mod guest;
mod setup;
mod stack;
mod test;

/// Actions on the kernel module.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the module for a kernel.
    Build(BuildOptions),
    /// Build the module and test it in user-mode-linux: minutes in all.
    Test(TestOptions),
    /// Print the largest stack frames of the module and the number of places that may panic, and fail above the limits.
    Stack(StackOptions),
    /// Write a folder from which DKMS builds the module.
    Dkms(DkmsOptions),
    /// Mount, walk, change and unmount damaged ext4 volumes in user-mode-linux.
    Damaged(DamagedOptions),
}

/// The kernel that a module is for.
#[derive(Args, Clone)]
struct KernelOptions {
    /// Debian's user-mode-linux, a kernel that runs as a program (default).
    #[arg(long, conflicts_with = "stock")]
    uml: bool,
    /// A kernel whose headers are installed; by default, Debian's stock kernel.
    #[arg(long)]
    stock: bool,
    /// Release of the kernel, as `uname -r` prints it [default: the newest with headers].
    #[arg(long, requires = "stock")]
    release: Option<String>,
    /// Folder for the sources of user-mode-linux: 180 MiB.
    #[arg(long, default_value = "/var/tmp/obento-kernel")]
    folder: PathBuf,
}

#[derive(Args)]
struct BuildOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Build a module for the driver in this folder, whose crate needs no std, and for no other.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Copy the module to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct TestOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Test this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Run only the cases with these names.
    cases: Vec<String>,
}

#[derive(Args)]
struct StackOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Examine this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

#[derive(Args)]
struct DkmsOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Folder in which `obento-VERSION` is created.
    #[arg(long, default_value = "/usr/src")]
    out: PathBuf,
}

#[derive(Args)]
struct DamagedOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Test this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Folder of the images: NAME.gz or NAME.img.
    images: PathBuf,
}

/// A kernel that is ready for building modules.
struct Kernel {
    /// `uml`, or the release of the kernel.
    name: String,
    is_uml: bool,
    /// The arguments of `make` that select it.
    make: Vec<String>,
}

impl Kernel {
    /// The folder of everything that is built for this kernel.
    fn target(&self, root: &Path) -> PathBuf {
        root.join("target/kernel").join(&self.name)
    }
}

/// A guest with a module that is built now, unless there is one, and the folder of everything for its kernel.
fn guest(shell: &Shell, options: &KernelOptions, module: Option<&Path>) -> Result<(Guest, PathBuf)> {
    ensure!(!options.stock, "tests run in user-mode-linux only");
    let kernel = setup::kernel(shell, options)?;
    let module =
        module.map_or_else(|| build::module(shell, &kernel, None), |module| Ok(module.to_owned()))?;
    let target = kernel.target(&shell.current_dir());
    Ok((Guest::new(shell, &module, &target)?, target))
}

/// Runs the command.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    match &options.command {
        Command::Build(options) => {
            let kernel = setup::kernel(shell, &options.kernel)?;
            let module = build::module(shell, &kernel, options.driver.as_deref())?;
            let shown = match &options.out {
                Some(out) => {
                    shell.copy_file(&module, out)?;
                    out
                }
                None => &module,
            };
            println!("{}: for Linux {}", shown.display(), kernel.name);
            Ok(())
        }
        Command::Test(options) => test::run(shell, options),
        Command::Stack(options) => {
            let module = match &options.module {
                Some(module) => module.clone(),
                None => build::module(shell, &setup::kernel(shell, &options.kernel)?, None)?,
            };
            stack::run(shell, &module)
        }
        Command::Dkms(options) => dkms::run(shell, &options.kernel, &options.out),
        Command::Damaged(options) => damaged::run(shell, options),
    }
}
