//! The options of every subcommand.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use obento::driver::{Checksums, Replay, VolumeOptions};
use obento::host::{IoBackend, UnpackLimits};
use obento::image::{DiskChecksums, JournalUse, Locking};
use obento::registry::Engine;
use obento::{Options, Registry};

use crate::parse::size::{engine_memory, positive_size};
use crate::shown::PresentationOptions;

/// The options of every subcommand.
#[derive(Args, Debug, Default)]
pub struct GlobalOptions {
    /// Whether the subcommand reads all of an image, and so verifies a checksum of the whole disk
    #[arg(skip)]
    pub reads_all: bool,
    /// Open the volume as TYPE without checking the signature of the volume; 'obento types' lists the types
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
        default_value = "auto",
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
    /// Whether the command opens several images, of which only some use the journal
    #[arg(skip)]
    pub journal_use: JournalUse,
    /// Set the owners, permissions, names and times that volumes show, as options of mount(8). FAT, exFAT and
    /// NTFS support uid=, gid=, umask=, fmask=, dmask=, codepage=, iocharset=utf8, tz=UTC, time_offset=,
    /// keep_last_dots, discard and streams=; Btrfs and bcachefs support subvolid=
    #[arg(
        id = "mount-options",
        long = "mount-options",
        global = true,
        value_name = "WORDS",
        help_heading = "Opening images",
        display_order = 907
    )]
    pub shown: Option<PresentationOptions>,
    /// Open volumes with obento's own drivers only, or with the kernel engine (user-mode Linux) only. By
    /// default, the kernel engine opens the types for which obento has no driver
    #[arg(long, global = true, value_name = "ENGINE", help_heading = "Opening images", display_order = 908)]
    pub engine: Option<EngineChoice>,
    /// Memory of the kernel engine, from 48M to 64G; a number without a unit counts MiB. The default is 128M
    /// for reading and 256M for changes, and more for volumes larger than 64 GiB
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        value_parser = engine_memory,
        help_heading = "Opening images",
        display_order = 909
    )]
    pub engine_memory: Option<u32>,
    /// Decompress at most SIZE bytes of a compressed image or archive, such as 20G. The default is 1 GiB plus
    /// 100 times the compressed size. Holes of an image do not count; the data of sparse files in an archive counts
    /// in whole blocks. A temporary copy of a file, 'recover' and 'cp --untrusted' have the same limit: by default
    /// 1 GiB plus 100 times the size of the volume
    #[arg(long, global = true, value_name = "SIZE", value_parser = positive_size, help_heading = "Opening images", display_order = 913)]
    pub max_unpacked: Option<u64>,
    /// Use at most SIZE bytes of memory for the window of a decompressor, and, in a build, for extended attributes,
    /// link targets and holes; the default is 256M
    #[arg(long, global = true, value_name = "SIZE", value_parser = positive_size, help_heading = "Opening images", display_order = 914)]
    pub unpack_memory: Option<u64>,
    /// Print JSON, one object per line; a command without JSON output rejects this option
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
    /// Through the page cache; repeated reads of an image file use a memory mapping, except in mounts
    #[default]
    Auto,
    /// Through the page cache
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
            Io::Auto => Self::Auto,
            Io::Buffered => Self::Buffered,
            Io::Direct => Self::Direct,
            Io::Mmap => Self::Mmap,
            Io::Uring => Self::Uring,
        }
    }
}

impl GlobalOptions {
    /// Returns the options for opening images.
    pub fn image_options(&self) -> Options {
        Options {
            fs_type: self.fs_type.clone(),
            replay: if self.no_replay { Replay::Skip } else { Replay::InMemory },
            super_block: self.superblock,
            checksums: if self.ignore_checksums { Checksums::Ignore } else { Checksums::Verify },
            disk_checksums: if self.reads_all { DiskChecksums::Verify } else { DiskChecksums::Skip },
            locking: if self.no_lock { Locking::Skip } else { Locking::Take },
            io: self.io.into(),
            allow_backing: self.allow_backing,
            journal: self.journal.clone(),
            journal_use: self.journal_use,
            shown: self.shown(),
            unpack: self.unpack(),
            ..Options::default()
        }
    }

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
