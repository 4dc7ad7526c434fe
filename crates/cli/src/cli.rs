//! The command line: global options, the tree of subcommands, and what the process answers with.
//!
//! Exit codes follow coreutils: 0 all done, 1 something could not be done and the rest was, 2 wrong usage, and from `ls`
//! also for what was named and cannot be accessed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, ColorChoice, CommandFactory, Parser, ValueEnum};

use obento::{Engine, IoBackend, Registry, Shown, UnpackLimits};

use crate::commands::Command;
use crate::context::Context;
use crate::format::size::parse_size;
use crate::output::Stop;
use crate::shown::ShownWords;

const AFTER_HELP: &str = "\
Addresses:
  disk.img:/etc/fstab          a path in an image (raw, qcow2, block device; also .bz2, .gz, .lzma, .xz, .zst)
  disk.img@2:/etc/fstab        in partition 2; also @label=NAME, @name=NAME, @uuid=UUID, @+OFFSET
  disk.img:#12                 an inode
  host:a:/b                    a host path that looks like an address

Exit status: 0 if all was done, 1 if something was not, 2 for wrong usage (ls: also if what was named
cannot be accessed). check has those of fsck(8).";

/// Lists, reads, copies, changes and examines files in disk images, and makes file systems: no root, no mount.
#[derive(Parser, Debug)]
#[command(
    name = "obento",
    version,
    after_help = AFTER_HELP,
    args_override_self = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Take the volume for a TYPE (ext2, ext3, ext4, exfat, ntfs, vfat, xv6) instead of going by its signature; before the subcommand
    #[arg(short = 't', value_name = "TYPE", help_heading = "Opening")]
    short_fs_type: Option<String>,
    /// Show volumes as `mount -o WORDS` shows them, as --mount-options does; before the subcommand
    #[arg(short = 'o', value_name = "WORDS", help_heading = "Opening")]
    short_shown: Option<ShownWords>,
    #[command(flatten)]
    pub global: GlobalOptions,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help, display_order = 1000)]
    help: Option<bool>,
    /// Print help
    #[arg(short = 'h', action = ArgAction::HelpShort, hide = true)]
    short_help: Option<bool>,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Args, Debug, Default)]
pub struct GlobalOptions {
    /// Take the volume for a TYPE (ext2, ext3, ext4, exfat, ntfs, vfat, xv6) instead of going by its signature
    #[arg(long, global = true, value_name = "TYPE", help_heading = "Opening", display_order = 900)]
    pub fs_type: Option<String>,
    /// Show the state before the journal instead of replaying it in memory
    #[arg(long, global = true, help_heading = "Opening", display_order = 901)]
    pub no_replay: bool,
    /// Use the super block at block N of the volume
    #[arg(long, global = true, value_name = "N", help_heading = "Opening", display_order = 902)]
    pub superblock: Option<u64>,
    /// Read metadata of ext2, ext3 and ext4 volumes without verifying its checksums
    #[arg(long, global = true, help_heading = "Opening", display_order = 903)]
    pub ignore_checksums: bool,
    /// Read an image even while somebody changes it
    #[arg(long, global = true, help_heading = "Opening", display_order = 905)]
    pub no_lock: bool,
    /// Read and write images in this way
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        default_value = "buffered",
        help_heading = "Opening",
        display_order = 906
    )]
    pub io: Io,
    /// Open the backing files that a qcow2 image names
    #[arg(long, global = true, help_heading = "Opening", display_order = 903)]
    pub allow_backing: bool,
    /// Read an external journal from FILE
    #[arg(long, global = true, value_name = "FILE", help_heading = "Opening", display_order = 904)]
    pub journal: Option<PathBuf>,
    /// Show volumes that keep no owners, permissions or time zone (FAT, exFAT, NTFS) as `mount -o WORDS` shows them: uid=, gid=,
    /// umask=, fmask=, dmask=, codepage=, iocharset=utf8, tz=UTC, time_offset=, keep_last_dots, discard, streams=; or a subvolume of a Btrfs as if
    /// it were all: subvolid=
    #[arg(
        id = "mount-options",
        long = "mount-options",
        global = true,
        value_name = "WORDS",
        help_heading = "Opening",
        display_order = 907
    )]
    pub shown: Option<ShownWords>,
    /// Open volumes by obento's own drivers only, or by the Linux kernel only; by default by the kernel what has no driver
    #[arg(long, global = true, value_name = "WHICH", help_heading = "Opening", display_order = 908)]
    pub engine: Option<EngineChoice>,
    /// Give the kernel of the engine so much memory, from 48 to 65536 MiB; by default 128, and more for large volumes
    #[arg(
        long,
        global = true,
        value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(48..=65536),
        help_heading = "Opening",
        display_order = 909
    )]
    pub engine_memory: Option<u32>,
    /// Unpack at most SIZE bytes of a compressed image or archive, such as 20G; the default is 1 GiB plus 100 times its own length, without
    /// the holes of an image
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size, help_heading = "Opening", display_order = 913)]
    pub max_unpacked: Option<u64>,
    /// Allow the decoder of a compressed image or archive a window of SIZE bytes of memory; the default is 256M
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size, help_heading = "Opening", display_order = 914)]
    pub unpack_memory: Option<u64>,
    /// Write JSON, a line an object
    #[arg(long, global = true, help_heading = "Output", display_order = 910)]
    pub json: bool,
    /// Use colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        help_heading = "Output",
        display_order = 911
    )]
    pub color: When,
    /// Show no progress bar
    #[arg(long, global = true, help_heading = "Output", display_order = 912)]
    pub no_progress: bool,
}

