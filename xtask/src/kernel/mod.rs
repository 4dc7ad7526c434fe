//! The kernel module: `cargo xtask kernel build | test | bench | stack | dkms | damaged | hosts | profile`, which
//! `docs/kernel.md` describes.
//!
//! A kernel is one of two: Debian's user-mode-linux, which is a program, or Debian's stock kernel. Each command fetches what it
//! needs from Debian's packages. Folders: the sources of a kernel are in `--folder`, which outlives a checkout; everything else is
//! in `target/kernel`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use clap::{Args, Subcommand};
use xshell::Shell;

use guest::{Guest, GuestProgram};

mod bench;
mod build;
mod cuts;
mod damaged;
mod dkms;
mod guest;
mod history;
pub mod hosts;
mod profile;
mod setup;
mod stack;
mod stock;
mod test;
mod upgrade;

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
    /// Build the module and test it, in user-mode-linux or in the stock kernel in QEMU.
    Test(TestOptions),
    /// Compare the cost of operations with that of the kernel's own ext4, in QEMU.
    Bench(BenchOptions),
    /// Print the largest stack frames of the module and the number of places that may panic, and fail above the limits.
    Stack(StackOptions),
    /// Write a folder from which DKMS builds the module.
    Dkms(DkmsOptions),
    /// Mount, walk, change and unmount damaged ext4 volumes.
    Damaged(DamagedOptions),
    /// Print the functions in which an operation spends its time, in user-mode-linux.
    Profile(ProfileOptions),
    /// Cut the power at every write of the crash explorer's plans, in the stock kernel in QEMU.
    Cuts(CutsOptions),
    /// Run the host cases on a mount of each driver, in user-mode-linux.
    Hosts(HostsOptions),
}

/// The default of `--folder`.
const DEFAULT_FOLDER: &str = "/var/tmp/obento-kernel";

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
    /// Folder for the sources of user-mode-linux (180 MiB) and the images of stock kernels (100 MiB each).
    #[arg(long, default_value = DEFAULT_FOLDER)]
    folder: PathBuf,
}

#[derive(Args)]
struct BuildOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Build a module for the driver in this folder, whose crate needs no std, and for no other.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Build the module obento-NAME.ko, which contains only drivers: it replaces the drivers of mounted volumes.
    #[arg(long, value_name = "NAME")]
    drivers: Option<String>,
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
    /// The obento program, which reads the histories that the module recorded [default: a new build].
    #[arg(long, value_name = "FILE")]
    command: Option<PathBuf>,
    /// Run the cases that CI runs, and check the frames and the panics of the module.
    #[arg(long, conflicts_with_all = ["stock", "cases"])]
    short: bool,
    /// Run only the cases with these names.
    cases: Vec<String>,
}

#[derive(Args)]
struct BenchOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Measure this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Number of files.
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Number of rounds, of which the median is printed.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
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
    #[arg(required_unless_present = "mutants")]
    images: Option<PathBuf>,
    /// Test at least this number of volumes with random damage and correct checksums instead.
    #[arg(long, value_name = "NUMBER", conflicts_with = "images")]
    mutants: Option<usize>,
    /// The first seed of the damage.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct ProfileOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Profile this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Type of the volume: `ext4` is the kernel's own.
    #[arg(long, default_value = "obento-ext4")]
    fs_type: String,
    /// Number of files.
    #[arg(long, default_value_t = 300)]
    count: u32,
    /// How often the operation is repeated.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// The mount option `data=`.
    #[arg(long, default_value = "ordered")]
    data: String,
    /// Include the sync after each repetition. Only with --stock.
    #[arg(long)]
    sync: bool,
    /// The operation, as the table of `bench` names it: `readdir, per entry`.
    phase: String,
}

#[derive(Args)]
struct HostsOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Test this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

#[derive(Args)]
struct CutsOptions {
    #[command(flatten)]
    kernel: KernelOptions,
    /// Test this module, which is built already.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
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
    guest_with(shell, options, module, GuestProgram::Cases)
}

fn guest_with(
    shell: &Shell,
    options: &KernelOptions,
    module: Option<&Path>,
    program: GuestProgram,
) -> Result<(Guest, PathBuf)> {
    let mut began = Instant::now();
    let mut timed = |what: &str| {
        println!("{what} in {} s", began.elapsed().as_secs());
        began = Instant::now();
    };
    let kernel = setup::kernel(shell, options)?;
    timed("kernel prepared");
    let module =
        module.map_or_else(|| build::module(shell, &kernel, None), |module| Ok(module.to_owned()))?;
    timed("module built");
    let target = kernel.target(&shell.current_dir());
    let stock = if kernel.is_uml {
        None
    } else {
        Some(stock::Stock::new(shell, &options.folder, &kernel.name, &module)?)
    };
    let guest = Guest::new(shell, &module, &[], &target, stock, program)?;
    timed("program of the guest built");
    Ok((guest, target))
}

/// Runs the command.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    match &options.command {
        Command::Build(options) => {
            let kernel = setup::kernel(shell, &options.kernel)?;
            let driver = options.driver.as_deref();
            let module = match &options.drivers {
                Some(name) => build::drivers(shell, &kernel, driver, name)?,
                None => build::module(shell, &kernel, driver)?,
            };
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
        Command::Bench(options) => bench::run(shell, options),
        Command::Stack(options) => {
            let module = match &options.module {
                Some(module) => module.clone(),
                None => build::module(shell, &setup::kernel(shell, &options.kernel)?, None)?,
            };
            stack::run(shell, &module)
        }
        Command::Dkms(options) => dkms::run(shell, &options.kernel, &options.out),
        Command::Damaged(options) => damaged::run(shell, options),
        Command::Profile(options) => profile::run(shell, options),
        Command::Cuts(options) => cuts::run(shell, options),
        Command::Hosts(options) => hosts::run(shell, &options.kernel, options.module.as_deref()).map(drop),
    }
}
