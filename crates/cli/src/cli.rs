//! The command line: the options of every command, the tree of subcommands, and the exit code of the process.
//!
//! Exit codes follow coreutils: 0 if everything succeeded, 1 if a part failed and the rest was done, 2 for wrong usage. `ls` also
//! returns 2 for an operand that cannot be accessed, and `check` has the codes of fsck(8).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, FromArgMatches, Parser, ValueEnum};

use obento::{Engine, IoBackend, Registry, UnpackLimits, VolumeOptions};

use crate::commands::Command;
use crate::context::Context;
use crate::output::Stop;
use crate::parse::size::{engine_memory, positive_size};
use crate::shown::PresentationOptions;

/// Lists, reads, copies, changes, creates and checks file systems in disk images, without root and without mounting.
#[derive(Parser, Debug)]
#[command(
    name = "obento",
    version,
    args_override_self = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The short form of --fs-type, before the subcommand
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    short_fs_type: Option<String>,
    /// The short form of --mount-options, before the subcommand
    #[arg(short = 'o', value_name = "WORDS", hide = true)]
    short_shown: Option<PresentationOptions>,
    #[command(flatten)]
    pub global: GlobalOptions,
    #[command(subcommand)]
    pub command: Command,
}

/// The options of every subcommand.
#[derive(Args, Debug, Default)]
pub struct GlobalOptions {
    /// Open the volume as TYPE (bcachefs, ext2, ext3, ext4, exfat, jffs2, lfs, ntfs, vfat, xv6) without checking its signature
    #[arg(long, global = true, value_name = "TYPE", help_heading = "Opening images", display_order = 900)]
    pub fs_type: Option<String>,
    /// Show the volume without the changes in its journal; by default, the journal is replayed in memory
    #[arg(long, global = true, help_heading = "Opening images", display_order = 901)]
    pub no_replay: bool,
    /// Use the super block in block N of the volume
    #[arg(long, global = true, value_name = "N", help_heading = "Opening images", display_order = 902)]
    pub superblock: Option<u64>,
    /// Read ext2, ext3 and ext4 volumes without verifying the checksums of metadata
    #[arg(long, global = true, help_heading = "Opening images", display_order = 903)]
    pub ignore_checksums: bool,
    /// Read an image even while another process changes it
    #[arg(long, global = true, help_heading = "Opening images", display_order = 905)]
    pub no_lock: bool,
    /// Set the method of reading and writing images
    #[arg(
        long,
        global = true,
        value_name = "METHOD",
        default_value = "buffered",
        help_heading = "Opening images",
        display_order = 906
    )]
    pub io: Io,
    /// Open the backing files that a qcow2 image names
    #[arg(long, global = true, help_heading = "Opening images", display_order = 903)]
    pub allow_backing: bool,
    /// Read an external journal from FILE
    #[arg(long, global = true, value_name = "FILE", help_heading = "Opening images", display_order = 904)]
    pub journal: Option<PathBuf>,
    /// Show volumes as `mount -o WORDS` does. Volumes without owners, permissions or time zone (FAT, exFAT, NTFS) support uid=, gid=,
    /// umask=, fmask=, dmask=, codepage=, iocharset=utf8, tz=UTC, time_offset=, keep_last_dots, discard and streams=; Btrfs supports
    /// subvolid=
    #[arg(
        id = "mount-options",
        long = "mount-options",
        global = true,
        value_name = "WORDS",
        help_heading = "Opening images",
        display_order = 907
    )]
    pub shown: Option<PresentationOptions>,
    /// Open volumes with obento's own drivers only, or with the Linux kernel only. By default the kernel opens the types that
    /// have no driver
    #[arg(long, global = true, value_name = "ENGINE", help_heading = "Opening images", display_order = 908)]
    pub engine: Option<EngineChoice>,
    /// Memory of the kernel engine, from 48M to 64G; a number without a unit counts MiB. The default is 128M, and more for large
    /// volumes
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        value_parser = engine_memory,
        help_heading = "Opening images",
        display_order = 909
    )]
    pub engine_memory: Option<u32>,
    /// Decompress at most SIZE bytes of a compressed image or archive, such as 20G. The default is 1 GiB plus 100 times its
    /// compressed size; holes of an image do not count
    #[arg(long, global = true, value_name = "SIZE", value_parser = positive_size, help_heading = "Opening images", display_order = 913)]
    pub max_unpacked: Option<u64>,
    /// Limit the window of a decompressor to SIZE bytes of memory; the default is 256M
    #[arg(long, global = true, value_name = "SIZE", value_parser = positive_size, help_heading = "Opening images", display_order = 914)]
    pub unpack_memory: Option<u64>,
    /// Print JSON, one object per line
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
    pub color: TerminalUse,
    /// Do not show a progress bar
    #[arg(long, global = true, help_heading = "Output", display_order = 912)]
    pub no_progress: bool,
}

/// When to use features that only a terminal supports.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TerminalUse {
    /// If the output is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Which drivers open volumes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// Only obento's own drivers
    Native,
    /// Only the Linux kernel, even for types that have a driver
    Linux,
}