/// When to use what only a terminal understands.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which drivers open volumes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// Those of obento: a kernel is never started.
    Native,
    /// The kernel, also for what obento has a driver for.
    Linux,
}

/// How images are read and written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Io {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past the page cache (O_DIRECT).
    Direct,
    /// Reading from a mapping.
    Mmap,
    /// Many requests at once (io_uring).
    Uring,
}

impl From<Io> for IoBackend {
    fn from(io: Io) -> Self {
        match io {
            Io::Buffered => Self::Buffered,
            Io::Direct => Self::Direct,
            Io::Mmap => Self::Mmap,
            Io::Uring => Self::Uring,
        }
    }
}

impl GlobalOptions {
    /// How volumes are shown whose format does not say it.
    pub fn shown(&self) -> Shown {
        self.shown.as_ref().map_or_else(Shown::default, |words| words.shown)
    }

    /// Returns what unpacking may cost.
    pub fn unpack(&self) -> UnpackLimits {
        let default = UnpackLimits::default();
        UnpackLimits { bytes: self.max_unpacked, memory: self.unpack_memory.unwrap_or(default.memory) }
    }

    /// `registry`, opening volumes as these options say.
    pub fn engine_of(&self, registry: Registry) -> Registry {
        let engine = match self.engine {
            None => Engine::Both,
            Some(EngineChoice::Native) => Engine::Native,
            Some(EngineChoice::Linux) => Engine::Linux,
        };
        registry.with_engine(engine, self.engine_memory)
    }

    /// The arguments that say the same of opening an image, for another process of this program.
    pub fn opening_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let flags = [
            (self.no_replay, "--no-replay"),
            (self.ignore_checksums, "--ignore-checksums"),
            (self.no_lock, "--no-lock"),
            (self.allow_backing, "--allow-backing"),
        ];
        arguments.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.into()));
        let mut add = |flag: &str, value: Option<OsString>| {
            arguments.extend(value.into_iter().flat_map(|value| [OsString::from(flag), value]));
        };
        add("--fs-type", self.fs_type.clone().map(Into::into));
        add("--superblock", self.superblock.map(|block| block.to_string().into()));
        add("--journal", self.journal.clone().map(Into::into));
        add("--mount-options", self.shown.as_ref().map(|shown| (&shown.words).into()));
        add("--engine", self.engine.and_then(|which| Some(which.to_possible_value()?.get_name().into())));
        add("--engine-memory", self.engine_memory.map(|memory| memory.to_string().into()));
        add("--max-unpacked", self.max_unpacked.map(|size| size.to_string().into()));
        add("--unpack-memory", self.unpack_memory.map(|size| size.to_string().into()));
        add("--io", self.io.to_possible_value().map(|value| value.get_name().into()));
        arguments
    }
}

impl Cli {
    /// The options as given before or after the subcommand.
    pub fn into_parts(self) -> (GlobalOptions, Command) {
        let mut global = self.global;
        global.fs_type = global.fs_type.or(self.short_fs_type);
        global.shown = global.shown.or(self.short_shown);
        (global, self.command)
    }
}

/// The whole command tree, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command().color(ColorChoice::Auto)
}

/// Parses the arguments, runs the subcommand with the drivers of `registry`, and answers with the process's exit code.
///
/// The whole program of a driver that lives outside of obento:
///
/// ```no_run
/// # fn program(my_driver: impl obento::driver::Driver + 'static) -> std::process::ExitCode {
/// obento_cli::main(obento::Registry::default().with(my_driver))
/// # }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    if let Some(code) = crate::helper::main(&registry) {
        return code;
    }
    run(std::env::args_os().collect(), registry).into()
}

/// Runs the subcommand that `arguments` name, the first of them this program; answers the exit code.
pub fn run(arguments: Vec<OsString>, registry: Registry) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let usage = if is_check() { crate::commands::CHECK_USAGE } else { 2 };
            let code = u8::from(error.use_stderr()) * usage;
            return match error.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => code.max(1),
                // A closed pipe is no reason to complain about help that nobody reads.
                _ => code,
            };
        }
    };
    let (global, command) = cli.into_parts();
    let registry = global.engine_of(registry);
    let context = Context::new(global, registry);
    let stop = command.run(&context).err();
    context.close();
    if let Some(Stop::Failed(report)) = &stop {
        context.fail(report);
    }
    if let Some(Stop::Output(error)) = stop
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        context.warn(&crate::report::Report::new("cannot write to standard output", error));
    }
    context.status()
}

/// Whether the arguments that are wrong are of `check`, which has exit codes of its own.
fn is_check() -> bool {
    std::env::args_os().skip(1).find(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
        == Some("check".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        command().debug_assert();
    }
}