/// How images are read and written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Io {
    /// Through the page cache
    #[default]
    Buffered,
    /// Without the page cache (O_DIRECT)
    Direct,
    /// Read from a memory mapping
    Mmap,
    /// With many requests at once (io_uring)
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
    /// Returns the owners, permissions and time zone that volumes without them are shown with.
    pub fn shown(&self) -> VolumeOptions {
        self.shown.as_ref().map_or_else(VolumeOptions::default, |words| words.shown)
    }

    /// Returns the limits of decompression.
    pub fn unpack(&self) -> UnpackLimits {
        let default = UnpackLimits::default();
        UnpackLimits { bytes: self.max_unpacked, memory: self.unpack_memory.unwrap_or(default.memory) }
    }

    /// Returns `registry` with the engine that these options choose.
    pub fn engine_of(&self, registry: Registry) -> Registry {
        let engine = match self.engine {
            None => Engine::Both,
            Some(EngineChoice::Native) => Engine::Native,
            Some(EngineChoice::Linux) => Engine::Linux,
        };
        registry.with_engine(engine, self.engine_memory)
    }

    /// Returns the arguments with which another process of this program opens images in the same way.
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
    /// Returns the options, given before or after the subcommand, and the subcommand.
    pub fn into_parts(self) -> (GlobalOptions, Command) {
        let mut global = self.global;
        global.fs_type = global.fs_type.or(self.short_fs_type);
        global.shown = global.shown.or(self.short_shown);
        (global, self.command)
    }
}

/// Parses a command line, whose first word is the program.
///
/// # Errors
///
/// The arguments are wrong, or request help or the version.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = crate::help::command();
    let arguments = with_counts(&command, arguments);
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The options that a number alone stands for: `head -20` is `head -n 20`.
///
/// The last part are the options whose value is the next word, which may look like a number alone.
const COUNTS: &[(&str, &str, &[&str])] = &[
    ("head", "-n", &["-n", "-c"]),
    ("tail", "-n", &["-n", "-c"]),
    ("grep", "-C", &["-A", "-B", "-C", "-e", "-f", "-m"]),
];

/// Replaces `-20` after a command of [`COUNTS`] by its option and the number.
fn with_counts(command: &clap::Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = arguments.into_iter().collect();
    let names = words.iter().enumerate().skip(1).filter_map(|(at, word)| Some((at, word.to_str()?)));
    let mut names = names.filter(|(_, word)| command.find_subcommand(word).is_some());
    let found = names.next().and_then(|(at, name)| {
        COUNTS.iter().find(|(known, ..)| *known == name).map(|(_, option, values)| (at, *option, *values))
    });
    let Some((at, option, values)) = found else { return words };
    let is_number = |word: &OsString| {
        let digits = word.as_encoded_bytes().strip_prefix(b"-");
        digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    };
    let mut rest = words.split_off(at + 1).into_iter();
    for word in rest.by_ref() {
        let is_value = words.last().is_some_and(|last| values.iter().any(|value| last == *value));
        match is_number(&word) && !is_value {
            true => words.extend([option.into(), OsString::from(&word.to_string_lossy()[1..])]),
            false => words.push(word),
        }
        if words.last().is_some_and(|last| last == "--") {
            break;
        }
    }
    words.extend(rest);
    words
}

/// Parses the arguments, runs the subcommand with the drivers of `registry`, and returns the exit code of the process.
///
/// This is the complete program of a driver that is developed outside of obento:
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

/// Runs the subcommand that `arguments` name, and returns the exit code. The first argument is the program.
pub fn run(arguments: Vec<OsString>, registry: Registry) -> u8 {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let usage = if is_check() { crate::commands::CHECK_USAGE } else { 2 };
            let code = u8::from(error.use_stderr()) * usage;
            return match error.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => code.max(1),
                // The reader of the help closed its pipe, which is not an error.
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
        context.warn(&crate::report::Report::standard_output(error));
    }
    context.status()
}

/// Returns whether the arguments are those of `check`, which has its own exit codes.
fn is_check() -> bool {
    std::env::args_os().skip(1).find(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
        == Some("check".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_a_count() {
        let words = |line: &str| {
            let words = with_counts(&crate::help::command(), line.split(' ').map(OsString::from));
            words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        for (line, expected) in [
            ("obento head -20 a:/b", "obento head -n 20 a:/b"),
            ("obento -t ext4 tail -5 a:/b", "obento -t ext4 tail -n 5 a:/b"),
            ("obento head -n -5 a:/b", "obento head -n -5 a:/b"),
            ("obento grep -c -2 x a:/b", "obento grep -c -C 2 x a:/b"),
            ("obento grep -e -2 a:/b", "obento grep -e -2 a:/b"),
            ("obento find head -size -5", "obento find head -size -5"),
            ("obento head -- -5", "obento head -- -5"),
        ] {
            assert_eq!(words(line), expected);
        }
    }

    #[test]
    fn the_command_tree_is_consistent() {
        crate::help::command().debug_assert();
    }
}
